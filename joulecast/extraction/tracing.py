"""From a model to its Network: run the forward on the meta device and write down what PyTorch executes.

Meta tensors have shapes but no memory, so nothing is computed and no weight is allocated. Under
`inference_mode` PyTorch hands whole operators (linear, scaled_dot_product_attention) to a dispatch mode; the ones
that the table of operators does not know are broken down until it does, or until they are primitive.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..errors import ExtractionError, InputError, JoulecastError, unknown_name
from ..operations.inputs import Input, Inputs, shape_text
from ..operations.kinds import KINDS
from ..operations.network import Network
from ..operations.operation import MODES, real_precision
from .assumptions import EXPERTS, Assume, Assumptions
from .exclusive import exclusive
from .failures import LONGEST, explained, what_to_assume
from .known_values import NeedsValuesError
from .operators import WHITELIST
from .optimizers import refuse_optimizer
from .recorder import DTYPES, Accumulations, CustomOperators, Recorder, Replay
from .refused_modules import refuse_module
from .whole_layers import WholeLayers

Tensors = dict[str, torch.Tensor]


class _OnOneDevice(TorchFunctionMode):
    """Leaves tensors where they are when a forward sends them to a GPU: there they would be on it already.

    Lists and texts that a forward makes of tensors are made number by number, as operators that a dispatch mode sees.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.tolist and args[0].is_meta:
            return _listed(args[0])
        if func is torch.Tensor.__format__ and args[0].is_meta and not args[0].ndim:
            with contextlib.suppress(RuntimeError):  # a value that nobody knows is told as PyTorch does
                return format(args[0].item(), args[1])
        if func is torch.tensor and kwargs:
            kwargs = {**kwargs, "device": None}  # its numbers are known, which they would not be on the meta device
        return func(*map(_not_on_gpu, args), **{name: _not_on_gpu(value) for name, value in (kwargs or {}).items()})


def _listed(tensor: torch.Tensor) -> Any:
    return [_listed(part) for part in tensor] if tensor.ndim else tensor.item()


def _not_on_gpu(value: Any) -> Any:
    is_gpu = isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"
    return torch.device("meta") if is_gpu else value


