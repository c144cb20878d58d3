"""`python -m graphpar` is the command `graphpar`."""

from graphpar.cli import main

if __name__ == "__main__":
    main(prog_name="graphpar")
