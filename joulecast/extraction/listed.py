"""Networks whose operations are listed already: a Network, a list of operations, or a file that holds one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from ..operations.inputs import Inputs, shape_text
from ..operations.network import Network
from ..operations.operation import Operation
from .job import Job


def listed_network(network: Network, job: Job) -> Network:
    """A network that was extracted before, in the mode and precision that are asked for.

    Args:
        network: The network.
        job: Shape, mode and precision that are asked for. What only extraction can heed has to be None.

    Raises:
        InputError: Another shape is asked for, or an argument that only extraction can heed.
    """
    _refuse_extraction_options(job)
    return _as_asked(_unchanged(network, job.input_shape), job.mode, job.precision)


def network_of_pairs(pairs: Sequence[Any], job: Job) -> Network:
    """The network of a list of operations with counts, in the mode and precision that are asked for.

    Args:
        pairs: Operations, each with its count.
        job: Mode and precision that are asked for, as for `listed_network`.

    Raises:
        InputError: An item is not such a pair, or an argument is given that only extraction can heed.
    """
    _refuse_extraction_options(job)
    return _as_asked(Network.of(map(_pair, pairs)), job.mode, job.precision)


def _pair(item: Any) -> tuple[Operation, int]:
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Operation):
        return item[0], item[1]
    raise InputError(
        "a list of operations holds pairs of Operation and count",
        given=repr(item)[:200],
        allowed='such as [(Operation("relu", [(8, 64)]), 3)]',
    )


def _refuse_extraction_options(job: Job) -> None:
    """Refuse an optimizer, operators and assumptions for operations that were listed before.

    Raises:
        InputError: One of them is given.
    """
    for name in ("optimizer", "operators", "assume"):
        if getattr(job, name) is not None:
            raise InputError(
                "a list of operations is complete",
                given=f"{name} together with operations",
                hint="omit it, or extract the model with it",
            )


def _unchanged(network: Network, input_shape: Any) -> Network:
    """Check that a network that was extracted before is requested at the same input shape, and return it.

    Raises:
        InputError: Another shape is requested.
    """
    if input_shape is not None and network.input_shape is not None:
        asked, listed = Inputs.of(input_shape), Inputs.of(network.input_shape)
        if [item.shape for item in asked.all] != [item.shape for item in listed.all]:
            raise InputError(
                "a network has its input shape already",
                given=shape_text(asked.shape),
                allowed=shape_text(listed.shape),
                hint="leave the shape out, or extract the model again",
            )
    return network


def _as_asked(network: Network, mode: str, precision: str) -> Network:
    """A given network in the requested mode and precision; the default precision leaves that of each operation."""
    if mode == network.mode == "inference" or network.mode == "training":
        if precision == "default":
            return network
        mode = network.mode
    return network.replace(mode=mode, precision=None if precision == "default" else precision)