class Forward:
    """One forward of a module on the meta device, to be recorded as often as needed.

    Args:
        module: Is not changed.
        inputs: Shapes, and types where they are not that of the parameters.
        precision: "fp16" and "bf16" turn parameters and inputs into that type.
    """

    def __init__(self, module: torch.nn.Module, inputs: Inputs, precision: str) -> None:
        self.module, self.precision = module, precision
        self._half = DTYPES.get(precision)
        # Parameters that two modules share stay one tensor.
        once: dict[int, torch.Tensor] = {}
        self.tensors = {
            name: once.setdefault(id(tensor), self._in_type(tensor if tensor.is_meta else tensor.detach().to("meta")))
            for name, tensor in _named_tensors(module)
        }
        floating = (p.dtype for p in module.parameters() if p.is_floating_point())
        self._dtype = self._half or next(floating, torch.float32)
        self.args = tuple(map(self.tensor, inputs.positional))
        self.kwargs: dict[str, Any] = {name: self.tensor(item) for name, item in inputs.named}

    def tensor(self, item: Input) -> torch.Tensor:
        """An input without memory.

        Raises:
            InputError: PyTorch has no such type, or no tensor of this size.
        """
        # A module may say what it takes where a bare shape does not: token ids, say.
        name = item.dtype or getattr(self.module, "input_dtype", None)
        dtype = getattr(torch, name, None) if name else self._dtype
        if not isinstance(dtype, torch.dtype):
            raise InputError("PyTorch has no such type of tensors", given=repr(item.dtype))
        try:
            return self._in_type(torch.empty(item.shape, dtype=dtype, device="meta"))
        except (RuntimeError, OverflowError, TypeError) as error:
            raise InputError("this input is larger than any tensor", given=shape_text(item.shape)) from error

    def with_inputs(self, inputs: Inputs, further: Mapping[str, Any]) -> Forward:
        """The same module with other inputs, and arguments that are no inputs."""
        other = Forward(self.module, inputs, self.precision)
        other.kwargs.update(further)
        return other

    def learned(self) -> list[torch.Tensor]:
        """Parameters that need a gradient, each once."""
        names = {name for name, p in self.module.named_parameters() if p.requires_grad}
        return [tensor for name, tensor in self.tensors.items() if name in names]

    def parameters(self) -> list[torch.Tensor]:
        """All parameters, each once."""
        names = {name for name, _ in self.module.named_parameters()}
        return [tensor for name, tensor in self.tensors.items() if name in names]

    def record(self, recorder: Recorder) -> Any:
        """Run it once while a recorder writes down; returns what the module returns."""
        with torch.inference_mode(), recorder.autocast.watching(), recorder.following(), recorder:
            return self._call(self.tensors)

    def record_accumulations(self, recorder: Recorder) -> None:
        """Run forward and backward and write down what no forward shows.

        Every other kernel of the backward belongs to an operation of the forward; a training operation stands for
        both.
        """
        learned = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        once: dict[int, torch.Tensor] = {}
        leaves = {
            name: once.setdefault(
                id(tensor), tensor.detach().requires_grad_(name in learned and tensor.is_floating_point())
            )
            for name, tensor in self.tensors.items()
        }
        with torch.enable_grad(), recorder.autocast.watching(), Replay(recorder), WholeLayers():
            result = self._call(leaves)
        outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outputs:
            with Accumulations(recorder):
                torch.autograd.backward(outputs, [torch.empty_like(t) for t in outputs])

    def _call(self, tensors: Tensors) -> Any:
        attributes = [(part, dict(part.__dict__)) for part in self.module.modules()]
        try:
            with _OnOneDevice():
                # Shared parameters are one tensor here already.
                return torch.func.functional_call(self.module, tensors, self.args, self.kwargs, tie_weights=False)
        finally:
            # What a forward keeps in the module would be tensors without memory.
            for part, before in attributes:
                part.__dict__.clear()
                part.__dict__.update(before)

    def _in_type(self, tensor: torch.Tensor) -> torch.Tensor:
        # What is quantized, and knows its own type, stays what it is.
        quantized = tensor.dtype.itemsize < 2 or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        return tensor.to(self._half) if self._half and tensor.is_floating_point() and not quantized else tensor


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers, once for every place that holds one.

    A module that two others share is one place: `functional_call` would give it back the wrong tensor otherwise.
    """
    for path, part in module.named_modules():
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


@contextmanager
def _in_mode(module: torch.nn.Module, mode: str) -> Iterator[None]:
    """Put the module into train or eval mode, and every part of it back as it was."""
    flags = [(child, child.training) for child in module.modules()]
    with contextlib.suppress(NotImplementedError):  # what torch.export makes has one mode only
        module.train(mode == "training")
    try:
        yield
    finally:
        for child, flag in flags:
            child.training = flag


@exclusive
def trace(
    module: torch.nn.Module,
    input_shape: Any,
    *,
    mode: str = "inference",
    precision: str = "default",
    name: str | None = None,
    whitelist: Collection[str] = WHITELIST,
    operators: CustomOperators | None = None,
    optimizer: str | None = None,
    assume: Assume | None = None,
    prepare: Callable[[Forward], None] | None = None,
    on_trace: Callable[[Recorder], None] | None = None,
) -> Network:
    """List the operations that one forward of a module runs, without computing any of them.

    The module is not changed: parameters, buffers, train/eval flags and the random state stay as they are.

    Args:
        module: Any module.
        input_shape: Shape of its input, batch first; a list of shapes; a dictionary of names and shapes. An example
            tensor may stand for a shape: its type is taken, its values are not. A shape alone has the type of the
            parameters.
        mode: "inference" runs it in eval mode, "training" in train mode; a training operation stands for its
            forward and backward.
        precision: "fp16" and "bf16" run the module in that type; the others say what its fp32 operations run in.
            Operations on tensors of another type, and those in a region of autocast, get the precision that they
            really have.
        name: What to call the network.
        whitelist: Kinds to keep; others are listed in `Network.dropped` and count as not covered.
        operators: Operators of your own: "namespace.name" and its kind, or a function from its arguments by name to
            kind, input shapes and attributes.
        optimizer: "sgd", "adam" or "adamw", whose step over all parameters is added to a training iteration.
        assume: What stands in for values that only the input has; see `Assumptions`.
        prepare: Called before the forward; adds arguments that are no inputs.
        on_trace: Receives the recorder at the end: every single call in order, where a Network keeps the order of first
            uses only, and the operators that the model runs.

    Returns:
        Unique operations with counts and module paths, in order of first use.

    Raises:
        InputError: The shape is no shape, or mode, precision or a kind does not exist.
        ExtractionError: The module raises on this input, or needs real values.
    """
    inputs = Inputs.of(input_shape)
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    real_precision("conv2d", precision)
    own = [kind for kind in (operators or {}).values() if isinstance(kind, str)]
    for kind in [*whitelist, *own]:
        if kind not in KINDS:
            raise unknown_name("operation kind", kind, KINDS)
    refuse_optimizer(optimizer, mode)
    name = name or type(module).__name__
    refuse_module(module)
    assumptions = Assumptions.of(assume)
    forward = Forward(module, inputs, precision)
    recorder = Recorder(
        module, mode, precision, whitelist, operators, forward.learned(), forward.parameters(), assumptions
    )
    with _in_mode(module, mode), torch.random.fork_rng(devices=[]):
        try:
            if prepare is not None:
                prepare(forward)
            forward.record(recorder)
            if mode == "training":
                forward.record_accumulations(recorder)
            if optimizer is not None:
                recorder.optimize(optimizer, forward.learned())
        except JoulecastError:
            raise
        except Exception as error:
            hint = None
            if isinstance(error, NeedsValuesError):
                again = partial(trace, module, input_shape, mode=mode, precision=precision, whitelist=whitelist)
                hint = what_to_assume(partial(again, operators=operators, prepare=prepare), assume)
            raise explained(error, name, recorder, inputs, hint) from error
    if not recorder.calls:
        left_out = "; ".join(f"{d.count} x {d.name}: {d.reason}" for d in recorder.dropped)
        raise ExtractionError(
            f"{name} runs no operation on this input",
            given=shape_text(inputs.shape),
            hint=f"what it does run is left out: {left_out}"[:LONGEST] if left_out else None,
        )
    if on_trace is not None:
        on_trace(recorder)
    return Network.of_calls(
        recorder.calls,
        name=name,
        input_shape=inputs.shape,
        mode=mode,
        dropped=recorder.dropped,
        assumptions=_stated(assumptions, recorder),
    )


def _stated(assumptions: Assumptions, recorder: Recorder) -> tuple[str, ...]:
    """Assumptions in words: those of the user, and that which the kind of grouped products makes in any case."""
    grouped = any(operation.kind == "grouped_linear" for operation, _ in recorder.calls)
    return tuple(dict.fromkeys([*assumptions, *([EXPERTS] if grouped else [])]))
