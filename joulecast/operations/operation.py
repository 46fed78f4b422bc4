"""Operation: one operator call as a frozen, hashable value, which joulecast measures and predicts. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, get_args

from ..errors import InputError, unknown_name
from .attributes import PRECISIONS, Precision, RequestedPrecision
from .inputs import full_attributes, normalized_shape
from .kind import GRADIENTS, Counted, Kind
from .kinds import KINDS
from .rules import Shape, Shapes, fits

Mode = Literal["inference", "training"]

MODES: tuple[str, ...] = get_args(Mode)
_REQUESTED: tuple[str, ...] = get_args(RequestedPrecision)
compact_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # (json.dumps makes one for every call)
"""A value as the JSON that digests are made of."""


def digest_of(text: str) -> str:
    """Sixteen hexadecimal digits that identify a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_mode(mode: str) -> None:
    """Require that a mode exists. Raises UnknownNameError: it does not."""
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)


def require_precision(requested: str) -> None:
    """Require that a model can be asked for in a precision. Raises UnknownNameError: there is no such precision."""
    if requested not in _REQUESTED:
        raise unknown_name("precision", requested, _REQUESTED)


def real_precision(kind: str, requested: str) -> Precision:
    """The precision that an operation of this kind runs in when a model asks for `requested`.

    "default" is the default of PyTorch for fp32 tensors: convolutions may use TF32 (on a GPU that has it), matrix
    products do not. TF32 applies only to kinds that run on tensor cores. Raises UnknownNameError: there is no such kind
    or precision.
    """
    if kind not in KINDS:
        raise unknown_name("operation kind", kind, KINDS)
    require_precision(requested)
    row = KINDS[kind]
    match requested:
        case "default":
            return "tf32" if row.tf32_by_default else "fp32"
        case "tf32":
            return "tf32" if row.tensor_cores else "fp32"
        case _:
            return cast(Precision, requested)


_KEYS = ("kind", "input_shapes", "attributes", "precision", "mode")

