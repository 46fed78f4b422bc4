"""Job: what is asked about a model. Every door of the library makes one: functions, commands, client and service."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import InputError, unknown_name
from ..operations.inputs import Inputs, require_positive_integer
from ..operations.kinds import KINDS
from .operators import WHITELIST

if TYPE_CHECKING:
    from ..hardware.host import Host
    from .conversions import CustomOperators

Assume = Mapping[str, str | int]
"""Assumptions as users give them: {"experts": "uniform"}, {"boxes": 100}, {"box_side": 200}, {"attention": "cudnn"}, or
several of them."""

ATTENTION = "attention"
"""The assumption about the library that computes attention, which does not depend on the model."""

_NAMES = ("boxes", "box_side", "experts", ATTENTION)

EXPERTS = "every expert gets equally many tokens"
"""The assumption about mixtures of experts, in words."""


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about unknown values; None stands for no assumption.

    Args:
        experts: Whether every expert of a mixture gets equally many tokens.
        boxes: Number of candidates that each selection by values keeps, such as the boxes of a detector.
        box_side: Length of each side of a box in pixels, for models whose operations depend on it.
    """

    experts: bool = False
    boxes: int | None = None
    box_side: int | None = None

    @classmethod
    def of(cls, stated: Assume | None) -> Self:
        """Read the assumptions of a user.

        Raises UnknownNameError: a name is not experts, boxes, box_side or attention. Raises InputError: the value of
        experts is not "uniform", or another value is not a positive integer.
        """
        stated = stated or {}
        for name in stated:
            if name not in _NAMES:
                raise unknown_name("assumption", name, _NAMES)
        experts = stated.get("experts")
        if experts not in (None, "uniform"):
            raise InputError("tokens can be assumed to spread evenly", given=f"experts={experts!r}", allowed="uniform")
        numbers: dict[str, Any] = {name: stated[name] for name in ("boxes", "box_side") if stated.get(name) is not None}
        for name, value in numbers.items():
            require_positive_integer(name, value)
        return cls(experts is not None, **numbers)

    def __iter__(self) -> Iterator[str]:
        """Each assumption in words."""
        if self.experts:
            yield EXPERTS
        if self.boxes is not None:
            yield f"every selection by values keeps {self.boxes} candidates, or all where there are fewer"
        if self.box_side is not None:
            yield f"every box is a square of {self.box_side} x {self.box_side} pixels"


OPTIMIZERS: tuple[str, ...] = tuple(kind.removesuffix("_step") for kind, row in KINDS.items() if row.is_optimizer_step)
"""Optimizers of torch.optim: with "_fused" those with fused=True; the others as PyTorch runs them by default on a GPU
(foreach)."""


def refuse_optimizer(optimizer: str | None, mode: str) -> None:
    """Refuse an optimizer that does not exist, or that is given in inference."""
    if optimizer is None:
        return
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS, hint="leave it out for a step without one")
    if mode != "training":
        raise InputError(
            "an optimizer steps in training",
            given=f"mode={mode}",
            allowed="training",
            hint='ask for mode="training", or leave the optimizer out',
        )


@dataclass(frozen=True)
class Job:
    """A model, and how it is run. `joulecast.predict` and `joulecast.extract` describe the fields.

    A new option is a field here, and an argument of the public functions that heed it. Nothing is checked before it is
    used, so that an error says what it says in every door.

    Args:
        model: A name, module, configuration, file, Network or list of operations; None for a job of many models.
        input_shape: Shape of the input, batch first, or of several inputs; None for listed operations.
        mode: "inference" or "training".
        precision: "default", fp32, tf32, fp16 or bf16.
        cache_length: Tokens that a transformer has cached.
        optimizer: Optimizer whose step is part of a training iteration; None for no step.
        whitelist: Operation kinds to include.
        operators: The user's own operators.
        assume: Assumptions about values of the input.
        model_options: Arguments of a model that is given by name.
        autocast: "bf16" or "fp16" for a forward within torch.autocast; None without it.
        lora: Rank of the low-rank adapters beside which all parameters are frozen; None for none.
        lora_targets: Layers that get adapters; None for those that peft chooses.
        power_limit_w: Power cap in watts; None for the board's default.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.
        composition: "overlap" or "sum"; None for overlap.
        strict: Whether an operation that is not covered is an error.
        execution: "eager", "graph" or "compiled".
        host: The machine that launches operations; None for the host that is typical for the GPU.
        calibration: What `joulecast calibrate` measured on a board, see `predictors.board.profile`; None for any board.
    """

    model: Any = None
    input_shape: Any = None
    mode: str = "inference"
    precision: str = "default"
    cache_length: int | None = None
    optimizer: str | None = None
    whitelist: Collection[str] = WHITELIST
    operators: CustomOperators | None = None
    assume: Assume | None = None
    model_options: Mapping[str, Any] | None = None
    autocast: str | None = None
    lora: int | None = None
    lora_targets: str | Sequence[str] | None = None
    power_limit_w: float | None = None
    predictor: str | Path | None = None
    composition: str | None = None
    strict: bool = False
    execution: str = "eager"
    host: str | float | Path | Host | None = None
    calibration: Any = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **changed: Any) -> Self:
        """The job among the arguments of a function, which has arguments of its own beside the fields of a job.

        Args:
            arguments: Name -> value, such as `locals()` at the beginning of a function.
            changed: Fields that have another value than the argument of their name.
        """
        names = [field.name for field in fields(cls)]
        return cls(**{name: arguments[name] for name in names if name in arguments} | changed)

    def to_json(self, inputs: Inputs | None) -> dict[str, Any]:
        """What the process that extracts models needs beside the model; `of_json` reads it."""
        return {
            **{name: getattr(self, name) for name in _IN_JSON},
            "whitelist": None if self.whitelist is WHITELIST else sorted(self.whitelist),
            "assume": None if self.assume is None else dict(self.assume),
            "model_options": None if self.model_options is None else dict(self.model_options),
            "inputs": None if inputs is None else inputs.to_list(),
        }

    @classmethod
    def of_json(cls, model: str | Path, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote about a model."""
        inputs = None if value["inputs"] is None else Inputs.of_list(value["inputs"])
        whitelist = WHITELIST if value["whitelist"] is None else tuple(value["whitelist"])
        return cls.of(value, model=model, input_shape=inputs, whitelist=whitelist)


_IN_JSON = ("mode", "precision", "cache_length", "optimizer", "autocast", "lora", "lora_targets")
