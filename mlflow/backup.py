"""Back up an MLflow server, and restore it: its databases and its files.

    STORE=... USERS=... ARTIFACTS=... python backup.py save /backups/2026-11-21
    STORE=... USERS=... ARTIFACTS=... python backup.py restore /backups/2026-11-21     # into empty places

The variables are those of serve.sh, $PGPASSWORD among them. The server may run while it is saved: databases are saved
first, and files are written before the rows that refer to them, so every row that is saved has its files.
Restore with the server stopped. PostgreSQL needs pg_dump and pg_restore of its version or newer; S3 needs boto3.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SQLITE = "sqlite:///"


def save_database(uri: str, target: Path) -> None:
    """Save a consistent copy of a database."""
    if uri.startswith(_SQLITE):
        with sqlite3.connect(uri.removeprefix(_SQLITE)) as source, sqlite3.connect(target) as copy:
            source.backup(copy)
        return
    subprocess.run(["pg_dump", "--format=custom", f"--file={target}", _postgresql(uri)], check=True)


def restore_database(saved: Path, uri: str) -> None:
    """Restore a saved database into an empty one, completely or not at all."""
    if uri.startswith(_SQLITE):
        path = Path(uri.removeprefix(_SQLITE))
        if path.exists():
            sys.exit(f"{path} is there already: move it away first")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(saved, path)
        return
    options = ["--single-transaction", "--exit-on-error", "--no-owner"]
    subprocess.run(["pg_restore", *options, f"--dbname={_postgresql(uri)}", str(saved)], check=True)


def _postgresql(uri: str) -> str:
    if urlsplit(uri).password is not None:
        sys.exit("the address of a database holds a password, and the list of processes shows it: set $PGPASSWORD")
    return "postgresql://" + uri.split("://", 1)[1]


def _bucket(where: str) -> tuple[Any, str, str]:
    import boto3

    parts = urlsplit(where)
    client = boto3.client("s3", endpoint_url=os.environ.get("MLFLOW_S3_ENDPOINT_URL"))
    return client, parts.netloc, parts.path.strip("/")


def save_files(where: str, target: Path) -> None:
    """Copy all artifacts into a folder."""
    if not where.startswith("s3://"):
        shutil.copytree(where, target, dirs_exist_ok=True)
        return
    client, bucket, prefix = _bucket(where)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for each in page.get("Contents", ()):
            path = target / each["Key"].removeprefix(prefix).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, each["Key"], str(path))


def restore_files(saved: Path, where: str) -> None:
    """Copy saved artifacts back."""
    if not where.startswith("s3://"):
        shutil.copytree(saved, where, dirs_exist_ok=True)
        return
    client, bucket, prefix = _bucket(where)
    for path in saved.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(saved)}".lstrip("/"))


def main() -> None:
    """Read the command line and the variables, and save or restore."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["save", "restore"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    databases = {name: os.environ[name] for name in ("STORE", "USERS") if os.environ.get(name)}
    if "STORE" not in databases or "ARTIFACTS" not in os.environ:
        sys.exit("set $STORE and $ARTIFACTS (and $USERS, if there is a login) as for serve.sh")
    if given.what == "save":
        # Whole or not at all: what is named as asked for is a finished backup.
        if given.folder.exists():
            sys.exit(f"{given.folder} is there already")
        unfinished = given.folder.with_name(f"{given.folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, mode=0o700)
        for name, uri in databases.items():
            save_database(uri, unfinished / f"{name.lower()}.backup")
        save_files(os.environ["ARTIFACTS"], unfinished / "artifacts")
        unfinished.rename(given.folder)
    else:
        for name, uri in databases.items():
            restore_database(given.folder / f"{name.lower()}.backup", uri)
        restore_files(given.folder / "artifacts", os.environ["ARTIFACTS"])


if __name__ == "__main__":
    main()
