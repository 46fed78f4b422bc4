"""The cache of pulled zoo entries, stored by the sha256 of their manifests, and the names that they have.

    <cache folder>/zoo/objects/<sha256>/    an entry; never changed once it is there
    <cache folder>/zoo/names.json           name -> sha256 and where it came from

An entry is put in place complete, and gets its name afterwards. A process that is killed in between leaves an entry
without a name, and pulling it again adds the name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, ZooError
from ..hardware import find_device
from ..operations.operation import MODES
from ..system.resources import cache_folder, shipped
from ..system.whole_files import locked, whole_file
from .entries.files import (
    MANIFEST,
    json_bytes,
    parsed_json,
    predictor_of,
    put_in_place,
    read_manifest,
    read_plain,
    sha256_of,
    stored_files,
)
from .entries.stored import read_facts

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}/[a-z0-9][a-z0-9._-]{0,59}")
"""Form of the name of an entry, such as "a30/forest-inference"."""

_MOST_NAMES_BYTES = 4 << 20
# Limits on loading an entry, far above what is needed: the largest shipped entry takes 0.4 GB and a second.
_MOST_MEMORY_BYTES = 8 << 30
_MOST_SECONDS = 120


@dataclass(frozen=True)
class Pulled:
    """An entry in the cache: its manifest's sha256, and where it came from."""

    sha256: str
    source: str


def zoo_cache() -> Path:
    """The folder of the cache, which may not exist yet."""
    return cache_folder() / "zoo"


def object_folder(sha256: str) -> Path:
    """The folder in the cache for the entry with this manifest, whether it exists or not.

    Raises ZooError: the text is not a sha256 digest.
    """
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ZooError("this is not a sha256 digest", given=sha256[:80], allowed="64 digits from 0 to 9 and a to f")
    return zoo_cache() / "objects" / sha256


def pulled() -> dict[str, Pulled]:
    """Names of pulled entries -> what was pulled under them; empty where nothing was.

    Raises ZooError: the list of names is damaged.
    """
    path = zoo_cache() / "names.json"
    if not path.exists():
        return {}
    try:
        found = parsed_json(read_plain(path, _MOST_NAMES_BYTES), "the list of pulled entries")
        return {str(name): Pulled(str(row["sha256"]), str(row["source"])) for name, row in found.items()}
    except (ZooError, AttributeError, TypeError, KeyError) as error:
        raise ZooError(
            "the list of pulled entries is damaged", given=str(path), hint="delete the file, and pull the entries again"
        ) from error


def pulled_folder(name: str) -> Path | None:
    """Find the folder of the entry that was pulled under a name, and check its manifest; None if none was pulled.

    Raises ZooError: the folder is missing, or its manifest was changed.
    """
    row = pulled().get(name)
    if row is None:
        return None
    folder = object_folder(row.sha256)
    if sha256_of(read_plain(folder / MANIFEST)) != row.sha256:
        raise ZooError(
            "a pulled zoo entry was changed", given=str(folder), hint=f"`joulecast zoo pull {row.source} {name}`"
        )
    return folder


def ships(name: str) -> bool:
    """Whether an entry of this name ships with joulecast."""
    return NAME.fullmatch(name) is not None and (shipped("zoo") / name / MANIFEST).is_file()


def admit(files: Mapping[str, bytes], name: str, source: str, *, replace: bool = False) -> Path:
    """Check an entry from another place, and put it into the cache under a name.

    Raises ZooError: the entry is damaged, takes more time or memory than allowed, differs from its golden prediction,
    or is for another GPU or mode than its name says; or an entry of this name ships with joulecast; or the cache cannot
    be written.

    Args:
        replace: Whether it may take the name of an entry that ships with joulecast.
    """
    if ships(name) and not replace and name not in pulled():
        raise ZooError(
            "an entry of this name ships with joulecast",
            given=f"{name} from {source}",
            hint="with --replace this one takes the name, until `joulecast zoo remove`",
        )
    digest = sha256_of(files[MANIFEST])
    folder = object_folder(digest)
    manifest = read_manifest(files[MANIFEST], source)
    if NAME.fullmatch(name):
        _refuse_other_name(name, manifest, files)
    with _writing():
        if not (folder / MANIFEST).is_file():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder.parent) as scratch:
                new = put_in_place(Path(scratch) / "entry", files)
                stored_files(new)
                verify_apart(new)
                put_in_place(folder, files)
        with _locked():
            _write_names({**pulled(), name: Pulled(digest, source)})
    return folder


