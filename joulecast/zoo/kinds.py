"""The table of predictors that entries hold: how each kind is read and written, and what its golden samples compare.

What an entry holds besides its card and its golden samples is particular to its kind of predictor, whose own code reads
and writes it. That code is imported when an entry of the kind is read: with a predictor of its own, a GPU needs half of
the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..checked import name
from ..errors import ZooError
from ..hardware import find_gpu
from ..operations.operation_list import OperationList
from ..predictors.contract import Shared
from ..predictors.networks.predictor import NetworkPredictor
from ..predictors.regressors.fitted_trees import ONE_GPU_FORMS
from .files import StoredEntry
from .golden import Sample

if TYPE_CHECKING:
    from ..predictors.model.learned import OneModel
    from ..predictors.model.shared import AnyGpuPredictor
    from ..predictors.networks.on_cpu import CpuNetworkPredictor

KERNELS_PREDICTOR, CPU_PREDICTOR = "kernels", "cpu"
"""What manifests of kernels and of CPUs name as their predictor. The recipe of a CPU's stands in its card."""


class Kind(NamedTuple):
    """What is particular to entries of a kind of predictor.

    Args:
        read: Reads the predictor of an entry. It raises ZooError, InputError, LookupError, TypeError or ValueError if
            something else is stored, and runs no code from the files.
        golden: What the predictor says of a sample: name of a column -> values of shape (operations,).
        on: The predictor of networks on the GPU of this name in a mode; both are ignored by predictors of one device.
            None for a kind that predicts no networks.
        write: Facts and files of a predictor, as `read` reads them.
    """

    read: Callable[[StoredEntry], Any]
    golden: Callable[[Any, Sample], Mapping[str, FloatArray]]
    on: Callable[[Any, str, str], NetworkPredictor | CpuNetworkPredictor] | None
    write: Callable[[Any], tuple[dict[str, Any], dict[str, bytes]]] = lambda predictor: predictor.to_files()


def name_of(stored: StoredEntry) -> str:
    """The name of an entry, as its card states it. Raises KeyError, TypeError, ValueError: it is no name."""
    return name(stored.card["name"])


def nothing_shared() -> Shared:
    """Physics alone, for what was not measured on a chip: golden samples need no more than its loops."""
    from ..predictors.model.shared import nothing_shared

    return nothing_shared()


def _read_chip(stored: StoredEntry) -> NetworkPredictor:
    regressor = ONE_GPU_FORMS[stored.predictor].from_files
    return NetworkPredictor.from_files(name_of(stored), stored.facts, stored, regressor, nothing_shared)


def _loops(predictor: Any, sample: Sample) -> dict[str, FloatArray]:
    """Seconds and, where it was measured, power of operations in loops."""
    found = predictor.operations.predict(sample.operations)
    known = {"time_s": found.time_s, "power_w": found.power_w}
    return {name: values for name, values in known.items() if not np.isnan(values).all()}


def _read_cpu(stored: StoredEntry) -> CpuNetworkPredictor:
    from ..predictors.networks.on_cpu import CpuNetworkPredictor

    regressor = ONE_GPU_FORMS[stored.facts["recipe"]].from_files
    return CpuNetworkPredictor.from_files(name_of(stored), stored.facts, stored, regressor)


def _read_any_gpu(stored: StoredEntry) -> AnyGpuPredictor:
    from ..predictors.fitting.forms import ANY_GPU_FORMS
    from ..predictors.model.shared import AnyGpuPredictor

    if stored.predictor not in ANY_GPU_FORMS:
        raise ZooError(
            "this version of joulecast does not know the predictor of this zoo entry",
            given=stored.predictor,
            allowed=", ".join((*KINDS, *ANY_GPU_FORMS)),
            hint="update joulecast",
        )
    residual_model = ANY_GPU_FORMS[stored.predictor].from_files
    return AnyGpuPredictor.from_files(name_of(stored), stored.facts, stored, residual_model)


def _without_kernels(predictor: AnyGpuPredictor, sample: Sample) -> dict[str, FloatArray]:
    """Seconds and power on a GPU by what the entry itself has learned."""
    from ..predictors.model.shared import SharedByAll

    alone = SharedByAll(predictor.learned).on(find_gpu(sample.gpu), sample.operations[0].mode)
    found = alone.predict(sample.operations)
    return {"device_time_s": found.device_time_s, "power_w": found.power_w}


def _read_kernels(stored: StoredEntry) -> OneModel:
    from ..predictors.model.stored import one_model_from_files

    return one_model_from_files(stored.facts, stored)


def _write_kernels(model: OneModel) -> tuple[dict[str, Any], dict[str, bytes]]:
    from ..predictors.model.stored import one_model_to_files

    return one_model_to_files(model)


def _device_times(model: OneModel, sample: Sample) -> dict[str, FloatArray]:
    return {"device_s": model.device_s(OperationList(sample.operations), find_gpu(sample.gpu))}


ANY_GPU = Kind(_read_any_gpu, _without_kernels, lambda predictor, gpu, mode: predictor.on(find_gpu(gpu), mode))
"""Entries for any GPU, of each recipe of `ANY_GPU_FORMS`."""

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(ONE_GPU_FORMS, Kind(_read_chip, _loops, lambda predictor, gpu, mode: predictor)),
    CPU_PREDICTOR: Kind(_read_cpu, _loops, lambda predictor, gpu, mode: predictor),
    KERNELS_PREDICTOR: Kind(_read_kernels, _device_times, None, _write_kernels),
}
"""Predictor that a manifest names -> its kind; all others are `ANY_GPU`."""


def kind_of(predictor: str) -> Kind:
    """The kind of a predictor that a manifest names."""
    return KINDS.get(predictor, ANY_GPU)
