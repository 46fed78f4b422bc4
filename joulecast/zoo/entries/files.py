"""Files of a zoo entry: written whole or not at all, and each compared with its sha256 before it is parsed.

A folder is not trusted, and neither is its manifest. Whatever the manifest says, limits hold on the number, names and
sizes of files and on the sizes that they unpack to, and each must be a plain file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...errors import ZooError, damaged_entry
from ...system.whole_files import exchanged

FORMAT_VERSION = 2
"""Version of the format. It increases when older entries can no longer be read."""
MANIFEST = "manifest.json"

PACKED_SUFFIX = ".z"
_PACKED = (".safetensors", ".ubj", "left_out.json", "operations.json")  # Files that deflate well.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Several times what any entry needs.
_MOST_FILES = 160
_MOST_FILE_BYTES = 64 << 20
_MOST_ENTRY_BYTES = 128 << 20
_MOST_UNPACKED_BYTES = 128 << 20
_MOST_JSON_BYTES = 8 << 20

_NEXT = "restore it, or pull it again"


def sha256_of(data: bytes) -> str:
    """Hexadecimal digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def json_bytes(value: object) -> bytes:
    """A value as JSON that is the same every time."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def parsed_json(data: bytes, what: str) -> Any:
    """Parse JSON that may come from anywhere.

    Raises ZooError: the data is not JSON, is too large or nested too deeply, or contains NaN or infinite numbers.
    """
    if len(data) > _MOST_JSON_BYTES:
        raise damaged_entry(f"{what} is larger than allowed", len(data), f"{_MOST_JSON_BYTES} bytes")
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise damaged_entry(f"{what} is damaged: not valid JSON", str(error)[:100]) from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is too large")
    return value


def library_versions() -> dict[str, str]:
    """Versions of the installed libraries that predictors are made with."""
    found = {}
    for name in ("joulecast", "numpy", "scikit-learn", "xgboost-cpu", "xgboost", "onnxruntime", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_files(
    folder: str | Path,
    files: Mapping[str, bytes],
    golden: Mapping[str, Any],
    *,
    predictor: str,
    libraries: Mapping[str, str] | None = None,
) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        files: Contents by name. Files that compress well are stored deflated.
        libraries: Versions of the libraries that it was made with; None for the installed ones.
    """
    stored = {}
    for name, data in files.items():
        packed = name.endswith(_PACKED)
        stored[name + PACKED_SUFFIX * packed] = zlib.compress(data, 9) if packed else data
    manifest = {
        "format_version": FORMAT_VERSION,
        "predictor": predictor,
        "libraries": libraries or library_versions(),
        "files": {name: {"sha256": sha256_of(data), "size_bytes": len(data)} for name, data in stored.items()},
        "golden": golden,
    }
    return put_in_place(folder, {**stored, MANIFEST: json_bytes(manifest)})


def put_in_place(folder: str | Path, files: Mapping[str, bytes]) -> Path:
    """Make a folder of these files. A folder that is already there is replaced once the new one is complete."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir(mode=0o755)
        for name, data in files.items():
            (new / name).write_bytes(data)
        if not (folder.exists() and exchanged(new, folder)):
            if folder.exists():
                folder.replace(old)
            new.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def read_plain(path: Path, most_bytes: int = _MOST_FILE_BYTES) -> bytes:
    """Read a plain file. Links, pipes and devices are not opened, since they may lead out of the folder or never end.

    Raises ZooError: the file cannot be read, is a link, a pipe or a device, or is larger than allowed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise damaged_entry("a file of this zoo entry is not a plain file", str(path))
            data = file.read(most_bytes + 1) if status.st_size <= most_bytes else b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise damaged_entry("a file of this zoo entry cannot be read", f"{path}: {reason}") from error
    if status.st_size > most_bytes or len(data) > most_bytes:
        raise damaged_entry("a file of this zoo entry is larger than allowed", str(path), f"{most_bytes} bytes")
    return data


