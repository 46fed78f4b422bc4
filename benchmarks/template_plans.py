"""The models that get templates, and the regimes of their sizes.

Within a regime, a model runs the same calls at all sizes. The maker traces every regime, and leaves out those in which
this is not true.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from joulecast.extraction.models.language_models import BY_NAME, LANGUAGE_MODELS
from joulecast.extraction.templates.store import Limits, Range

Ranges = tuple[Range, ...]

_BATCH: Ranges = ((1, 1), (2, 65536))
"""The ranges of the batch size. A single sample is a range of its own, because some copies are views then."""

_LARGEST = 2**20  # at most that of extraction/known_values.py
_LONGEST = 131072  # for rotary positions, which have no table


@dataclass(frozen=True)
class Plan:
    """How the templates of a model are made: shapes of inputs with names for sizes, and the ranges of each size.

    The regimes are all combinations of the ranges. `cached` are those of the length of a cache, for models that decode
    with one. `libraries` are those that the model comes from.
    """

    inputs: Mapping[str, tuple[int | str, ...]]
    ranges: Mapping[str, Ranges]
    libraries: tuple[str, ...]
    cached: Ranges | None = None
    limits: Limits = Limits()

    def cells(self, *, cached: bool) -> Iterator[Ranges]:
        """All regimes."""
        ranges = [*self.ranges.values(), *([self.cached] if cached and self.cached else [])]
        yield from itertools.product(*ranges)


# Prefix of a name -> regimes of height and width.
_SIDES: Mapping[str, Ranges] = {
    # The last feature map is one pixel below 64.
    "convnext": ((32, 63), (64, 4096)),
    # What is padded to whole windows is cut and copied again, stage by stage, and windows that span all of a stage are
    # not shifted: other operations at nearly every size. So only the one that the published weights are for.
    "swin_v2": ((256, 256),),
    "swin": ((224, 224),),
    # These models refuse all other sizes.
    "maxvit": ((224, 224),),
    "vit": ((224, 224),),
    "inception": ((75, 4096),),
    "alexnet": ((63, 4096),),
    "": ((32, 4096),),
}


def vision(name: str) -> Plan:
    """The plan of a classification model of torchvision."""
    sides = next(ranges for start, ranges in _SIDES.items() if name.startswith(start))
    return Plan(
        {"": ("batch", 3, "height", "width")},
        {"batch": _BATCH, "height": sides, "width": sides},
        ("torch", "torchvision"),
    )


# Class -> number of positions in the table of its models, which refuse more tokens.
_POSITIONS: Mapping[str, int] = {
    **dict.fromkeys(("BertModel", "DistilBertModel", "DebertaV2Model", "ElectraModel"), 512),
    **dict.fromkeys(("RobertaModel", "XLMRobertaModel"), 514),
    **dict.fromkeys(("GPT2LMHeadModel", "BartModel"), 1024),
    "OPTForCausalLM": 2048,
}


def transformer(name: str) -> Plan:
    """The plan of a transformer of the table of architectures."""
    row, libraries = BY_NAME[name], ("torch", "transformers")
    if "tokens" not in next(iter(row.inputs.values())):
        return Plan(row.inputs, {"batch": _BATCH}, libraries)
    most, sizes = _POSITIONS.get(row.class_name), row.sizes
    longest = most or min(_LONGEST, sizes.get("max_position_embeddings", _LONGEST))
    window = sizes.get("sliding_window") or longest  # up to which windows hide nothing
    tokens = ((1, 1), (2, window), *([(window + 1, longest)] if window < longest else []))
    cached = ((1, longest),) if name in LANGUAGE_MODELS else None
    return Plan(row.inputs, {"batch": _BATCH, "tokens": tokens}, libraries, cached, Limits(most, _LARGEST))


def plan_of(name: str) -> Plan:
    """The plan of a model by name."""
    return transformer(name) if name in BY_NAME else vision(name)


def sizes_in(ranges: Ranges, count: int, seed: str, limits: Limits) -> list[tuple[int, ...]]:
    """Sizes in one regime: first all least and all largest sizes, then random ones, uniform in the logarithm.

    The same arguments always give the same sizes.
    """
    dice = random.Random(seed)
    corners = [tuple(low for low, _ in ranges), tuple(high for _, high in ranges)]

    def log_uniform(low: int, high: int) -> int:
        return min(high, int(low * (high / low) ** dice.random() + 0.5))

    drawn = [tuple(log_uniform(*span) for span in ranges) for _ in range(20 * count)]
    return [sizes for sizes in dict.fromkeys([*corners, *drawn]) if limits.allow(sizes)][:count]
