"""`python -m joulecast.extraction.templates [NAME ...]` makes the templates of these models, or of all. Needs torch."""

from __future__ import annotations

import argparse
import sys
import time

from . import store
from .making import Maker


def main() -> None:
    """Make and write templates, and print the sizes that they do not cover."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models; all that have templates where none is given")
    for name in parser.parse_args().names or store.names():
        start = time.perf_counter()
        maker = Maker(name)
        model = maker.make()
        store.save(name, model)
        size_bytes = store.file_of(name).stat().st_size
        regimes = sum(len(setting.regimes) for setting in model.settings.values())
        sys.stdout.write(
            f"{name}: {len(model.templates)} templates for {regimes} regimes, {size_bytes / 1000:.1f} kB, "
            f"{time.perf_counter() - start:.0f} s\n"
        )
        sys.stdout.write("".join(f"  left out: {line[:400]}\n" for line in maker.left_out))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