class EntryFiles(Mapping[str, bytes]):
    """Files of an entry by name, each checked. Deflated files are unpacked when they are read."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        self._stored = stored
        self._names = {name.removesuffix(PACKED_SUFFIX): name for name in stored}

    def __getitem__(self, name: str) -> bytes:
        """The contents of a file.

        Raises ZooError: the file cannot be unpacked, or unpacks to more bytes than a file may have.
        """
        data = self._stored[self._names[name]]
        return unpacked(data, name) if self._names[name].endswith(PACKED_SUFFIX) else data

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def unpacked(data: bytes, name: str) -> bytes:
    """Unpack deflated bytes, up to the size that a file may have.

    Raises ZooError: the bytes are not deflated data, or unpack to more than that.
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, _MOST_UNPACKED_BYTES)
    except zlib.error as error:
        raise damaged_entry("a file of this zoo entry cannot be unpacked", name) from error
    if inflater.unconsumed_tail:
        raise damaged_entry(
            "a file of this zoo entry unpacks to more than is allowed", name, f"{_MOST_UNPACKED_BYTES:,} bytes"
        )
    if not inflater.eof or inflater.unused_data:
        raise damaged_entry("a file of this zoo entry is truncated, or has more bytes after its end", name)
    return found


def read_manifest(data: bytes, where: str) -> dict[str, Any]:
    """Parse a manifest and check its list of files.

    Raises ZooError: the manifest is damaged, of another format, or names files that are not allowed.
    """
    manifest = parsed_json(data, "the manifest of this zoo entry")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise damaged_entry("the manifest of this zoo entry is damaged", where)
    format_version = manifest.get("format_version")
    if type(format_version) is not int or format_version != FORMAT_VERSION:
        newer = type(format_version) is int and format_version > FORMAT_VERSION
        libraries = manifest.get("libraries")
        wrote = libraries.get("joulecast") if isinstance(libraries, dict) else None
        raise ZooError(
            "this zoo entry has another format" + (", of a newer joulecast" if newer else ""),
            given=f"{str(format_version)[:40]}, written by joulecast {str(wrote or 'of an unknown version')[:40]}",
            allowed=FORMAT_VERSION,
            hint="update joulecast"
            if newer
            else "pull it again, or train it again: `joulecast train --dataset FOLDER --recipe forest`",
        )
    files = manifest["files"]
    if len(files) > _MOST_FILES:
        raise damaged_entry("a zoo entry has more files than allowed", len(files), _MOST_FILES)
    for name, fact in files.items():
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise damaged_entry("the manifest of this zoo entry names a file outside its folder", repr(name)[:100])
        size = fact.get("size_bytes") if isinstance(fact, dict) else None
        if type(size) is not int or size < 0 or not _SHA256.fullmatch(str(fact.get("sha256"))):
            raise damaged_entry("the manifest of this zoo entry is damaged", f"{where}, {name}")
    total = sum(fact["size_bytes"] for fact in files.values())
    if total > _MOST_ENTRY_BYTES:
        raise damaged_entry("a zoo entry is larger than allowed", total, f"{_MOST_ENTRY_BYTES} bytes")
    return manifest


def stored_files(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read the manifest and all files that it names, as they are stored, and compare each with its sha256.

    Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    manifest = read_manifest(read_plain(folder / MANIFEST, _MOST_JSON_BYTES), str(folder))
    found = {}
    for name, fact in manifest["files"].items():
        found[name] = read_plain(folder / name)
        if len(found[name]) != fact["size_bytes"] or sha256_of(found[name]) != fact["sha256"]:
            raise damaged_entry("a file of this zoo entry was changed", str(folder / name))
    return manifest, found


def checked_files(folder: Path, needed: Collection[str]) -> tuple[dict[str, Any], EntryFiles]:
    """Read the manifest and the files that it names, unpacked on demand, and compare each with its sha256.

    Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    manifest, stored = stored_files(folder)
    files = EntryFiles(stored)
    missing = set(needed) - set(files)
    if missing:
        raise ZooError("this zoo entry is incomplete", given=str(folder), hint=f"missing: {', '.join(sorted(missing))}")
    return manifest, files


def predictor_of(manifest: Mapping[str, Any]) -> str:
    """Name of an entry's predictor, by which `load_any` chooses what reads the entry."""
    return str(manifest.get("predictor"))[:80]
