"""Job: what is asked about a model. Every door of the library makes one: functions, commands, client and service."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..operations.inputs import Inputs
from .operators import WHITELIST

if TYPE_CHECKING:
    from ..hardware.host import Host
    from .assumptions import Assume
    from .recorder import CustomOperators


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
        composition: "overlap" or "sum"; None for what was better on networks left out.
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

    @property
    def for_trace(self) -> dict[str, Any]:
        """The keyword arguments of `tracing.trace` among the fields."""
        return {name: getattr(self, name) for name in _FOR_TRACE}

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
_FOR_TRACE = ("mode", "precision", "whitelist", "operators", "optimizer", "assume")
