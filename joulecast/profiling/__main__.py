"""`python -m joulecast.profiling`: collect with torch, numpy and nvidia-ml-py only, without typer."""

from __future__ import annotations

import sys

from ..errors import JoulecastError
from .command import collect


def main() -> None:
    """Run a campaign, as `joulecast collect` does."""
    try:
        text = collect(sys.argv[1:], "python -m joulecast.profiling")
    except JoulecastError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
