"""Builds: from MODEL and SPEC, as a person names them, to a folder."""
