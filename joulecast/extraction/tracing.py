"""Tracing: run the forward of a module on PyTorch's meta device, and record the operators that it calls.

Meta tensors have shapes but no memory, so nothing is computed and no weight is allocated. Under `inference_mode`,
PyTorch passes whole operators (linear, scaled_dot_product_attention) to a dispatch mode. An operator that is not in the
table of operators is decomposed into simpler ones until all of them are in the table, or cannot be decomposed further.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import ExtractionError, InputError, JoulecastError, named
from ..operations.inputs import Input, Inputs, shape_text
from ..operations.kinds import KINDS
from ..operations.network import Network, ParameterBytes
from .failures import LONGEST, explained, refuse_module
from .gradients import followed, of_whole_model
from .job import EXPERTS, Job, refuse_optimizer
from .models import exclusive
from .recorder import DTYPES, Recorder


class _OnOneDevice(TorchFunctionMode):
    """Keeps all tensors on the meta device, even if the forward moves them to a GPU.

    `tolist` and `format` read the values of a tensor without calling an operator. They are replaced by one call of
    `item` per number, which a dispatch mode sees.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.tolist and args[0].is_meta:
            return _listed(args[0])
        if func is torch.Tensor.__format__ and args[0].is_meta and not args[0].ndim:
            with contextlib.suppress(RuntimeError):  # an unknown value is formatted by PyTorch, as "..."
                return format(args[0].item(), args[1])
        if func is torch.tensor and kwargs:
            kwargs = {**kwargs, "device": None}  # on the meta device, the tensor would lose its values
        return func(*map(_not_on_gpu, args), **{name: _not_on_gpu(value) for name, value in (kwargs or {}).items()})


def _listed(tensor: torch.Tensor) -> Any:
    return [_listed(part) for part in tensor] if tensor.ndim else tensor.item()


def _not_on_gpu(value: Any) -> Any:
    is_gpu = isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"
    return torch.device("meta") if is_gpu else value


