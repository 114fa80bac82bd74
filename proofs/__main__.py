"""`python -m proofs`."""

import sys

from cleancut_leaf.terminal import ended


def command() -> int:
    """Load the command line, which may lack a package, and run it."""
    from .command_line import main

    return main()


if __name__ == "__main__":
    sys.exit(ended("python -m proofs", command))
