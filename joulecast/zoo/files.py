"""Files of a zoo entry: written whole or not at all, and each compared with its sha256 before it is parsed.

A folder is not trusted, and neither is its manifest. Whatever the manifest says, limits hold on the number, names and
sizes of files and on the sizes that they unpack to, and each must be a plain file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from ..errors import ZooError, damaged_entry
from ..system.regular_files import loaded_json, read_regular
from ..system.whole_files import exchanged

FORMAT_VERSION = 3
"""Version of the format. It increases when older entries can no longer be read."""
MANIFEST = "manifest.json"
CARD, README = "card.json", "README.md"
"""Names of the files that hold the card, for programs and for people."""
FACTS = "predictor.json"
"""What a predictor needs besides arrays."""
LEFT_OUT, OPERATIONS = "left_out.json", "operations.json"
"""Errors on operations that were left out; and what a predictor was trained on, without the measurements of others."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}/[a-z0-9][a-z0-9._-]{0,119}")
"""Form of the name of an entry, such as "a30/forest-inference"."""

_PACKED_SUFFIX = ".z"
_PACKED = (".safetensors", ".ubj", LEFT_OUT, OPERATIONS)  # Files that deflate well.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Several times what any entry needs.
_MOST_FILES = 160
_MOST_FILE_BYTES = 64 << 20
_MOST_ENTRY_BYTES = 128 << 20
_MOST_UNPACKED_BYTES = 128 << 20
_MOST_JSON_BYTES = 8 << 20


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
        return loaded_json(data)
    except (ValueError, RecursionError) as error:
        raise damaged_entry(f"{what} is damaged: not valid JSON", str(error)[:100]) from error