class Forward:
    """The forward of a module, which is not changed, on the meta device. It can be recorded several times.

    The precisions "fp16" and "bf16" convert parameters and inputs to that type.
    """

    def __init__(self, module: torch.nn.Module, inputs: Inputs, precision: str) -> None:
        self.module, self.precision = module, precision
        self._half = DTYPES.get(precision)
        # A parameter that two modules share stays a single tensor.
        once: dict[int, torch.Tensor] = {}
        self.tensors = {
            name: once.setdefault(id(tensor), self._on_meta(tensor)) for name, tensor in _named_tensors(module)
        }
        floating = (p.dtype for p in module.parameters() if p.is_floating_point())
        self._dtype = self._half or next(floating, torch.float32)
        self.args = tuple(map(self.tensor, inputs.positional))
        self.kwargs: dict[str, Any] = {name: self.tensor(item) for name, item in inputs.named}

    def tensor(self, item: Input) -> torch.Tensor:
        """A meta tensor with the shape and type of an input. Raises InputError: there is no such type or tensor."""
        # If the user gives a shape without a type, the module may name one, such as int64 for token ids.
        name = item.dtype or getattr(self.module, "input_dtype", None)
        dtype = getattr(torch, name, None) if name else self._dtype
        if not isinstance(dtype, torch.dtype):
            raise InputError(
                "PyTorch has no such type of tensors",
                given=repr(item.dtype),
                allowed="such as float32, bfloat16 or int64",
            )
        try:
            return self._in_type(torch.empty(item.shape, dtype=dtype, device="meta"))
        except (RuntimeError, OverflowError, TypeError) as error:
            raise InputError(
                "this input is larger than any tensor",
                given=shape_text(item.shape),
                allowed="sizes whose number of bytes fits into 63 bits",
            ) from error

    def parameters(self, *, learned: bool = False) -> list[torch.Tensor]:
        """All parameters, or those that need a gradient, without repeats."""
        names = {name for name, p in self.module.named_parameters() if p.requires_grad or not learned}
        return [tensor for name, tensor in self.tensors.items() if name in names]

    def parameter_bytes(self, casts: int) -> ParameterBytes:
        """Bytes of all parameters and of the learned ones, without repeats, and those of their copies."""
        both = ({id(each): each.nbytes for each in self.parameters(learned=learned)} for learned in (False, True))
        stored, learned = (sum(alone.values()) for alone in both)
        return ParameterBytes(stored, learned, casts)

    @property
    def channels_last(self) -> bool:
        """Whether the filters lie with their channels last; PyTorch then computes convolutions in this order."""
        images = (tensor for tensor in self.parameters() if tensor.ndim == 4 and not tensor.is_contiguous())
        return any(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in images)

    def record(self, recorder: Recorder) -> Any:
        """Run the forward while a recorder records it, and return the module's result."""
        # Nothing is differentiated here, but a forward with frozen parameters may switch gradients off by itself.
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            if recorder.gradients is not None:
                stack.enter_context(torch.enable_grad())
                stack.enter_context(recorder.gradients.through_functions(recorder.calls))
            for around in (
                recorder.autocast.watching(),
                recorder.following(),
                recorder,
                followed(recorder.recomputing),
            ):
                stack.enter_context(around)
            result = self._call()
        recorder.backward(result)
        return result

    def _call(self) -> Any:
        attributes = [(part, dict(part.__dict__)) for part in self.module.modules()]
        try:
            with _OnOneDevice():
                # Shared parameters are the same tensor already, so functional_call need not tie them. It writes what
                # the forward converts into the dictionary, which is therefore a copy.
                return torch.func.functional_call(
                    self.module, dict(self.tensors), self.args, self.kwargs, tie_weights=False
                )
        finally:
            # A forward may store tensors in the module. These would be meta tensors, so they are removed.
            for part, before in attributes:
                part.__dict__.clear()
                part.__dict__.update(before)

    def _on_meta(self, tensor: torch.Tensor) -> torch.Tensor:
        # Autograd does not accept tensors that were made under inference_mode.
        made = self._in_type(tensor.clone() if tensor.is_meta and tensor.is_inference() else tensor.detach().to("meta"))
        # A forward may convert a module to another type, such as a router to fp32, which needs Parameters.
        is_plain = isinstance(tensor, torch.nn.Parameter) and type(made) is torch.Tensor
        return torch.nn.Parameter(made.detach(), tensor.requires_grad) if is_plain else made

    def _in_type(self, tensor: torch.Tensor) -> torch.Tensor:
        # Quantized tensors keep their type.
        quantized = tensor.dtype.itemsize < 2 or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        return tensor.to(self._half) if self._half and tensor.is_floating_point() and not quantized else tensor


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Path and tensor of every parameter and buffer. A tensor that several modules hold appears once for each of them.

    A module that two others share appears once, because `functional_call` would restore the wrong tensor otherwise.
    """
    for path, part in module.named_modules():
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


@contextmanager
def _in_mode(module: torch.nn.Module, mode: str) -> Iterator[None]:
    """Put a module into train or eval mode, and restore the flags of all its submodules afterwards."""
    flags = [(child, child.training) for child in module.modules()]
    with contextlib.suppress(NotImplementedError):  # programs of torch.export cannot change their mode
        module.train(mode == "training")
    try:
        yield
    finally:
        for child, flag in flags:
            child.training = flag


@exclusive
def trace(
    module: torch.nn.Module,
    inputs: Inputs,
    job: Job,
    name: str | None = None,
    prepare: Callable[[Forward], None] | None = None,
    on_trace: Callable[[Recorder], None] | None = None,
) -> Network:
    """List the operations that one forward of a module runs, without computing any of them.

    The module is not changed: parameters, buffers, train/eval flags and the random state stay as they are. A training
    operation stands for its forward and backward. Operations on tensors of another type than fp32, and those in a
    region of autocast, get the precision that they really run in. Module and inputs take the place of the job's.
    `prepare` is called before the forward, and may add arguments to it that are not inputs. `on_trace` is called at the
    end with the recorder, which has every call in its order, whereas a Network has the order of first uses only. Raises
    InputError: a kind or the job's optimizer does not exist. Raises ExtractionError: the module raises an exception on
    this input, or depends on values of the input.
    """
    for kind in (*job.whitelist, *(kind for kind in (job.operators or {}).values() if isinstance(kind, str))):
        named("operation kind", kind, KINDS)
    refuse_optimizer(job.optimizer, job.mode)
    name = name or type(module).__name__
    refuse_module(module)
    with torch.inference_mode(False):
        forward = Forward(module, inputs, job.precision)
    learned = forward.parameters(learned=True)
    recorder = Recorder(module, job, learned, forward.parameters())
    with _in_mode(module, job.mode), torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        try:
            if prepare is not None:
                prepare(forward)
            forward.record(recorder)
            if job.mode == "training" and len(learned) == len(forward.parameters()):
                recorder.calls = of_whole_model(recorder.calls)
            if job.optimizer is not None:
                recorder.optimize(job.optimizer, learned)
        except JoulecastError:
            raise
        except Exception as error:
            raise explained(error, name, recorder, inputs, job) from error
    if not recorder.calls:
        left_out = "; ".join(f"{d.count} x {d.name}: {d.reason}" for d in recorder.dropped.listed())
        raise ExtractionError(
            f"{name} runs no operation on this input",
            given=shape_text(inputs.shape),
            hint=f"what it does run is left out: {left_out}"[:LONGEST] if left_out else None,
        )
    if on_trace is not None:
        on_trace(recorder)
    # Every operation of kind grouped_linear makes this assumption.
    grouped = [EXPERTS for operation, _ in recorder.calls if operation.kind == "grouped_linear"]
    return Network.of_calls(
        recorder.calls,
        name=name,
        input_shape=inputs.shape,
        mode=job.mode,
        dropped=recorder.dropped.listed(),
        assumptions=tuple(dict.fromkeys((*recorder.known.assumptions, *grouped))),
        channels_last=forward.channels_last,
        parameter_bytes=forward.parameter_bytes(recorder.cast_bytes).beside(recorder.calls),
    )
