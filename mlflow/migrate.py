r"""Move the runs and models of one MLflow store to another: from SQLite, where all begin, to a server's PostgreSQL.

    export PGPASSWORD=...     # not in the address, which the list of processes shows
    python migrate.py sqlite:////home/me/mlflow.db postgresql+psycopg2://mlflow@HOST/mlflow \
        --artifacts /home/me/mlartifacts --to /srv/mlflow/artifacts

Stop whatever writes to either. The target must be empty. Rows are copied table by table in one transaction and counted;
files are copied below `imported/` of the new artifacts, and what the rows say of their places is rewritten. The source
stays as it is. For S3, copy the folder there yourself (`aws s3 sync mlartifacts s3://BUCKET/imported`), without --to.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import sqlalchemy

IMPORTED = "mlflow-artifacts:/imported"
_ROWS_AT_ONCE = 1000
_MADE_BY_MLFLOW = {"alembic_version"}


def tables(engine: sqlalchemy.Engine) -> list[sqlalchemy.Table]:
    """All tables, in an order in which each comes after the tables that it refers to."""
    metadata = sqlalchemy.MetaData()
    metadata.reflect(engine)
    return [table for table in metadata.sorted_tables if table.name not in _MADE_BY_MLFLOW]


def count(connection: sqlalchemy.Connection, table: sqlalchemy.Table) -> int:
    """All rows of a table."""
    return int(connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(table)).scalar_one())


def moved(row: dict[str, Any], before: str | None) -> dict[str, Any]:
    """A copy of a row with the new locations of its files."""
    if before is None:
        return row
    return {
        name: value.replace(before, IMPORTED) if isinstance(value, str) and before in value else value
        for name, value in row.items()
    }


def empty(connection: sqlalchemy.Connection, found: list[sqlalchemy.Table]) -> bool:
    """Whether a store contains only the rows that MLflow creates itself."""
    names = {table.name: count(connection, table) for table in found}
    return not names.get("runs") and not names.get("registered_models") and names.get("experiments", 0) <= 1


def copy_rows(source: sqlalchemy.Engine, target: sqlalchemy.Engine, before: str | None) -> dict[str, int]:
    """Copy all rows, and return how many of each table."""
    mine, theirs = tables(source), {table.name: table for table in tables(target)}
    copied = {}
    with source.connect() as reading, target.begin() as writing:
        if not empty(writing, list(theirs.values())):
            sys.exit("the target is not empty: nothing was copied")
        for table in reversed(mine):
            writing.execute(sqlalchemy.delete(theirs[table.name]))
        for table in mine:
            rows = reading.execution_options(yield_per=_ROWS_AT_ONCE).execute(sqlalchemy.select(table)).mappings()
            for part in rows.partitions(_ROWS_AT_ONCE):
                writing.execute(sqlalchemy.insert(theirs[table.name]), [moved(dict(row), before) for row in part])
            copied[table.name] = count(reading, table)
            there = count(writing, theirs[table.name])
            if there != copied[table.name]:
                sys.exit(f"{table.name}: {there} of {copied[table.name]} rows arrived; nothing was kept")
            _go_on_counting(writing, theirs[table.name])
    return copied


def _go_on_counting(connection: sqlalchemy.Connection, table: sqlalchemy.Table) -> None:
    """Set the sequences of PostgreSQL, so that new rows get numbers after those of the copied rows."""
    if connection.dialect.name != "postgresql":
        return
    for column in table.primary_key:
        if not isinstance(column.type, sqlalchemy.Integer):
            continue
        sequence = connection.execute(
            sqlalchemy.text("SELECT pg_get_serial_sequence(:table, :column)"),
            {"table": table.name, "column": column.name},
        ).scalar()
        if sequence:
            highest = connection.execute(sqlalchemy.select(sqlalchemy.func.max(column))).scalar()
            connection.execute(
                sqlalchemy.text("SELECT setval(:sequence, :value, :used)"),
                {"sequence": sequence, "value": max(highest or 1, 1), "used": highest is not None},
            )


def main() -> None:
    """Read the command line, and move the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="where the runs are: sqlite:////...")
    parser.add_argument("target", help="where they go: postgresql+psycopg2://...")
    parser.add_argument("--artifacts", type=Path, help="folder of the source's files, such as mlartifacts")
    parser.add_argument("--to", type=Path, help="artifacts folder of the new server (its --artifacts-destination)")
    given = parser.parse_args()
    for uri in (given.source, given.target):
        if sqlalchemy.make_url(uri).password is not None:
            sys.exit("the address of a database holds a password: set $PGPASSWORD, and leave it out")
        # Creates or updates the tables of both stores to the version of this MLflow.
        subprocess.run([sys.executable, "-m", "mlflow", "db", "upgrade", uri], check=True)
    source, target = (sqlalchemy.create_engine(uri) for uri in (given.source, given.target))
    before = given.artifacts.resolve().as_uri() if given.artifacts else None
    if given.artifacts and given.to:
        # Files are copied first, so that no row refers to a file that does not exist yet.
        shutil.copytree(given.artifacts, given.to / "imported", dirs_exist_ok=True)
    copied = copy_rows(source, target, before)
    for name, rows in copied.items():
        if rows:
            print(f"{name}: {rows}")
    print("all rows arrived; point the server at the target, and --tracking-uri at the server")


if __name__ == "__main__":
    main()
