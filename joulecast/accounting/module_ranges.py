"""Ranges in a profile that say which module runs. Torch is imported when a model is named.

with named_modules(model), torch.profiler.profile() as profile:
    model(x)
profile.export_chrome_trace("trace.json")  # `joulecast account --trace trace.json`
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .trace import ITERATION, MODULE_PREFIX

if TYPE_CHECKING:
    import torch

_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def named_modules(model: torch.nn.Module) -> Iterator[None]:
    """Mark calls of a model and all its parts in whatever profile is being taken.

    Calls are marked around a module with all its hooks. Hooks of our own would not do: PyTorch runs other operators in
    modules that have hooks (`nn.TransformerEncoderLayer`), and a user's hooks would run outside the marks. Parts of a
    compiled model are not marked, since they are not called one by one. A module that stands in several places has the
    name of the first.

    Args:
        model: Any module; it is not changed.

    Raises:
        InputError: Another model's modules are being named.
    """
    import torch

    names = {id(part): f"{MODULE_PREFIX}{path}" for path, part in marked_modules(model)}
    record_function = torch.profiler.record_function
    plain_call = torch.nn.Module.__call__

    def named_call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        name = names.get(id(self))
        if name is None:
            return plain_call(self, *args, **kwargs)
        with record_function(name):
            return plain_call(self, *args, **kwargs)

    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise InputError("modules of another model are being named", hint="account for one model after the other")
    torch.nn.Module.__call__ = named_call  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.__call__ = plain_call  # type: ignore[method-assign]
        _ONE_AT_A_TIME.release()


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
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
