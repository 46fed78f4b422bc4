"""Files of a zoo entry: written whole or not at all, and each compared with its sha256 before it is parsed."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..errors import ZooError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

_MOST_BYTES = 256 * 1024 * 1024


def sha256_of(data: bytes) -> str:
    """Hexadecimal digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def json_bytes(value: object) -> bytes:
    """A value as JSON that is the same every time."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def library_versions() -> dict[str, str]:
    """Versions of what a predictor was made with."""
    found = {}
    for name in (
        "joulecast",
        "numpy",
        "scikit-learn",
        "skl2onnx",
        "xgboost-cpu",
        "xgboost",
        "onnxmltools",
        "onnx",
        "onnxruntime",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_files(folder: str | Path, files: Mapping[str, bytes], golden: Mapping[str, Any]) -> Path:
    """Write an entry; what lay in its place is replaced once the new one is whole.

    Args:
        folder: Where, such as zoo/a30/forest-inference.
        files: Contents by name.
        golden: A small prediction, to be made again when the entry is loaded.
    """
    manifest = {
        "format_version": FORMAT_VERSION,
        "libraries": library_versions(),
        "files": {name: {"sha256": sha256_of(data), "size_bytes": len(data)} for name, data in files.items()},
        "golden": golden,
    }
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        for name, data in {**files, MANIFEST: json_bytes(manifest)}.items():
            (temporary / name).write_bytes(data)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ZooError("a file of this zoo entry is larger than any can be", given=str(path))
        return path.read_bytes()
    except OSError as error:
        raise ZooError("a file of this zoo entry cannot be read", given=str(path), hint=error.strerror) from error


def checked_files(folder: Path, needed: Collection[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest, and the files that it names, each as it was when it was written.

    Args:
        folder: Of the entry.
        needed: Files without which it is of no use.

    Raises:
        ZooError: Missing, damaged, changed, or of another format.
    """
    try:
        manifest = json.loads(_read(folder / MANIFEST))
        format_version, facts = manifest["format_version"], manifest["files"]
        expected = {name: fact["sha256"] for name, fact in facts.items()}
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ZooError(
            "the manifest of this zoo entry is damaged", given=str(folder), hint="restore or reinstall it"
        ) from error
    if format_version != FORMAT_VERSION:
        raise ZooError(
            "this zoo entry has another format",
            given=format_version,
            allowed=FORMAT_VERSION,
            hint="update joulecast, or train it again",
        )
    files = {}
    for name, sha256 in expected.items():
        if Path(name).name != name:
            raise ZooError("the manifest of this zoo entry names a file outside its folder", given=name)
        files[name] = _read(folder / name)
        if sha256_of(files[name]) != sha256:
            raise ZooError(
                "a file of this zoo entry was changed", given=str(folder / name), hint="restore or reinstall it"
            )
    missing = set(needed) - files.keys()
    if missing:
        raise ZooError("this zoo entry is incomplete", given=str(folder), hint=f"missing: {', '.join(sorted(missing))}")
    return manifest, files


def disagreement(folder: Path, manifest: Mapping[str, Any]) -> ZooError:
    """The error for an entry whose golden prediction does not come out again."""
    return ZooError(
        "this zoo entry predicts otherwise than when it was made",
        given=str(folder),
        hint=f"made with {manifest.get('libraries')}; check onnxruntime, or train it again",
    )
