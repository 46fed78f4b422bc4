"""From a model to its Network: run the forward on the meta device and write down what PyTorch executes.

Meta tensors have shapes but no memory, so nothing is computed and no weight is allocated. Under
`inference_mode` PyTorch hands whole operators (linear, scaled_dot_product_attention) to a dispatch mode; the ones
that the table of operators does not know are broken down until it does, or until they are primitive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..errors import ExtractionError, InputError, unknown_name
from ..kinds import KINDS
from ..networks import BOOKKEEPING, Dropped, Entry, Network
from ..operations import MODES, Operation, normalized_shape, real_precision
from ..rules import Shape
from .aten import CONTIGUOUS_INPUT, FREE, OPERATORS, SAVES_INPUT, WHITELIST

_HALF = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def _whole_stochastic_depth(
    module: torch.nn.Module, inputs: tuple[Any, ...]
) -> tuple[str, list[Shape], dict[str, Any]] | None:
    if not module.training or not module.p:
        return None
    return "stochastic_depth", [tuple(inputs[0].shape)], {"p": module.p, "mode": module.mode}


# Modules that are measured as one operation although they run several operators.
_WHOLE_MODULES = {"StochasticDepth": _whole_stochastic_depth}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down operators with the path of the module that runs them."""

    def __init__(self, module: torch.nn.Module, mode: str, precision: str, whitelist: Collection[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {id(child): name for name, child in module.named_modules()}
        self._mode, self._precision, self._whitelist = mode, precision, whitelist
        self._stack: list[tuple[str, bool]] = []
        self.operations: dict[Operation, list[str]] = {}
        self.dropped: dict[tuple[str, str], list[str]] = {}

    @property
    def path(self) -> str:
        """Path of the module that runs now."""
        return self._stack[-1][0] if self._stack else ""

    def enter(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        whole = _WHOLE_MODULES.get(type(module).__name__)
        outer_path, inside = self._stack[-1] if self._stack else ("", False)
        # A module that is made during the forward has no name; what it runs belongs to its caller.
        self._stack.append((self._names.get(id(module), outer_path), inside or whole is not None))
        if whole is not None and (found := whole(module, inputs)) is not None:
            self._keep(found, "" if not inputs else _HALF.get(inputs[0].dtype, ""))

    def leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self._stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _on_meta(args), {name: _on_meta(value) for name, value in (kwargs or {}).items()}
        if "device" in kwargs:
            kwargs["device"] = torch.device("meta")
        inside_whole = bool(self._stack) and self._stack[-1][1]
        name = func.overloadpacket.__name__
        # The in-place form moves the same bytes; "add_" is "add", but "__and__" stays.
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        convert = OPERATORS.get(plain) if func.namespace == "aten" else None
        if convert is None and plain not in FREE:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if inside_whole or plain in FREE:
            return result
        if convert is None or _is_counter(result):
            reason = "no operation kind" if convert is None else BOOKKEEPING
            self.dropped.setdefault((f"{func.namespace}.{plain}", reason), []).append(self.path)
            return result
        names = (argument.name for argument in func._schema.arguments)
        defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
        bound = {**defaults, **dict(zip(names, args, strict=False)), **kwargs, "<output>": result}
        first = next((value for value in args if isinstance(value, torch.Tensor)), result)
        half = _HALF.get(first.dtype, "") if isinstance(first, torch.Tensor) else ""
        if plain in CONTIGUOUS_INPUT and not first.is_contiguous():
            self._keep(("copy", [tuple(first.shape)], {}), half)
        if self._mode == "training" and plain != name and plain in SAVES_INPUT:
            self._keep(("save_input", [tuple(first.shape)], {}), half)
        found = convert(bound)
        if found is not None:
            self._keep(found, half)
        return result

    def accumulate(self, shape: Shape, half: str) -> None:
        """Write down the addition of two gradients of one tensor."""
        self._stack = [("(backward)", False)]
        self._keep(("gradient_accumulation", [shape], {}), half)

    def _keep(self, found: tuple[str, list[Shape], dict[str, Any]], half: str) -> None:
        kind, shapes, attributes = found
        if kind not in self._whitelist:
            self.dropped.setdefault((kind, "not on the whitelist"), []).append(self.path)
            return
        precision = half or real_precision(kind, self._precision)
        operation = Operation(kind, shapes, attributes, precision=precision, mode=self._mode)
        self.operations.setdefault(operation, []).append(self.path)


def _is_counter(result: Any) -> bool:
    # Batch norm counts its batches.
    return isinstance(result, torch.Tensor) and result.ndim == 0 and not result.is_floating_point()


def _on_meta(value: Any) -> Any:
    # Tensors that a module keeps outside its parameters and buffers are still real.
    if isinstance(value, torch.Tensor):
        return value if value.is_meta else value.to("meta")
    if (
        isinstance(value, list | tuple)
        and value
        and any(isinstance(item, torch.Tensor | list | tuple) for item in value)
    ):
        return type(value)(map(_on_meta, value))
    return value


class _Accumulations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells a recorder of the gradients that a backward adds up."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [value for value in args if isinstance(value, torch.Tensor) and value.is_floating_point()]
        if func.overloadpacket.__name__ in ("add", "add_") and len(tensors) == 2 and result.ndim:
            self._recorder.accumulate(tuple(result.shape), _HALF.get(result.dtype, ""))
        return result


def _record_accumulations(
    module: torch.nn.Module, tensors: dict[str, torch.Tensor], value: torch.Tensor, recorder: _Recorder
) -> None:
    """Run forward and backward, also on the meta device, and write down what no forward shows.

    Every other kernel of the backward belongs to an operation of the forward; a training operation stands for both.
    """
    learned = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    leaves = {name: t.detach().requires_grad_(name in learned and t.is_floating_point()) for name, t in tensors.items()}
    with torch.enable_grad():
        result = torch.func.functional_call(module, leaves, (value,))
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if outputs:
        with _Accumulations(recorder):
            torch.autograd.backward(outputs, [torch.empty_like(t) for t in outputs])


@contextmanager
def _in_mode(module: torch.nn.Module, mode: str) -> Iterator[None]:
    """Put the module into train or eval mode, and every part of it back as it was."""
    flags = [(child, child.training) for child in module.modules()]
    module.train(mode == "training")
    try:
        yield
    finally:
        for child, flag in flags:
            child.training = flag


@contextmanager
def _following(recorder: _Recorder) -> Iterator[None]:
    """Tell the recorder which module is running."""
    hooks = [register_module_forward_pre_hook(recorder.enter), register_module_forward_hook(recorder.leave)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _meta_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    tensors.update(module.named_buffers(remove_duplicate=False))
    return {name: tensor if tensor.is_meta else tensor.detach().to("meta") for name, tensor in tensors.items()}


def trace(
    module: torch.nn.Module,
    input_shape: Sequence[int],
    *,
    mode: str = "inference",
    precision: str = "default",
    name: str | None = None,
    whitelist: Collection[str] = WHITELIST,
) -> Network:
    """List the operations that one forward of a module runs, without computing any of them.

    The module is not changed: parameters, buffers, train/eval flags and the random state stay as they are.

    Args:
        module: Any module with one input tensor.
        input_shape: Shape of that tensor, batch first.
        mode: "inference" runs it in eval mode, "training" in train mode; a training operation stands for its
            forward and backward.
        precision: What the model is asked to run in; each operation gets the precision that this means for it.
        name: What to call the network.
        whitelist: Kinds to keep; others are listed in `Network.dropped`.

    Returns:
        Unique operations with counts and module paths, in order of first use.

    Raises:
        InputError: The shape is no shape, or mode, precision or a kind does not exist.
        ExtractionError: The module raises on this input, or needs real values.
    """
    shape = normalized_shape(input_shape)
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    real_precision("conv2d", precision)
    for kind in whitelist:
        if kind not in KINDS:
            raise unknown_name("operation kind", kind, KINDS)
    name = name or type(module).__name__
    recorder = _Recorder(module, mode, precision, whitelist)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    tensors = _meta_tensors(module)
    with _in_mode(module, mode), torch.random.fork_rng(devices=[]):
        try:
            value = torch.empty(shape, dtype=dtype, device="meta")
            with torch.inference_mode(), _following(recorder), recorder:
                torch.func.functional_call(module, tensors, (value,))
            if mode == "training":
                _record_accumulations(module, tensors, value, recorder)
        except InputError:
            raise
        except Exception as error:
            where = f"{name}.{recorder.path}" if recorder.path else name
            raise ExtractionError(
                f"{name} does not run on this input: {where} raised {type(error).__name__}: {_first_line(error)}",
                given=str(shape),
                hint="check the dimensions; a model that needs the values of tensors cannot be extracted",
            ) from error
    if not recorder.operations:
        raise ExtractionError(f"{name} runs no operation on this input", given=str(shape))
    return Network(
        tuple(Entry(operation, len(paths), _unique(paths)) for operation, paths in recorder.operations.items()),
        name=name,
        input_shape=shape,
        mode=mode,
        dropped=tuple(
            Dropped(dropped, len(paths), _unique(paths), reason)
            for (dropped, reason), paths in recorder.dropped.items()
        ),
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")


def _unique(paths: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
