"""The public function for many networks at once: predict_many, here or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..extraction import Job, network_of_job
from ..hardware import GPU, find_gpu
from ..hardware.host import Host, find_host
from ..operations.columns import Calls, Columns, is_table, networks_of
from ..predictors.board.profile import Calibrated, find_profile
from ..predictors.networks.composition import Execution
from ..predictors.networks.many import NetworkPredictions, batched, predict_networks
from ..predictors.physics.precisions import refuse_precisions
from ..system.cluster import call_on_workers, on_cluster
from ..zoo import find_predictor

if TYPE_CHECKING:
    from ..extraction.sources import InputShape, Model


def predict_many(
    networks: Iterable[Model] | Columns,
    gpu: str | GPU | Sequence[str | GPU],
    clock: float | Sequence[float] | None = None,
    *,
    input_shape: InputShape | None = None,
    power_limit_w: float | None = None,
    mode: str = "inference",
    precision: str = "default",
    predictor: str | Path | None = None,
    composition: str | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    level: float | None = None,
    cluster: str | None = None,
) -> NetworkPredictions:
    """Predict the totals of many networks, such as the thousands of candidates of an architecture search.

    The totals are those of `predict`, to the last bit. Operations that networks share are predicted once. For a single
    network, `predict` also gives notes and the cost of each operation.

    Args:
        networks: Models as `extract` takes them, such as lists of pairs of Operation and count. They are read one
            after the other and not stored, so a generator may yield more of them than fit into memory. Or a table (of
            pandas, polars or Arrow, or a dictionary of columns), which is quicker: the columns that
            `Network.to_frame` writes, and `network` with a name for each row; the rows of a network follow each other.
        gpu: Name or alias from the catalogue, such as "A30", or the path of a TOML file that describes a GPU; or a list
            of these.
        clock: Graphics clock in MHz, or several, which each GPU must be able to hold; None for each GPU's default.
        input_shape: Shape of the input of all of them, batch first; None for Networks, their files, or lists.
        power_limit_w: Power cap in watts; None for the board's default.
        mode: "inference" or "training"; that of all networks.
        precision: "default", fp32, tf32, fp16 or bf16.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        composition: "overlap" of host and device, or plain "sum"; None for overlap.
        execution: How the networks are run; see `predict`.
        host: The machine that launches operations; see `predict`.
        calibration: What was measured on the board; see `predict`.
        level: Share of networks that lie within their intervals, such as 0.9; None for no intervals, which take some
            milliseconds of each network.
        cluster: Address of Dask's scheduler, such as tcp://host:8786, whose workers extract and predict; None for this
            process. The workers must have the same version of joulecast and the same predictors.

    Returns:
        Arrays with one value per network, in their order; with several GPUs or clocks, one for each network on each GPU
        at each clock. A network of which too much is not covered has NaN, and `problems` says why.

    Raises:
        UnknownNameError, InputError, ZooError, ExtractionError, MissingDependencyError: See `predict`.

    Examples:
        >>> predictions = predict_many(["resnet18", "resnet50", "alexnet"], "A30", input_shape=(32, 3, 224, 224))
        >>> predictions.names[predictions.energy_j.argmin()]
        'alexnet'
    """
    job = _ManyJob.of(locals())
    boards = [find_gpu(each) for each in (gpu if isinstance(gpu, Sequence) and not isinstance(gpu, str) else [gpu])]
    clocks = [*clock] if isinstance(clock, Iterable) else [clock]
    if not boards or not clocks:
        raise InputError("no GPU or no clock is given", given=f"gpu={gpu!r}, clock={clock!r}", allowed="at least one")
    run = Execution.of(execution, find_host(host), find_profile(calibration))
    predicted = partial(job.predicted, boards, clocks, run, level)
    if cluster is None:
        return predicted(networks)
    with on_cluster(cluster):
        pieces = networks_of(networks) if is_table(networks) else batched(networks)
        parts = call_on_workers(predicted, ((piece,) for piece in pieces))
        # The prediction of no networks says what all parts have in common.
        return NetworkPredictions.joined([predicted(()), *parts])


@dataclass(frozen=True)
class _ManyJob(Job):
    """What is asked about all of many networks. It can be sent to a worker of a cluster."""

    def predicted(
        self,
        gpus: Sequence[GPU],
        clocks: Sequence[float | None],
        run: Execution,
        level: float | None,
        networks: Iterable[Model] | Columns | Calls,
    ) -> NetworkPredictions:
        """The totals of networks, which are extracted one after the other."""
        predictors = [find_predictor(gpu, self.mode, self.predictor).under(run) for gpu in gpus]
        pieces, cap_w, way = self._pieces(gpus, networks), self.power_limit_w, self.composition
        return predict_networks(predictors, pieces, clocks, cap_w, composition=way, level=level)

    def _pieces(self, gpus: Sequence[GPU], networks: Iterable[Model] | Columns | Calls) -> Iterator[Calls]:
        if isinstance(networks, Calls):
            pieces: Iterable[Calls] = [networks]
        elif is_table(networks):
            pieces = networks_of(networks)
        else:
            listed = (network_of_job(replace(self, model=model)) for model in networks)
            pieces = map(Calls.of, batched(listed))
        for calls in pieces:
            for gpu in gpus:
                refuse_precisions(gpu, calls.operations)
            yield calls
