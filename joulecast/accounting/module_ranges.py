"""Ranges in a profile that say which module runs. Torch is imported when a model is named.

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
"""What PyTorch calls instead of a module's own call where it is set, as `Module.compile` does."""


@contextmanager
def named_modules(model: torch.nn.Module) -> Iterator[None]:
    """Mark calls of a model and all its parts in whatever profile is being taken.

    Calls are marked around a module with all its hooks. Hooks of our own would not do: PyTorch runs other operators in
    modules that have hooks (`nn.TransformerEncoderLayer`), and a user's hooks would run outside the marks. Parts of a
    compiled model are not marked, since they are not called one by one. A module that stands in several places has the
    name of the first.

    Args:
        model: Any module; it is as before afterwards.
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
            # The dictionary itself: a compiled module passes attributes on to what it was made of.
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
    """Mark an iteration in whatever profile is being taken."""
    import torch

    with torch.profiler.record_function(ITERATION):
        yield


def marked_modules(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Qualified names of the modules that are called one by one: of compiled ones not the parts."""
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
    """Whether torch.compile made this module, or compiled it in place."""
    return hasattr(module, "_orig_mod") or getattr(module, _CALL, None) is not None