def library_versions() -> dict[str, str]:
    """Versions of the installed libraries that predictors are made with."""
    installed = {}
    for name in ("joulecast", "numpy", "scikit-learn", "xgboost-cpu", "xgboost", "onnxruntime", "torch"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def write_files(folder: str | Path, files: Mapping[str, bytes], golden: Mapping[str, Any], *, predictor: str) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        files: Contents by name. Files that compress well are stored deflated.
        golden: A few operations, and what they are predicted to cost.
        predictor: What reads the entry (`load_any`).
    """
    stored = {}
    for name, data in files.items():
        packed = name.endswith(_PACKED)
        stored[name + _PACKED_SUFFIX * packed] = zlib.compress(data, 9) if packed else data
    manifest = {
        "format_version": FORMAT_VERSION,
        "predictor": predictor,
        "libraries": library_versions(),
        "files": {name: _fact(data) for name, data in stored.items()},
        "golden": golden,
    }
    return put_in_place(folder, {**stored, MANIFEST: json_bytes(manifest)})


def _fact(data: bytes) -> dict[str, Any]:
    """What a manifest says of a file."""
    return {"sha256": sha256_of(data), "size_bytes": len(data)}


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
    return read_regular(path, most_bytes, "a file of this zoo entry", ZooError, follow_links=False)


@dataclass(frozen=True, eq=False)
class StoredEntry(Mapping[str, bytes]):
    """The files of an entry by name, each compared with its sha256. Deflated files are unpacked when they are read.

    Args:
        where: Where it was read from, for messages.
        files: Contents as they are stored, with the manifest.
    """

    where: str
    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, folder: str | Path) -> Self:
        """Read the entry in a folder.

        Raises ZooError: the entry is missing, damaged, changed, or of another format.
        """
        return cls.read(lambda name, most_bytes: read_plain(Path(folder) / name, most_bytes), str(folder))

    @classmethod
    def read(cls, file: Callable[[str, int], bytes | None], where: str) -> Self:
        """Read the entry whose files a function gives, or None, by their names and the most bytes that they may have.

        Raises ZooError: the entry is missing, damaged, changed, or of another format.
        """

        def required(name: str, most_bytes: int) -> bytes:
            data = file(name, most_bytes)
            if data is None:
                raise damaged_entry("a file of this zoo entry is missing", f"{where}/{name}")
            return data

        files = {MANIFEST: required(MANIFEST, _MOST_JSON_BYTES)}
        manifest = read_manifest(files[MANIFEST], where)
        for name, fact in manifest["files"].items():
            files[name] = required(name, min(fact["size_bytes"], _MOST_FILE_BYTES))
            if _fact(files[name]) != {"sha256": fact["sha256"], "size_bytes": fact["size_bytes"]}:
                raise damaged_entry("a file of this zoo entry was changed", f"{where}/{name}")
        return cls(where, manifest, files)

    @cached_property
    def _stored_names(self) -> Mapping[str, str]:
        return {name.removesuffix(_PACKED_SUFFIX): name for name in self.manifest["files"]}

    def __getitem__(self, name: str) -> bytes:
        """The contents of a file.

        Raises ZooError: there is no such file, it cannot be unpacked, or unpacks to more bytes than a file may have.
        """
        stored = self._stored_names.get(name)
        if stored is None:
            raise damaged_entry("this zoo entry is incomplete", f"{self.where}, missing: {name}")
        data = self.files[stored]
        if not stored.endswith(_PACKED_SUFFIX):
            return data
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(data, _MOST_UNPACKED_BYTES)
        except zlib.error as error:
            raise damaged_entry("a file of this zoo entry cannot be unpacked", name) from error
        if inflater.unconsumed_tail:
            raise damaged_entry(
                "a file of this zoo entry unpacks to more than is allowed", name, f"{_MOST_UNPACKED_BYTES:,} bytes"
            )
        if not inflater.eof or inflater.unused_data:
            raise damaged_entry("a file of this zoo entry is truncated, or has more bytes after its end", name)
        return plain

    def __contains__(self, name: object) -> bool:
        return name in self._stored_names

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored_names)

    def __len__(self) -> int:
        return len(self._stored_names)

    @property
    def golden(self) -> Any:
        """The golden prediction as it was when the entry was made."""
        return self.manifest["golden"]

    @property
    def predictor(self) -> str:
        """Name of the predictor, by which `load_any` chooses what reads the entry."""
        return str(self.manifest.get("predictor"))[:80]

    @cached_property
    def card(self) -> Any:
        """The card. Raises ZooError: it is not a JSON object."""
        card = parsed_json(self[CARD], "the card of this zoo entry")
        if not isinstance(card, dict):
            raise damaged_entry("the card of this zoo entry is damaged", self.where)
        return card

    @cached_property
    def facts(self) -> Any:
        """What the predictor needs besides arrays. Raises ZooError: it is not JSON."""
        return parsed_json(self[FACTS], "the predictor of this zoo entry")

    @property
    def sha256(self) -> str:
        """Digest of the manifest, which identifies the entry."""
        return sha256_of(self.files[MANIFEST])

    def replace(self, files: Mapping[str, bytes], **changed: Any) -> bool:
        """Replace files, and values of the manifest, of the entry in a folder. Returns whether anything changed."""
        if not changed and all(self.files.get(name) == data for name, data in files.items()):
            return False
        facts = {**self.manifest["files"], **{name: _fact(data) for name, data in files.items()}}
        manifest = json_bytes({**self.manifest, "files": facts, **changed})
        put_in_place(self.where, {**self.files, **files, MANIFEST: manifest})
        return True


def read_manifest(data: bytes, where: str) -> dict[str, Any]:
    """Parse a manifest and check its list of files.

    Raises ZooError: the manifest is damaged, of another format, or names files that are not allowed.
    """
    manifest = parsed_json(data, "the manifest of this zoo entry")
    damaged = "the manifest of this zoo entry is damaged"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise damaged_entry(damaged, where)
    found = manifest.get("format_version")
    if type(found) is not int or found != FORMAT_VERSION:
        newer = type(found) is int and found > FORMAT_VERSION
        libraries = manifest.get("libraries")
        wrote = libraries.get("joulecast") if isinstance(libraries, dict) else None
        raise ZooError(
            "this zoo entry has another format" + (", of a newer joulecast" if newer else ""),
            given=f"{str(found)[:40]}, written by joulecast {str(wrote or 'of an unknown version')[:40]}",
            allowed=FORMAT_VERSION,
            hint="update joulecast"
            if newer
            else "pull it again, or train it again: `joulecast train --dataset FOLDER --recipe forest`",
        )
    files = manifest["files"]
    if len(files) > _MOST_FILES:
        raise damaged_entry("a zoo entry has more files than allowed", len(files), _MOST_FILES)
    for name, fact in files.items():
        if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
            raise damaged_entry("the manifest of this zoo entry names a file outside its folder", repr(name)[:100])
        size = fact.get("size_bytes") if isinstance(fact, dict) else None
        if type(size) is not int or size < 0 or not _SHA256.fullmatch(str(fact.get("sha256"))):
            raise damaged_entry(damaged, f"{where}, {name}")
    total = sum(fact["size_bytes"] for fact in files.values())
    if total > _MOST_ENTRY_BYTES:
        raise damaged_entry("a zoo entry is larger than allowed", total, f"{_MOST_ENTRY_BYTES} bytes")
    return manifest
