"""Loading an entry of any form, which its manifest names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...errors import ZooError
from ...predictors.networks.network_predictor import NetworkPredictor
from ...predictors.regressors.forms import ONE_GPU_FORMS
from .entry import read_own
from .files import predictor_of
from .stored import Stored, golden_values, refusing_damage, require_agreement, stored_entry

if TYPE_CHECKING:
    from ...predictors.cpu.network import CpuNetworkPredictor
    from .any_gpu_entry import AnyGpuEntry
    from .kernels_entry import KernelsEntry

Loaded: TypeAlias = "NetworkPredictor | AnyGpuEntry | KernelsEntry | CpuNetworkPredictor"
"""What an entry becomes when it is loaded."""
Form = TypeVar("Form")


def load_any(folder: str | Path) -> Loaded:
    """Load an entry with any kind of predictor, and check it.

    Raises:
        ZooError: Missing, damaged, changed, of another format, or of a predictor that this joulecast does not know; or
            its golden prediction comes out differently.
    """
    loaded, stored, again = read_entry(folder)
    require_agreement(stored, golden_values(again, stored.golden))
    return loaded


def load_entry(folder: str | Path, form: type[Form] = NetworkPredictor) -> Form:  # type: ignore[assignment]
    """Load an entry of one form, and check it.

    Args:
        folder: Folder of the entry.
        form: What it becomes when it is loaded: by default the predictor of one GPU.

    Raises:
        ZooError: As for `load_any`, or the entry is of another form.
    """
    loaded = load_any(folder)
    if not isinstance(loaded, form):
        raise ZooError(
            "this zoo entry is of another form",
            given=f"{folder}: {type(loaded).__name__}",
            allowed=form.__name__,
            hint="`joulecast zoo show` describes an entry",
        )
    return loaded


def read_entry(folder: str | Path) -> tuple[Loaded, Stored, dict[str, Any]]:
    """Read an entry without comparing its golden prediction.

    Returns:
        What it becomes, its files, and the golden prediction as it comes out now.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    stored = stored_entry(folder)
    predictor = predictor_of(stored.manifest)
    readers = {} if predictor in ONE_GPU_FORMS else _readers()
    if predictor not in {*ONE_GPU_FORMS, *readers}:
        raise ZooError(
            "this version of joulecast does not know the predictor of this zoo entry",
            given=predictor,
            allowed=", ".join([*ONE_GPU_FORMS, *readers]),
            hint="update joulecast",
        )
    with refusing_damage(stored.folder):
        loaded, again = readers.get(predictor, read_own)(stored)
    return loaded, stored, again


def _readers() -> Mapping[str, Callable[[Stored], tuple[Loaded, dict[str, Any]]]]:
    # Imported here, because half of the package would have to be imported for a GPU with a predictor of its own.
    from ...predictors.fitting.fit import ANY_GPU_FORMS
    from .any_gpu_entry import read_any_gpu
    from .cpu_entry import CPU_PREDICTOR, read_cpu
    from .kernels_entry import KERNELS_PREDICTOR, read_kernels

    return {**dict.fromkeys(ANY_GPU_FORMS, read_any_gpu), KERNELS_PREDICTOR: read_kernels, CPU_PREDICTOR: read_cpu}
