"""Effects of a network: what its operations cost in addition to what they cost alone, or less; one table.

Loops measure single operations, one after the other, on contiguous tensors, with data in the cache. Networks differ.
Each effect is a row: what happens, its number, the measurements behind it, and whether it was confirmed on measurements
that it was not fitted to. An effect that was not confirmed widens the interval of the networks that it changes, by what
it changes. The rows stand in effects.toml; docs/how-it-works.md shows the table, and a test compares both.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import NamedTuple

from ..physics.bandwidth import PRODUCTS_SHARE, READ_SHARE
from ..physics.half_precision import DEPTHWISE_TRAINING
from ..physics.operation_numbers import BATCHED_START_STEPS
from .composition import LEAST_HOST_S
from .execution import COMPILED_CALL_S, COMPILED_LAUNCH_S
from .parts import INPUT_GRADIENT, SLOWER_DEPTHWISE, SLOWER_NORMS


class Effect(NamedTuple):
    """One effect.

    Args:
        name: What it is called.
        physics: What happens, in a sentence.
        value: The number that the code uses, or the key under which a predictor stores what it learned.
        unit: The unit of the number.
        evidence: How many measurements of how many networks on which chips show it.
        fitted_on: What the number was fitted to or chosen on.
        confirmed: Measurements that it was not fitted to, and what they show; empty where there are none.
    """

    name: str
    physics: str
    value: float | str
    unit: str
    evidence: str
    fitted_on: str
    confirmed: str = ""

    @property
    def interval(self) -> str:
        """What the effect means for the interval of a network."""
        if self.confirmed:
            return "errors of networks left out contain it"
        return "none, but where the device decides" if self.fitted_on == "assumed" else "wider by what it changes"


_VALUES: dict[str, float] = {
    "first layer in training": -INPUT_GRADIENT,
    "weights from memory": READ_SHARE,
    "copies": LEAST_HOST_S,
    "batch norm in training in half precision": SLOWER_NORMS,
    "depthwise convolutions in training in half precision": DEPTHWISE_TRAINING,
    "convolutions where tensor cores are sold with a lower rate": PRODUCTS_SHARE,
    "start of batched products in fp32": float(BATCHED_START_STEPS),
    "channels last in training, TF32": SLOWER_DEPTHWISE["tf32"],
    "channels last in training, fp32": SLOWER_DEPTHWISE["fp32"],
    "entering compiled code": COMPILED_CALL_S,
    "launches from compiled code": COMPILED_LAUNCH_S,
}
_ROWS = tomllib.loads(files(__package__).joinpath("effects.toml").read_text(encoding="utf-8"))["effect"]

EFFECTS: tuple[Effect, ...] = tuple(Effect(**{"value": _VALUES.get(row["name"]), **row}) for row in _ROWS)
