"""Groups that are held out together: an operation with all its variants, a network with its whole family."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...operations.operation import MODES, Operation

_FAMILIES: Mapping[str, str] = {
    "resnext": "resnet",
    "wide_resnet": "resnet",
    "googlenet": "inception",
}
"""Beginning of a network's name -> its family, where the family's name is not that beginning."""


def network_family(name: str) -> str:
    """The family of a network: "resnet" for resnet18, resnext50_32x4d and wide_resnet50_2, "swin" for swin_v2_t.

    Networks of a family share their blocks, so that one reveals much about the others. The family is the first word of
    the name, without a library's prefix ("timm/") and without numbers.
    """
    bare = name.rsplit("/", 1)[-1].lower()
    for beginning, family in _FAMILIES.items():
        if bare.startswith(beginning):
            return family
    letters = re.match(r"[a-z]+", bare)
    return letters.group() if letters else bare


def alike(operation: Operation) -> Operation:
    """A key that is the same for an operation in both modes and in all precisions."""
    return operation.replace(mode="inference", precision="fp32")


def variants(operations: Collection[Operation]) -> frozenset[Operation]:
    """The operations in both modes and all precisions. None of these may be in the training data if one is held out."""
    return frozenset(
        operation.replace(mode=mode, precision=precision)
        for operation in {alike(operation) for operation in operations}
        for mode in (MODES if operation.attributes.get("direction", "forward") == "forward" else ("inference",))
        for precision in operation.row.precisions
    )


def fold_of(operations: Collection[Operation], folds: int, seed: int) -> dict[Operation, int]:
    """Assign a random fold to each unique operation, and the same fold to all its variants."""
    unique = sorted({alike(operation) for operation in operations}, key=lambda operation: operation.digest)
    order = np.random.default_rng(seed).permutation(len(unique))
    place = {unique[i]: rank % folds for rank, i in enumerate(order.tolist())}
    return {operation: place[alike(operation)] for operation in operations}


def only_in(mine: Sequence[Collection[Operation]], others: Sequence[Collection[Operation]]) -> frozenset[Operation]:
    """All variants of the operations that only these networks have; they are left out together with the networks."""
    shared = {alike(operation) for network in others for operation in network}
    only = {alike(operation) for network in mine for operation in network} - shared
    return variants(only)
