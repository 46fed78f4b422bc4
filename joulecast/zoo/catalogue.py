"""Finding zoo entries by GPU and mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import InputError, UnknownNameError, ZooError, unknown_name
from ..hardware import CPU, GPU, Device, find_gpu, gpus, same_boards
from ..predictors.networks.predictor import NetworkPredictor
from ..predictors.predictor import OperationPredictor
from ..system.regular_files import is_file
from ..system.resources import shipped
from .entry import Background, load_any, load_background, load_kernels
from .files import MANIFEST, StoredEntry
from .places import FolderPlace, Row
from .store import pulled, pulled_folder, ships

if TYPE_CHECKING:
    from ..predictors.contract import Shared
    from ..predictors.model.learned import OneModel
    from ..predictors.model.shared import AnyGpuPredictor
    from ..predictors.networks.on_cpu import CpuNetworkPredictor

DEFAULT_PREDICTOR = "forest"
"""The recipe of what a measured chip adds, unless the caller names another."""

ANY_GPU = "any-gpu/forest"
"""The entry for GPUs without a predictor of their own."""

KERNELS_ENTRY = "any-gpu/kernels"
"""The entry with which predictors for any GPU predict device times in half precision and below."""

CPU_FOLDERS = "cpu-"
"""Beginning of the folders of CPUs in a zoo."""

_MOST_PREDICTORS = 256  # Twice the GPUs of the catalogue, in two modes. They share what was learned, so they are small.


def entry_name(device: Device, predictor: str, mode: str) -> str:
    """Name of the entry of a GPU or CPU, a predictor and a mode: "a30/forest-inference"."""
    return f"{device.slug}/{predictor}-{mode}"


def entries(zoo: Path | None = None) -> list[str]:
    """Names of all entries of the shipped zoo, or of another."""
    return FolderPlace(zoo or shipped("zoo")).names()


def _own(device: Device, mode: str, predictor: str = DEFAULT_PREDICTOR) -> list[str]:
    """Names of the entries that were trained on measurements of a device itself, the preferred one first.

    A board that a user describes in a file has the entries of the board of the catalogue that has its figures.
    """
    boards = same_boards(device) if isinstance(device, GPU) else (device,)
    return [entry_name(each, predictor, mode) for each in boards]


def _folder(device: Device, mode: str, predictor: str | Path | None, listed: Mapping[str, Row] | None = None) -> Path:
    """Folder of the entry that a user names, or else of the device's own, or of the one for any GPU."""
    if predictor is not None and not isinstance(predictor, str | Path):
        raise InputError(
            "this is not the name of a predictor",
            given=repr(predictor)[:100],
            allowed="a zoo name, the folder of an entry, or models:/NAME@ALIAS",
            hint="`joulecast zoo list` shows what is here",
        )
    if predictor is not None:
        name = str(predictor)
        own = name if "/" in name else next(iter(_own(device, mode, name)), name)
        return _named(name) or entry_folder(own, name)
    defaults = (*_own(device, mode), *([ANY_GPU] if isinstance(device, GPU) else []))
    for name in defaults:
        if folder := _stored(name, listed):
            return folder
    names = entries()
    trained = sorted({g.aliases[0] for g in gpus().values() if any(e.startswith(f"{g.slug}/") for e in names)})
    cpus = sorted({entry.partition("/")[0] for entry in (*names, *pulled()) if entry.startswith(CPU_FOLDERS)})
    raise ZooError(
        f"no predictor for {mode} on {device.name}",
        given=defaults[0],
        allowed=f"devices with predictors of their own: {', '.join((*trained, *cpus))}",
        hint="`joulecast collect` measures a device, and `joulecast train` makes a predictor of the dataset",
    )


def _named(predictor: str) -> Path | None:
    """Folder of an entry that is named by its folder, or by a registry; None for other names."""
    if predictor.startswith("models:"):
        from .registry import registry_folder

        return registry_folder(predictor)
    return Path(predictor).resolve() if is_file(Path(predictor) / MANIFEST) else None


