"""Values that a forward computes from constants alone: decisions on them can be taken without running the model.

A tensor on the meta device has no values. Positions, masks and sizes that a model makes itself (`arange`, `zeros`)
do not depend on its input, though, so small ones are computed for real beside it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_LARGEST = 2**20
_MAKERS = frozenset({"arange", "zeros", "ones", "full", "linspace", "eye", "scalar_tensor"})
# These take the shape of a tensor, but not its values.
_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
_DEPENDS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_UNKNOWN = object()


class NeedsValuesError(RuntimeError):
    """A model decides by values that nobody knows before it runs."""


def know(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Say what a meta tensor would hold."""
    if value.numel() <= _LARGEST:
        tensor.known_value = value  # type: ignore[attr-defined]


class KnownValues:
    """Keeps real values beside meta tensors."""

    def __init__(self) -> None:
        self._overwritten: set[int] = set()
        self._storages: list[Any] = []
        self.decisions: list[Any] = []
        """What the model asked for, in order: numbers, and tensors whose shape depends on values."""

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator on meta tensors, and beside it on the values that are known.

        Raises:
            NeedsValuesError: The operator needs values that depend on the input.
        """
        values = self._values(func, args, kwargs)
        if values is not _UNKNOWN and _DEPENDS & set(func.tags):
            real = func(*values[0], **values[1])
            self.decisions.append(real)
            return tree_map(self._on_meta, real)
        try:
            result = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if _DEPENDS & set(func.tags):
                raise NeedsValuesError("its result depends on values that only the input has") from error
            raise
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if values is _UNKNOWN:
            if func._schema.is_mutable:
                self._forget(func, args, kwargs)
        elif all(tensor.numel() <= _LARGEST for tensor in made):
            real = func(*values[0], **values[1])
            for tensor, value in zip(made, tree_leaves(real), strict=True):
                know(tensor, value)
        return result

    def _value(self, tensor: torch.Tensor) -> Any:
        value: Any = getattr(tensor, "known_value", _UNKNOWN)
        known = value is not _UNKNOWN and value.untyped_storage()._cdata not in self._overwritten
        return value if known else _UNKNOWN

    def _on_meta(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        result = torch.empty_like(value, device="meta")
        know(result, value)
        return result

    def _values(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Arguments with values instead of meta tensors."""
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not tensors and name not in _MAKERS:
            return _UNKNOWN
        if name in _LIKE and tensors[0].numel() <= _LARGEST:
            known = {id(tensors[0]): torch.empty_like(tensors[0], device="cpu")}
        else:
            known = {id(tensor): self._value(tensor) for tensor in tensors}
        if any(value is _UNKNOWN for value in known.values()) or torch.Tag.nondeterministic_seeded in func.tags:
            return _UNKNOWN

        def real(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return known[id(value)]
            return torch.device("cpu") if isinstance(value, torch.device) else value

        real_kwargs = tree_map(real, kwargs)
        if not tensors:
            real_kwargs["device"] = torch.device("cpu")
        return tree_map(real, args), real_kwargs

    def _forget(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        # Views share their storage, so all that look at it are out of date.
        for position, argument in enumerate(func._schema.arguments):
            written = argument.alias_info is not None and argument.alias_info.is_write
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            known = getattr(value, "known_value", None) if written else None
            if known is not None:
                storage = known.untyped_storage()
                self._storages.append(storage)  # or another storage could get its number
                self._overwritten.add(storage._cdata)
