"""Makes the tables that the importer of a source reads: `python benchmarks/convert.py SOURCE CLONE FOLDER`.

The clone is one of the source's public repository, at the commit whose measurements are imported.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from converters import aiconfigurator2026, llmservingsim2026, nicolai2025
from converters.miopen2024 import convolutions
from converters.vidur2024 import layers

from joulecast.errors import DatasetError, JoulecastError, named, needing, with_extra
from joulecast.system.whole_files import whole_file

Rows = Iterable[Mapping[str, Any]]

CONVERTERS: Mapping[str, tuple[str | None, Mapping[str, Callable[[Path], Rows]]]] = {
    "aiconfigurator2026": ("095f58a", aiconfigurator2026.TABLES),
    "llmservingsim2026": (None, {"layers.parquet": llmservingsim2026.layers}),
    "miopen2024": ("2d1fd99", {"convolutions.parquet": convolutions}),
    "nicolai2025": (None, {"operations.csv": nicolai2025.operations, "networks.csv": nicolai2025.networks}),
    "vidur2024": ("7d47513", {"layers.parquet": layers}),
}
"""Source -> the commit whose files are imported, and table -> function that makes its rows from a clone.

None stands for a source whose files are found in the whole history, by their digests, or have never changed.
"""


def convert(source: str, clone: Path, out: Path, *, any_commit: bool = False) -> dict[Path, tuple[int, str]]:
    """Write the tables of a source, a key of `CONVERTERS`, from a clone of its repository.

    A clone at another commit, whose rows may be others, is refused unless any commit is allowed. Returns the path of
    each table -> number of its rows, and the sha256 of what is in them, which does not depend on how Parquet is
    written. Raises UnknownNameError: the source has no converter. Raises DatasetError: the clone is at another commit,
    or a file of it is missing or has another form.
    """
    commit, tables = named("source with a converter", source, CONVERTERS)
    if commit is not None and not any_commit:
        _require_commit(clone, commit)
    found = {}
    for name, rows_of in tables.items():
        rows = list(rows_of(clone))
        if not rows:
            raise DatasetError(
                f"the clone has no measurements of {source}",
                given=str(clone),
                allowed="the repository that `joulecast datasets sources` names",
                hint=f"git -C {clone} checkout {commit}" if commit else "clone it again",
            )
        out.mkdir(parents=True, exist_ok=True)
        found[out / name] = len(rows), _write(out / name, rows)
    return found


def _require_commit(clone: Path, commit: str) -> None:
    program = shutil.which("git")
    asked = program and subprocess.run(
        [program, "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    head = asked.stdout.strip() if asked else ""
    if not head.startswith(commit):
        raise DatasetError(
            "the clone is not at the commit whose measurements are imported",
            given=f"{clone}: {head or 'no commit that git tells'}",
            allowed=commit,
            hint=f"git -C {clone} checkout {commit}; or --any-commit, whose rows may be others",
        )


def _write(path: Path, rows: list[Mapping[str, Any]]) -> str:
    """Write a table, and return the sha256 of its rows as text."""
    with needing("datasets need pyarrow", with_extra("train")):
        import pyarrow as pa
        from pyarrow import parquet
    digest = hashlib.sha256("\t".join(rows[0]).encode())
    for row in rows:
        digest.update(("\n" + "\t".join(map(str, row.values()))).encode())
    with whole_file(path) as unfinished:
        if path.suffix == ".csv":
            with unfinished.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            return digest.hexdigest()
        parquet.write_table(pa.Table.from_pylist(rows), unfinished)
    return digest.hexdigest()


def main() -> None:
    """Convert a clone, and print the number and the digest of the rows of each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help=", ".join(CONVERTERS))
    parser.add_argument("clone", type=Path, help="clone of the source's repository")
    parser.add_argument("out", type=Path, help="folder for the tables")
    parser.add_argument("--any-commit", action="store_true", help="take a clone at another commit, too")
    try:
        found = convert(**vars(parser.parse_args()))
    except JoulecastError as error:
        sys.exit(f"error: {error}")
    for path, (rows, sha256) in found.items():
        print(f"{path}: {rows:,} rows, sha256 of the rows {sha256}")


if __name__ == "__main__":
    main()