def _stored(name: str, listed: Mapping[str, Row] | None = None) -> Path | None:
    """Folder of an entry that was pulled or ships; None without one. Listing the zoo would take longer."""
    return pulled_folder(name, listed) or (shipped("zoo") / name if ships(name) else None)


def entry_folder(name: str, given: str | None = None) -> Path:
    """The folder of an entry that was pulled, ships with joulecast, lies in a folder, or is in a registry.

    Raises UnknownNameError: there is none. Raises ZooError: what was pulled under this name is damaged.

    Args:
        name: Name of the entry.
        given: What the user gave, where it is not the whole name; None if it is.
    """
    folder = _named(name) or _stored(name)
    if folder is None:
        hint = "the folder of an entry or models:/NAME@ALIAS is allowed, too; `joulecast zoo pull` fetches others"
        error = unknown_name("predictor", name, {*entries(), *pulled()}, hint=hint)
        said = error.given if given is None else repr(given)
        raise UnknownNameError(error.what, given=said, allowed=error.allowed, hint=error.hint)
    return folder


def find_background(gpu: str | GPU, mode: str, predictor: str | Path | None = None) -> Background:
    """Training data and native model of the predictor that `find_predictor` finds; explanations need them."""
    return load_background(_folder(find_gpu(gpu), mode, predictor).resolve())