def _refuse_other_name(name: str, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Refuse a name with another GPU, mode or predictor than the entry has, because predictors are found by name."""
    try:
        facts = read_facts(files)
        gpu, mode = facts.get("gpu"), facts.get("mode")
        room = "any-gpu" if gpu is None else find_device(gpu).slug
    except (AttributeError, KeyError, TypeError, InputError) as error:
        raise ZooError(
            "the predictor of this zoo entry is damaged", given=name, hint="pull it again, or ask its owner"
        ) from error
    predictor = predictor_of(manifest)
    room_named, _, rest = name.partition("/")
    named_mode = next((each for each in MODES if rest.endswith(f"-{each}")), None)
    kind = rest if named_mode is None else rest.removesuffix(f"-{named_mode}")
    # A GPU's own predictors may take each other's names, so that the best one can become the default.
    # Imported here, because few names are incomplete, and recipes import everything that is fitted.
    from ..predictors.fitting.fit import RECIPES

    other_kind = gpu is None and kind in RECIPES and kind != predictor
    if room_named != room or other_kind or (gpu is not None and named_mode not in (None, mode)):
        said = f"{room}/{predictor}" + (f"-{mode}" if gpu is not None else "")
        raise ZooError(
            "the name of this zoo entry does not agree with its GPU, mode or predictor",
            given=name,
            allowed=f"such as {said}",
            hint="it was pushed under a wrong name; ask its owner",
        )


def forget(name: str) -> None:
    """Remove a name from the cache, and its entry unless that has other names.

    Raises ZooError: nothing was pulled under this name.
    """
    with _writing(), _locked():
        names = pulled()
        if name not in names:
            raise ZooError(
                "no entry was pulled under this name",
                given=name,
                allowed=", ".join(sorted(names)) or "none was pulled",
                hint="entries that ship with joulecast cannot be removed",
            )
        row = names.pop(name)
        _write_names(names)
        if row.sha256 not in {other.sha256 for other in names.values()}:
            shutil.rmtree(object_folder(row.sha256), ignore_errors=True)


def verify_apart(folder: Path) -> None:
    """Load an entry in another process with limited memory and time.

    Raises ZooError: the entry cannot be loaded there.
    """
    code = (
        "import sys\n"
        "try:\n"
        "    import resource\n"
        f"    wanted = {{resource.RLIMIT_AS: {_MOST_MEMORY_BYTES}, resource.RLIMIT_CPU: {_MOST_SECONDS}}}\n"
        "    for each, most in wanted.items():\n"
        "        hard = resource.getrlimit(each)[1]\n"  # which an administrator, or ulimit, may have set lower
        "        most = most if hard == resource.RLIM_INFINITY else min(most, hard)\n"
        "        resource.setrlimit(each, (most, most))\n"
        "except ImportError:\n"  # Windows
        "    pass\n"
        "from pathlib import Path\n"
        "from joulecast.errors import JoulecastError\n"
        "from joulecast.zoo.entries.entry import load_any\n"
        "try:\n"
        "    load_any(Path(sys.argv[1]))\n"
        "except JoulecastError as error:\n"
        "    sys.exit(str(error).split(chr(10))[0] + '; ' + (error.hint or ''))\n"
        "except MemoryError:\n"
        "    sys.exit('it takes more memory than this process may have (ulimit -v)')\n"
    )
    import subprocess  # imported here, because most commands only read entries that were checked before

    package = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    try:
        result = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code, str(folder)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
        said = result.stderr.strip().splitlines()[-1:] or [f"the process ended with {result.returncode}"]
        failed = result.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = [f"it did not load within {_MOST_SECONDS} s"], True
    if failed:
        raise ZooError(
            "this zoo entry cannot be loaded, and was not added to the cache", given=str(folder), hint=said[0][:300]
        )


def _write_names(names: Mapping[str, Pulled]) -> None:
    path = zoo_cache() / "names.json"
    with whole_file(path) as unfinished:
        unfinished.write_bytes(json_bytes({name: asdict(row) for name, row in sorted(names.items())}))


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Turn errors of the system, such as a full disk, into an error that names the cache."""
    try:
        yield
    except OSError as error:
        raise ZooError(
            "the cache of predictors cannot be written",
            given=f"{error.filename or zoo_cache()}: {error.strerror}",
            hint="make room there, or set $JOULECAST_CACHE to another folder",
        ) from error


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let only one process at a time change the names."""
    zoo_cache().mkdir(parents=True, exist_ok=True)
    with locked(zoo_cache() / ".lock"):
        yield
