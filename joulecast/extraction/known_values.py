"""Values that a forward computes from constants alone, so that decisions which depend on them can be made.

A tensor on the meta device has no values. Positions, masks and sizes that a model creates itself (`arange`, `zeros`) do
not depend on its input, though. Small tensors of this kind are computed on the CPU as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .job import Assumptions


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """All tensors in nested lists and dictionaries."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


UNKNOWN: Any = object()
"""Marks a value that depends on the values of the input, which extraction does not know."""

# Operators by which routers choose experts -> position of the result that holds the chosen indices.
_ROUTERS = {"topk": 1, "argmax": 0, "max": 1, "sort": 1, "argsort": 0}


def routed(
    func: Any, args: Any, kwargs: Mapping[str, Any], made: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Indices that a router chooses if all experts get equally many tokens: each expert in turn.

    Returns the result that holds the chosen indices, and its values; None where none are chosen along a dimension.
    """
    place = _ROUTERS.get(func.overloadpacket.__name__)
    if place is None or place >= len(made) or made[place].is_floating_point() or made[place].numel() > LARGEST:
        return None
    names = [argument.name for argument in func._schema.arguments]
    dim = {**dict(zip(names, args, strict=False)), **kwargs}.get("dim", -1)
    if dim is None or not args[0].ndim:
        return None
    turns = torch.arange(made[place].numel()) % args[0].shape[dim]
    return made[place], turns.reshape(made[place].shape)


def selected(func: Any, args: Any, most: int) -> Any:
    """Result of an operator that selects by unknown values, if it selects at most this many candidates, evenly spread.

    A real tensor of indices; UNKNOWN for other operators.
    """
    name = func.overloadpacket.__name__
    if name == "nonzero":
        return torch.stack(_spread(args[0].shape, most), dim=1)
    if name == "nms":
        return _spread(args[0].shape[:1], most)[0]
    return UNKNOWN


def decided(func: Any, args: Any, made: list[torch.Tensor], assumptions: Assumptions) -> Any:
    """A real tensor, where the assumptions about boxes determine the result of an operator; otherwise UNKNOWN."""
    if not made or not args or not isinstance(args[0], torch.Tensor):
        return UNKNOWN
    name, first = func.overloadpacket.__name__, made[0]
    if name == "sum" and args[0].dtype == torch.bool and assumptions.boxes is not None and not first.ndim:
        # The number of elements that a mask selects.
        return torch.tensor(min(assumptions.boxes, args[0].numel()), dtype=first.dtype)
    if name == "uniform_" and assumptions.boxes is not None and first.numel() == 1:
        # Training images are resized to a randomly drawn size: the middle of the range is assumed.
        low, high = (float(end) for end in (*args[1:], *(0.0, 1.0)[len(args) - 1 :]))
        return torch.full(first.shape, (low + high) / 2, dtype=first.dtype)
    if assumptions.box_side is None or not args[0].is_floating_point():
        return UNKNOWN
    if name == "ceil" and first.ndim == 1:
        # Widths and heights in whole pixels, for key points.
        return torch.full(first.shape, assumptions.box_side, dtype=first.dtype)
    if name == "_to_copy" and first.dtype == torch.int64 and first.ndim == 2 and first.shape[1] == 4:
        # Corners in whole pixels for masks; both corners belong to the box.
        return torch.tensor([0, 0, *[assumptions.box_side - 1] * 2]).expand(first.shape)
    return UNKNOWN


def with_places(func: Any, args: Any, most: int) -> Any:
    """Arguments of `index` with the indices that `selected` assumes instead of masks; other operators' unchanged."""
    if func.overloadpacket.__name__ != "index":
        return args
    indices: list[Any] = []
    for index in args[1]:
        if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
            indices.extend(places.to("meta") for places in _spread(index.shape, most))
        else:
            indices.append(index)
    return (args[0], indices, *args[2:])


def _spread(shape: torch.Size, most: int) -> tuple[torch.Tensor, ...]:
    """Evenly spread positions in a tensor of this shape: one tensor of indices for each dimension."""
    count = shape.numel()
    places = torch.linspace(0, count - 1, min(most, count), dtype=torch.float64).long()
    return torch.unravel_index(places, shape)


LARGEST = 2**22
"""Most elements of a tensor whose values are followed."""
_MAKERS = frozenset({"arange", "zeros", "ones", "full", "linspace", "eye", "scalar_tensor"})
# The first group uses the shape of a tensor but not its values; the second group uses only its type.
_LIKE = frozenset({"zeros_like", "ones_like", "full_like"})
_NEW = frozenset({"new_zeros", "new_ones", "new_full"})
_SAFE = frozenset(
    """
    abs add all any bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min cos cumsum div eq exp
    floor floor_divide ge gt isfinite isinf isnan le log log2 logical_and logical_not logical_or logical_xor lt maximum
    minimum mul ne neg pow reciprocal remainder round rsqrt rsub sign sin sqrt sub sum where masked_fill
    _local_scalar_dense _to_copy _unsafe_view alias cat clone copy_ detach detach_ expand fill_ flip index lift_fresh
    nonzero permute repeat reshape select slice split split_with_sizes squeeze stack t transpose tril triu unbind
    unsqueeze view constant_pad_nd one_hot scatter sort argsort bincount histc gather index_add index_put __and__
    __or__ __xor__
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
"""Operators that are computed on real values: arithmetic, comparisons and changes of shape. Their kernels check every
index; others (pooling backward, ctc_loss, segment_reduce) read and write memory at any index that they are given."""
# These divide integers without a check: -2**63 / -1 would end the process.
_UNSAFE_FORMS = frozenset({"Tensor_mode", "Scalar_mode"})
_DEPENDS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def run_on_meta(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator on meta tensors.

    PyTorch's rule for the shape of grouped products accepts bf16 alone, though a GPU computes them in other types, too
    (aten/src/ATen/native/GroupedMMUtils.h, `_grouped_mm_fallback`).
    """
    if func.overloadpacket.__name__ != "_grouped_mm" or args[0].dtype == torch.bfloat16:
        return func(*args, **kwargs)

    def half(value: Any) -> Any:
        return value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return func(*tree_map(half, args), **tree_map(half, kwargs)).to(args[0].dtype)


def decides(func: Any) -> bool:
    """Whether an operator returns a number or a shape that depends on values; `index` may, so it counts."""
    return bool(_DEPENDS & set(func.tags)) or func.name() == "torchvision::nms"


class NeedsValuesError(RuntimeError):
    """A model makes a decision that depends on values of its input."""


def know(tensor: torch.Tensor, value: torch.Tensor, *, is_assumed: bool = False) -> None:
    """Store the values that a meta tensor would have, whether they are certain or assumed."""
    tensor.known_value = value  # type: ignore[attr-defined]
    tensor.is_assumed = is_assumed  # type: ignore[attr-defined]


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a real tensor to the meta device; the values of a small one are stored with it."""
    result = tensor.to("meta")
    if tensor.numel() <= LARGEST:
        know(result, tensor.detach().clone())
    return result


class KnownValues:
    """Computes the values of meta tensors that do not depend on the input."""

    def __init__(self, assumptions: Assumptions) -> None:
        self.assumptions = assumptions
        self._overwritten: set[int] = set()
        self._mixed: set[int] = set()
        self._storages: list[Any] = []

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator on meta tensors, and on their values if these are known.

        Raises NeedsValuesError: the operator needs values that depend on the input.
        """
        given = tensors_in(args, kwargs)
        makes = func.overloadpacket.__name__ in _MAKERS | _LIKE | _NEW
        from_shapes = makes or (bool(given) and all(map(self._is_from_shapes, given)))
        result = self._run(func, args, kwargs)
        for leaf in tensors_in(result):
            if from_shapes:
                leaf.is_from_shapes = True  # type: ignore[attr-defined]
            elif func._schema.is_mutable:
                # Views share their storage, so the values of all of them have changed.
                self._storages.append(leaf.untyped_storage())
                self._mixed.add(self._storages[-1]._cdata)
        return result

    def from_shapes(self, result: Any) -> bool:
        """Whether all tensors of a result, of any size, are made from shapes and constants alone."""
        tensors = tensors_in(result)
        return bool(tensors) and all(map(self._is_from_shapes, tensors))

    def _is_from_shapes(self, tensor: torch.Tensor) -> bool:
        return getattr(tensor, "is_from_shapes", False) and tensor.untyped_storage()._cdata not in self._mixed

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        values = self._values(func, args, kwargs)
        assumed = any(getattr(leaf, "is_assumed", False) for leaf in tree_leaves((args, kwargs)))
        if decides(func):
            real = UNKNOWN if values is UNKNOWN else func(*values[0], **values[1])
            if real is UNKNOWN and self.assumptions.boxes is not None:
                args = with_places(func, args, self.assumptions.boxes)
                real, assumed = selected(func, args, self.assumptions.boxes), True
            if real is not UNKNOWN:
                return tree_map(lambda value: self._on_meta(value, assumed), real)
        try:
            result = run_on_meta(func, args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if decides(func):
                raise NeedsValuesError("its result depends on values that only the input has") from error
            raise
        made = tensors_in(result)
        if values is not UNKNOWN and all(tensor.numel() <= LARGEST for tensor in made):
            try:
                real = func(*values[0], **values[1])
            except (NotImplementedError, RuntimeError):
                # The CPU lacks some half-precision kernels that GPUs have.
                self._forget(func, args, kwargs)
                return result
            for tensor, value in zip(made, tree_leaves(real), strict=True):
                know(tensor, value, is_assumed=assumed)
        else:
            self._forget(func, args, kwargs)
            chosen = routed(func, args, kwargs, made) if self.assumptions.experts else None
            if chosen is not None:
                know(*chosen, is_assumed=True)
            value = decided(func, args, made, self.assumptions)
            if value is not UNKNOWN:
                know(made[0], value, is_assumed=True)
            constant = self._constant(func, args)
            if constant is not UNKNOWN:
                know(made[0], constant.expand(made[0].shape), is_assumed=assumed)
        return result

    def _constant(self, func: Any, args: Any) -> Any:
        """The value that a look-up returns whatever its indices are, if all elements of its input are equal."""
        if func.overloadpacket.__name__ not in ("index", "index_select", "gather"):
            return UNKNOWN
        value = self._value(args[0])
        is_one = value is not UNKNOWN and value.ndim and value.numel() and not any(value.stride())
        return value[(0,) * value.ndim] if is_one else UNKNOWN

    def knows(self, result: Any) -> bool:
        """Whether the values of all tensors of a result depend on shapes and constants alone."""
        tensors = tensors_in(result)
        sure = (self._value(tensor) is not UNKNOWN and not getattr(tensor, "is_assumed", False) for tensor in tensors)
        return bool(tensors) and all(sure)

    def _value(self, tensor: torch.Tensor) -> Any:
        value: Any = getattr(tensor, "known_value", UNKNOWN)
        is_current = value is not UNKNOWN and value.untyped_storage()._cdata not in self._overwritten
        return value if is_current else UNKNOWN

    def _on_meta(self, value: Any, is_assumed: bool) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        result = torch.empty_like(value, device="meta")
        know(result, value, is_assumed=is_assumed)
        return result

    def _values(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The arguments with known values instead of meta tensors; UNKNOWN if one of them is not known."""
        name = func.overloadpacket.__name__
        plain = name.removesuffix("_") if not name.endswith("__") else name
        is_safe = name in _MAKERS | _LIKE | _NEW or plain in _SAFE or name in _SAFE
        if not is_safe or func.namespace != "aten" or func._overloadname in _UNSAFE_FORMS:
            return UNKNOWN
        tensors = tensors_in(args, kwargs)
        if not tensors and name not in _MAKERS:
            return UNKNOWN
        if name in _LIKE and tensors[0].numel() <= LARGEST:
            values = {id(tensors[0]): torch.empty_like(tensors[0], device="cpu")}
        elif name in _NEW:
            values = {id(tensors[0]): torch.empty(0, dtype=tensors[0].dtype)}
        else:
            values = {id(tensor): self._value(tensor) for tensor in tensors}
        if any(value is UNKNOWN for value in values.values()) or torch.Tag.nondeterministic_seeded in func.tags:
            return UNKNOWN

        def real(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return values[id(value)]
            return torch.device("cpu") if isinstance(value, torch.device) else value

        real_kwargs = tree_map(real, kwargs)
        if not tensors:
            real_kwargs["device"] = torch.device("cpu")
        return tree_map(real, args), real_kwargs

    def _forget(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Mark the values that an operator overwrites as unknown."""
        if not func._schema.is_mutable:
            return
        # Views share their storage, so the values of all of them are outdated.
        for position, argument in enumerate(func._schema.arguments):
            written = argument.alias_info is not None and argument.alias_info.is_write
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            outdated = getattr(value, "known_value", None) if written else None
            if outdated is not None:
                storage = outdated.untyped_storage()
                self._storages.append(storage)  # keeps it alive, so that no other storage gets the same number
                self._overwritten.add(storage._cdata)
