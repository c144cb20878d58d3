"""Mistakes that the person at the command line can mend: one line, exit code 2."""


class UsageError(ValueError):
    """Wrong settings, data or files. The message says what is wrong and what would be right."""