EXAMPLE = '{"kind": "linear", "input_shapes": [[32, 128]], "attributes": {"out_features": 64}}'
"""An operation as JSON, for messages."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Operation(Counted):
    """One operator call: kind, attributes, input shapes, precision and mode.

    Attributes that are left out take the defaults of the kind, so two spellings of one operation are equal. Operations
    are hashable, and `digest` is the same on every machine and in every version of Python.

    Args:
        kind: A key of `joulecast.operations.kinds.KINDS`, such as "conv2d" or "linear".
        input_shapes: Shapes of the input tensors, without parameters.
        attributes: Attribute -> value, such as out_channels and kernel_size; the row of the kind lists them.
        precision: The precision in which the operation really runs.
        mode: "inference" for the forward alone, "training" for forward and backward.

    Raises:
        UnknownNameError: kind, precision or mode does not exist.
        InputError: A shape or an attribute does not fit the kind.

    Examples:
        >>> op = Operation("linear", [(32, 128)], {"out_features": 64})
        >>> op.output_shape, op.flops
        ((32, 64), 524288)
    """

    kind: str
    input_shapes: Shapes
    attributes: Mapping[str, Any]
    precision: Precision
    mode: Mode

    def __init__(
        self,
        kind: str,
        input_shapes: Iterable[Sequence[int]],
        attributes: Mapping[str, Any] | None = None,
        *,
        precision: str = "fp32",
        mode: str = "inference",
    ) -> None:
        if kind not in KINDS:
            raise unknown_name("operation kind", kind, KINDS)
        if precision not in PRECISIONS:
            raise unknown_name("precision of an operation", precision, PRECISIONS)
        require_mode(mode)
        row = KINDS[kind]
        if precision not in row.precisions:
            raise InputError(
                f"a {kind} does not run in {precision}",
                given=precision,
                allowed=", ".join(row.precisions),
                hint="quantize the matrix products, and leave the rest in bf16",
            )
        # A tensor without dimensions holds one number.
        shapes = tuple(normalized_shape(shape) or (1,) for shape in input_shapes)
        least, most = row.inputs
        if not least <= len(shapes) <= most:
            allowed = str(least) if least == most else f"{least} to {most}"
            raise InputError(f"a {kind} takes another number of inputs", given=len(shapes), allowed=allowed)
        full = full_attributes(kind, row, shapes, attributes or {})
        if mode == "inference" and full.get(GRADIENTS, "all") != "all":
            raise InputError(
                "only training computes gradients",
                given=f"{GRADIENTS}={full[GRADIENTS]!r}, mode='inference'",
                allowed=f"{GRADIENTS}='all', which is the default",
                hint="leave it out, or set mode='training'",
            )
        if mode == "training" and full.get("direction", "forward") != "forward":
            raise InputError(
                "a training operation is forward and backward together",
                given=f"direction={full['direction']!r}",
                allowed="direction='forward'",
                hint="a gradient alone has mode='inference'",
            )
        if row.takes and not fits(row.takes, shapes):
            given = ", ".join(map(str, shapes))
            raise InputError(f"the inputs of {kind} have other shapes", given=given, allowed=row.takes)
        vars(self).update(kind=kind, input_shapes=shapes, attributes=full, precision=precision, mode=mode)
        # Both properties are computed here so that shapes that do not fit are refused at once.
        _ = self.output_shape, self.parameters

    @property
    def row(self) -> Kind:  # type: ignore[override]
        """The row of its kind in the table of kinds."""
        return KINDS[self.kind]

    @cached_property
    def output_shape(self) -> Shape:  # type: ignore[override]  # (computed once, and not written by anybody)
        """Shape of the output tensor."""
        try:
            shape = self.row.output(self.input_shapes, self.attributes)
        except (TypeError, IndexError, ZeroDivisionError) as error:
            raise InputError(
                f"these inputs and attributes do not make a {self.kind}",
                given=repr(self),
                hint="joulecast.extract shows how the operations of a torch.nn.Module are written",
            ) from error
        try:
            return normalized_shape(shape)
        except InputError as error:
            raise InputError(
                f"these inputs and attributes do not make a {self.kind}",
                given=repr(self),
                allowed="what has an output of positive sizes",
                hint=f"the output would be {shape!r}",
            ) from error

    @cached_property
    def parameters(self) -> int:  # type: ignore[override]
        """Number of parameter elements."""
        return self.row.parameters(self.input_shapes, self.attributes)

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a convolution in which each channel of the input has filters of its own."""
        groups = self.attributes.get("groups", 1)
        return self.row.family == "convolution" and 1 < groups == self.input_shapes[0][1]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """A tuple that is equal for equal operations."""
        # Attributes come in the order of the kind's row, all of them.
        return (self.kind, self.input_shapes, tuple(self.attributes.values()), self.precision, self.mode)

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify the operation on every machine."""
        return digest_of(compact_json(self.to_dict()))

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Operation) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        # Strings hash differently in every process, so the cached hash must not be pickled.
        return Operation.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        shapes = ", ".join(str(list(shape)) for shape in self.input_shapes)
        written = self.written_attributes
        attributes = "".join(f", {name}={value}" for name, value in self.attributes.items() if name in written)
        return f"{self.kind}({shapes}{attributes}, {self.precision}, {self.mode})"

    def replace(
        self, *, precision: str | None = None, mode: str | None = None, gradients: str | None = None
    ) -> Operation:
        """The same operation in another precision or mode, or with other gradients; None leaves it unchanged."""
        attributes = dict(self.attributes)
        if mode == "inference":
            gradients = "all"
        if gradients is not None and GRADIENTS in attributes:
            attributes[GRADIENTS] = gradients
        return Operation(
            self.kind, self.input_shapes, attributes, precision=precision or self.precision, mode=mode or self.mode
        )

    def with_attributes(self, **changed: object) -> Operation:
        """The same operation with other values of some attributes. Raises InputError: the kind has none such."""
        merged = {**self.attributes, **changed}
        return Operation(self.kind, self.input_shapes, merged, precision=self.precision, mode=self.mode)

    @property
    def written_attributes(self) -> dict[str, Any]:
        """Name -> value of the attributes that JSON contains: all but refinements that have their default."""
        rows = self.row.attributes
        return {
            name: value
            for name, value in sorted(self.attributes.items())
            if not rows[name].refinement or value != rows[name].default
        }

    def to_dict(self) -> dict[str, Any]:
        """The operation as plain lists and dictionaries, with the attributes of `written_attributes`."""
        return {
            "kind": self.kind,
            "input_shapes": [list(shape) for shape in self.input_shapes],
            "attributes": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self.written_attributes.items()
            },
            "precision": self.precision,
            "mode": self.mode,
        }

    @classmethod
    def from_dict(cls, value: object) -> Operation:
        """Read what `to_dict` wrote. Any other key, such as count, is refused.

        Raises:
            InputError: The value is not such a dictionary, or describes an operation that cannot exist.
        """
        known = value if isinstance(value, Mapping) else {}
        shapes, attributes = known.get("input_shapes"), known.get("attributes")
        if "kind" not in known or not isinstance(shapes, list | tuple) or not isinstance(attributes, Mapping | None):
            raise InputError(
                "an operation is an object with kind and a list of input_shapes, and attributes as an object",
                given=repr(value)[:200],
                allowed=f"such as {EXAMPLE}",
            )
        if extra := known.keys() - {*_KEYS}:
            raise InputError("an operation has no such keys", given=", ".join(sorted(extra)), allowed=", ".join(_KEYS))
        further = {name: known[name] for name in ("precision", "mode") if name in known}
        return cls(known["kind"], shapes, attributes, **further)
