"""Marks the calls of modules as ranges in a profile. Torch is imported inside the functions that need it.

with named_modules(model), torch.profiler.profile() as profile:
    model(x)
profile.export_chrome_trace("trace.json")  # `joulecast account --trace trace.json`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .trace import ITERATION, MODULE_PREFIX

if TYPE_CHECKING:
    import torch

_CALL = "_compiled_call_impl"
"""Attribute of a module: if it is set, PyTorch calls it in place of the module's own call. `Module.compile` uses it."""


@contextmanager
def named_modules(model: torch.nn.Module) -> Iterator[None]:
    """Mark the calls of a model and of all its parts in the profiles that are taken meanwhile.

    A range contains the call of a module with all its hooks. The marks are not hooks themselves, because PyTorch runs
    other operators in some modules if they have hooks (`nn.TransformerEncoderLayer`), and because the hooks of users
    could run outside the ranges. Parts of a compiled model are not marked, because they are not called one by one. A
    module that is used in several places has the name of its first place.

    Args:
        model: Any module. The changes to it are undone at the end.
    """
    import torch

    def named_call(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def named(*args: Any, **kwargs: Any) -> Any:
            with torch.profiler.record_function(name):
                return call(*args, **kwargs)

        return named

    replaced: list[tuple[dict[str, Any], Any]] = []
    try:
        for path, part in marked_modules(model):
            # setattr would not do: a compiled module sets attributes on the module that it was made from.
            attributes = part.__dict__
            before = attributes.get(_CALL)
            replaced.append((attributes, before))
            attributes[_CALL] = named_call(f"{MODULE_PREFIX}{path}", before or part._call_impl)
        yield
    finally:
        for attributes, before in reversed(replaced):
            if before is None:
                del attributes[_CALL]
            else:
                attributes[_CALL] = before


@contextmanager
def iteration() -> Iterator[None]:
    """Mark an iteration in the profiles that are taken meanwhile."""
    import torch

    with torch.profiler.record_function(ITERATION):
        yield


def marked_modules(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Qualified names and modules that are called one by one; this excludes the parts of compiled modules."""
    found: list[tuple[str, torch.nn.Module]] = []
    compiled: list[str] = []
    for path, part in model.named_modules():
        if any(not above or path == above or path.startswith(f"{above}.") for above in compiled):
            continue
        if is_compiled(part):
            compiled.append(path)
        found.append((path, part))
    return found


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether torch.compile made this module, or `Module.compile` compiled it in place."""
    return hasattr(module, "_orig_mod") or getattr(module, _CALL, None) is not None
