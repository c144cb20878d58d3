"""Rewriting: passes are values that the pipeline runs in order."""