def _load(folder: Path, load: Callable[[Path], Any] = load_any) -> Any:
    """Load an entry; the last eight stay in memory until they change."""
    return _loaded(load, folder, (folder / MANIFEST).stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _loaded(load: Callable[[Path], Any], folder: Path, stamp: int) -> Any:
    return load(folder)


def find_predictor(
    gpu: str | GPU, mode: str, predictor: str | Path | None = None, *, listed: Mapping[str, Row] | None = None
) -> NetworkPredictor:
    """Load the predictor of a GPU and mode; the last eight stay in memory.

    Raises UnknownNameError: no such GPU or predictor. Raises ZooError: no predictor for this GPU and mode, or the entry
    is damaged. Raises InputError: the predictor named is for another GPU or mode, or predicts no networks.

    Args:
        predictor: A zoo name ("forest", "a30/forest-training", "any-gpu/forest"), the folder of an entry, a model of
            an MLflow registry ("models:/joulecast-a30-inference@champion"), or None for the default, which is the GPU's
            own predictor or, where it has none, the predictor for any GPU. An entry that was pulled takes precedence
            over a shipped entry of the same name.
        listed: What `pulled` returned, for questions about many GPUs; None to read it again.
    """
    gpu = find_gpu(gpu)
    folder = _folder(gpu, mode, predictor, listed)
    found = _load(folder)
    if isinstance(found, NetworkPredictor):
        own = found.operations
        if (own.gpu.board, own.mode) != (gpu.board, mode):
            raise _for_another(found.name, own.gpu, own.mode, gpu, mode)
        return _of_chip(found, gpu)
    # Imported here, because half of the package would have to be imported for a GPU with a predictor of its own.
    from ..predictors.model.shared import AnyGpuPredictor
    from ..predictors.networks.on_cpu import CpuNetworkPredictor

    if isinstance(found, AnyGpuPredictor):
        return _on_gpu(found, find_kernels(listed), gpu, mode)
    if isinstance(found, CpuNetworkPredictor):
        raise _for_another(found.name, found.operations.cpu, found.operations.mode, gpu, mode)
    raise InputError(
        f"{StoredEntry.of(folder).card['name']} predicts device times of kernels only, not networks",
        given=str(predictor),
        allowed=f"a predictor of networks, such as {ANY_GPU}, which uses these device times",
    )


def predicts(mode: str, gpu: GPU, predictor: str | Path | None) -> bool:
    """Whether a predictor, as `find_predictor` takes it, predicts a mode: what loops of a chip add is of one mode."""
    found = _load(_folder(gpu, mode, predictor))
    return not isinstance(found, NetworkPredictor) or found.operations.mode == mode


def find_cpu_predictor(cpu: CPU, mode: str, predictor: str | Path | None = None) -> CpuNetworkPredictor:
    """Load the predictor of a CPU and mode.

    Raises UnknownNameError: no such predictor. Raises ZooError: this model of CPU was not measured, or the entry is
    damaged. Raises InputError: the predictor named is for another device or mode.

    Args:
        predictor: As in `find_predictor`; None for the one that was trained on this model of CPU.
    """
    from ..predictors.networks.on_cpu import CpuNetworkPredictor

    folder = _folder(cpu, mode, predictor)
    found = _load(folder)
    if not isinstance(found, CpuNetworkPredictor):
        raise InputError(
            f"{StoredEntry.of(folder).card['name']} predicts GPUs",
            given=cpu.name,
            allowed=f"an entry of {cpu.slug}",
            hint="omit the predictor",
        )
    own = found.operations
    if (own.cpu.slug, own.mode) != (cpu.slug, mode):
        raise _for_another(found.name, own.cpu, own.mode, cpu, mode)
    return found


def _for_another(name: str, device: Device, its_mode: str, asked: Device, mode: str) -> InputError:
    return InputError(
        f"{name} is a predictor for another {'GPU' if isinstance(asked, GPU) else 'CPU'} or mode",
        given=f"{asked.name}, {mode}",
        allowed=f"{device.name}, {its_mode}",
    )


# The same object each time: what was predicted of a network is cached by predictor (networks/prepared.py).
@lru_cache(maxsize=_MOST_PREDICTORS)
def _on_gpu(entry: AnyGpuPredictor, kernels: OneModel | None, gpu: GPU, mode: str) -> NetworkPredictor:
    return _with_kernels(entry, kernels).on(gpu, mode)


# The same object each time: predictors of GPUs that share it are asked at once.
@lru_cache(maxsize=4)
def _with_kernels(entry: AnyGpuPredictor, kernels: OneModel | None) -> AnyGpuPredictor:
    return replace(entry, kernels=kernels)


def find_kernels(listed: Mapping[str, Row] | None = None) -> OneModel | None:
    """Load the entry of device times of kernels in half precision and below; None where the zoo has none.

    A pulled entry takes precedence over the shipped one. Raises ZooError: the entry is damaged.
    """
    folder = _stored(KERNELS_ENTRY, listed)
    return None if folder is None else _load(folder, load_kernels)


# The same object each time, as in `_on_gpu`.
@lru_cache(maxsize=16)
def _of_chip(entry: NetworkPredictor, gpu: GPU) -> NetworkPredictor:
    """What loops of a GPU add to what all GPUs share; the GPU may be the same board under another name."""
    mode = entry.operations.mode
    parts = {mode: entry}
    if mode == "training":
        # Forwards limit what training takes, and are parts of it where a backward computes them again.
        folder = next(filter(None, map(_stored, _own(gpu, "inference"))), None)
        parts |= {} if folder is None else {"inference": cast(NetworkPredictor, _load(folder))}
    measured = {of_mode: part.operations.chips[of_mode] for of_mode, part in parts.items()}
    chips = {of_mode: replace(chip, gpu=gpu) for of_mode, chip in measured.items()}
    return replace(
        entry,
        operations=OperationPredictor(gpu, mode, _shared_by_all, chips),
        find_shared=lambda: find_predictor(gpu, mode, ANY_GPU),
    )


def _shared_by_all() -> Shared:
    """What all GPUs share, for what was not measured on one; physics alone where the zoo has no such entry."""
    from ..predictors.model.shared import AnyGpuPredictor, nothing_shared

    folder = _stored(ANY_GPU)
    found = None if folder is None else _load(folder)
    return _with_kernels(found, find_kernels()).shared if isinstance(found, AnyGpuPredictor) else nothing_shared()
