"""Words for the person who started the run."""

import os
import sys


def say(text: str) -> None:
    """Print a line, on the first rank only."""
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def say_everywhere(text: str) -> None:
    """Print a line about trouble, whatever the rank, in one piece so that lines of several ranks do not mix."""
    sys.stdout.flush()
    os.write(2, f"{text}\n".encode())
