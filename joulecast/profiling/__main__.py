"""`python -m joulecast.profiling`: collect with torch, numpy and nvidia-ml-py only, without the command line kit."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import JoulecastError
from .session import describe, run


def main() -> None:
    """Run a campaign, as `joulecast collect` does."""
    parser = argparse.ArgumentParser(prog="python -m joulecast.profiling", description=main.__doc__)
    parser.add_argument("campaign", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--no-power", action="store_true")
    a = parser.parse_args()
    try:
        if a.dry_run:
            text = describe(a.campaign, a.limit)
        else:
            text = run(a.campaign, a.out, a.device, limit=a.limit, resume=a.resume, power=not a.no_power)
    except JoulecastError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
