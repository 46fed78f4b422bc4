"""The dispatch mode that records the operators that PyTorch executes, with the path of the module that runs each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import ExtractionError
from ..operations.entry import BOOKKEEPING, EXEMPT, SHAPE_ARITHMETIC, DroppedTally, DroppedWork, is_exempt
from ..operations.kind import GRADIENTS
from ..operations.kinds import KINDS
from ..operations.operation import Operation, real_precision
from ..operations.rules import Shape
from .autocast import Autocast
from .conversions import Bound, Converted, counted_from_front, is_tensor, shape_of
from .gradients import CallSizes, Gradients, recomputed
from .job import Assumptions, Job
from .known_values import KnownValues, tensors_in, without_memory
from .operators import (
    CASTS_INPUT,
    CONTIGUOUS_INPUT,
    COPIES_INPUT,
    FREE,
    MAKES_MASKS,
    OPERATORS,
    QUANTIZED_PRODUCTS,
    SAVES_INPUT,
)

DTYPES: Mapping[str, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
_NAMED = {**{dtype: name for name, dtype in DTYPES.items()}, torch.float64: "fp64", torch.complex128: "fp64"}
_FLOAT8: Mapping[torch.dtype, str] = {torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8"}
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operators with the path of the module that runs them, as a job asks.

    The parameters are all tensors that the forward uses as such, and the learned ones those that need a gradient.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        job: Job,
        learned: Collection[torch.Tensor] = (),
        parameters: Collection[torch.Tensor] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {id(child): name for name, child in module.named_modules()}
        self._mode, self._whitelist, self._operators = job.mode, job.whitelist, job.operators or {}
        self._precision = "default" if job.precision in DTYPES else job.precision
        self._learned = {id(tensor) for tensor in learned}
        self._parameters = {id(tensor) for tensor in parameters}
        self.gradients = Gradients(learned) if job.mode == "training" else None
        self._kept: dict[int, torch.Tensor] = {}  # inputs of checkpoints
        self.cast_bytes = 0
        """Bytes of the copies of parameters that autocast makes and that stay in memory."""
        self._stack: list[tuple[str, bool]] = []
        self._thread = threading.get_ident()
        self.autocast = Autocast()
        self.known = KnownValues(Assumptions.of(job.assume))
        self.operator = ""  # name of the operator that is running
        self.calls: list[tuple[Operation, str]] = []
        self._sizes = CallSizes(parameters)
        self.dropped = DroppedTally()
        """Operator calls that no operation represents."""
        self.operators_run: set[str] = set()

    @property
    def path(self) -> str:
        """Path of the module that is running."""
        return self._stack[-1][0] if self._stack else ""

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow which module is running, by hooks on all modules."""
        hooks = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread:
            return  # The hooks see the modules of all threads.
        is_whole = type(module).__name__ == "StochasticDepth"  # One operation, although it runs several operators.
        outer_path, inside = self._stack[-1] if self._stack else ("", False)
        # A module that is created during the forward has no name, so its operators count for its caller.
        self._stack.append((self._names.get(id(module), outer_path), inside or is_whole))
        if is_whole and module.training and module.p:
            attributes = {"p": module.p, "mode": module.mode}
            needed = self._computed("", {"input": inputs[0]})
            self._record(("stochastic_depth", [tuple(inputs[0].shape)], attributes), inputs[0].dtype, needed)

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() == self._thread:
            self._stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, torch.Tensor) and kind not in _PLAIN_TENSORS for kind in types):
            # A subclass of Tensor, such as torchao's quantized weights, decides itself which operators it runs.
            return NotImplemented
        args, kwargs = self._on_meta(args), {name: self._on_meta(value) for name, value in (kwargs or {}).items()}
        if "device" in kwargs:
            kwargs["device"] = torch.device("meta")
        inside_whole = bool(self._stack) and self._stack[-1][1]
        name = func.overloadpacket.__name__
        # The in-place form "add_" moves the same bytes as "add"; "__and__" is not an in-place form.
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        self.operator = operator = f"{func.namespace}.{plain}"
        self.operators_run.add(operator)
        is_needed = self.gradients is not None and self.gradients.needed(args, kwargs)
        if func.namespace == "aten":
            cast = partial(self._cast, is_needed)
            args, kwargs = self.autocast.cast(name, args, kwargs, cast, lambda t: id(t) in self._learned)
        # `where` with a condition alone is `nonzero`, and not the operator of this name in the table.
        convert = None if func is torch.ops.aten.where.default else self._conversion(operator)
        if plain.startswith("conv") and any(tensor.is_complex() for tensor in tensors_in(args)):
            convert = None  # PyTorch computes it by three real ones.
        if convert is None and plain not in FREE:
            with self, self.autocast.within(name if func.namespace == "aten" else operator):
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = self.known.run(func, args, kwargs)
        self.operator = ""
        names = (argument.name for argument in func._schema.arguments)
        bound: Bound = {**dict(zip(names, args, strict=False)), **kwargs}
        if self.gradients is not None:
            self.gradients.follow(func, bound, result, len(self.calls), self.path, needed=is_needed)
        if inside_whole or plain in FREE:
            return result
        if convert is None or _is_counter(args, result) or (plain in MAKES_MASKS and self.known.from_shapes(result)):
            self._drop(operator, func, args, kwargs, result)
            return result
        defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
        bound = {**defaults, **bound, "<output>": result}
        first = next((value for value in args if isinstance(value, torch.Tensor)), result)
        if isinstance(first, torch.Tensor) and first.is_complex():
            bound = counted_from_front(bound, first.ndim)
        needed = ("none",) if self.gradients and not is_needed else self._computed(plain, bound)
        if plain in CONTIGUOUS_INPUT and not first.is_contiguous():
            self._record(("copy", [tuple(first.shape)], {}), first.dtype, self._computed("", {"input": first}))
        if plain in CASTS_INPUT and bound["dtype"] not in (None, first.dtype) and not _widens(plain, first.dtype):
            self._record(("copy", [tuple(first.shape)], {}), bound["dtype"], self._computed("", {"input": first}))
        if plain == name and plain in COPIES_INPUT:
            self._record(("copy", [shape_of(result) or (1,)], {}), first.dtype, needed)
        if self._mode == "training" and plain != name and plain in SAVES_INPUT and needed != ("none",):
            self._record(("save_input", [tuple(first.shape)], {}), first.dtype)
        converted = convert(bound)
        if converted is not None:
            self._record(converted, first.dtype if plain in QUANTIZED_PRODUCTS else _dtype(result, args), needed)
        return result

    def backward(self, result: Any) -> None:
        """Record what the backward from a result of the forward does beside the operations' own gradients.

        Raises ExtractionError: PyTorch refuses this backward. It accepts none of a module without parameters either,
        which is taken for a part of a model that is learned.
        """
        if self.gradients is None:
            return
        if self._parameters and tensors_in(result) and not self.gradients.needed(result):
            raise ExtractionError(
                "no output of this model requires a gradient, so there is no backward",
                given=f"{len(self._learned)} of {len(self._parameters)} parameters require one",
                allowed="in training, a model whose outputs depend on a parameter that requires a gradient",
                hint="set requires_grad on what is learned, or give mode='inference'",
            )
        unreached, sums, casts = self.gradients.backward(result, len(self.calls))
        for place in unreached:
            operation, path = self.calls[place]
            if operation.has_backward:
                self.calls[place] = operation.replace(gradients="none"), path
        self._stack = [("(backward)", False)]
        for kind, edges in (("gradient_accumulation", sums), ("copy", casts)):
            for edge in edges:
                if edge.shape:
                    self._record((kind, [edge.shape], {}), edge.dtype, ("recomputed",))

    @contextmanager
    def recomputing(self, inputs: Any, stops_early: bool) -> Iterator[None]:
        """Record a checkpoint of training: the inputs that it keeps, and what the backward runs again.

        An input of several checkpoints is kept once. Operations at the end that are not run again (`stops_early`) count
        what they save as all others do. It is subtracted here, because it is the input of what follows.
        """
        start = len(self.calls)
        if self.gradients is not None:
            outside, self.gradients.in_checkpoint = self.gradients.in_checkpoint, True
        yield
        if self.gradients is not None:
            self.gradients.in_checkpoint = outside
        forward = [
            (each, path)
            for each, path in self.calls[start:]
            if each.gradients != "recomputed" and each.kind != "checkpoint"
        ]
        repeated = recomputed(forward, stops_early) if self._mode == "training" else []
        if not repeated:
            return
        floating = [leaf for leaf in tensors_in(inputs) if leaf.is_floating_point()]
        kept = {id(leaf): leaf for leaf in floating if id(leaf) not in self._parameters | self._kept.keys()}
        self._kept.update(kept)
        kept_bytes = sum(leaf.nbytes for leaf in kept.values()) - sum(
            each.row.saved(each) for each, _ in forward[len(repeated) :] if each.has_backward
        )
        dtype = floating[0].dtype if floating else torch.float32
        self._record(("checkpoint", [(max(1, round(kept_bytes / dtype.itemsize)),)], {}), dtype)
        self.calls += repeated

    def optimize(self, optimizer: str, learned: Iterable[torch.Tensor]) -> None:
        """Record the steps of an optimizer: one operation for all parameters of a type."""
        self._stack = [("(optimizer)", False)]
        elements: Counter[torch.dtype] = Counter()
        for tensor in learned:
            elements[tensor.dtype] += tensor.numel()
        for dtype, number in elements.items():
            self._record((f"{optimizer}_step", [(number,)], {}), dtype)

    def _on_meta(self, value: Any) -> Any:
        """Move an argument to the meta device: tensors that a module holds besides its parameters are still real."""
        if isinstance(value, torch.Tensor):
            return value if value.is_meta else without_memory(value)
        if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor | list | tuple) for item in value):
            return type(value)(map(self._on_meta, value))
        return value

    def _conversion(self, operator: str) -> Callable[[Bound], Converted] | None:
        own = self._operators.get(operator)
        if isinstance(own, str):
            return partial(_same_kind, own)
        return own or OPERATORS.get(operator.removeprefix("aten."))

    def _computed(self, operator: str, bound: Bound) -> tuple[str, ...]:
        return ("all",) if self.gradients is None else self.gradients.computed(operator, bound)

    def _cast(self, is_needed: bool, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        with self:
            made = tensor.to(dtype)
        if id(tensor) in self._learned or (id(tensor) in self._parameters and is_needed):
            self.cast_bytes += made.nbytes  # PyTorch caches it, or the gradient of the operator's input needs it.
        return made

    def _drop(self, operator: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        reason = "no operation kind"
        if _is_counter(args, result):
            reason = BOOKKEEPING
        elif operator in EXEMPT or self.known.knows(result) or self.known.from_shapes(result):
            reason = SHAPE_ARITHMETIC
        exempt = is_exempt(operator, reason)
        self.dropped.add(operator, reason, self.path, None if exempt else self._sizes.work(func, args, kwargs, result))

    def _record(
        self,
        converted: tuple[str, list[Shape], dict[str, Any]],
        dtype: torch.dtype,
        gradients: Sequence[str] = ("all",),
    ) -> None:
        kind, shapes, attributes = converted
        partial = [value for value in gradients if value in KINDS[kind].gradients and value != "all"]
        if partial and (len(shapes) > 1 or partial != ["first"]):
            attributes = {**attributes, GRADIENTS: partial[0]}
        spatial = KINDS[kind].spatial
        if spatial is not None and len(shapes[0]) == 1 + spatial:
            shapes = [(1, *shapes[0])]  # PyTorch takes an image without a batch dimension as a batch of one.
        if any(0 in shape for shape in shapes):
            return  # nothing to do, so nothing is launched
        reason = ""
        if kind not in self._whitelist:
            reason = "not on the whitelist"
        elif dtype in _FLOAT8 and _FLOAT8[dtype] not in KINDS[kind].quantized:
            reason = f"in {str(dtype).removeprefix('torch.')}, which is no precision of operations"
        named = _NAMED.get(dtype) or (None if reason else _FLOAT8.get(dtype))
        precision = named or real_precision(kind, self._precision)
        operation = Operation(kind, shapes, attributes, precision=precision, mode=self._mode)
        if reason:
            self.dropped.add(kind, reason, self.path, DroppedWork.of(operation, dtype.itemsize))
        else:
            self.calls.append((operation, self.path))


def _same_kind(kind: str, bound: Bound) -> Converted:
    """Conversion of a user's operator to a kind without required attributes."""
    tensors = [tuple(value.shape) for name, value in bound.items() if name != "<output>" and is_tensor(value)]
    return kind, tensors[: KINDS[kind].inputs[1]], {}


def _widens(operator: str, dtype: torch.dtype) -> bool:
    """Whether the kernel of an operator on a GPU reads this type and computes in a wider one."""
    return operator.endswith("softmax") and dtype == torch.float16


def _is_counter(args: Any, result: Any) -> bool:
    # For example, batch norm counts its batches.
    tensors = tensors_in(args, result)
    return bool(tensors) and all(t.ndim == 0 and not (t.is_floating_point() or t.is_complex()) for t in tensors)


def _dtype(result: Any, args: Any) -> torch.dtype:
    """The type in which an operator runs: that of its result, or of the first floating-point argument.

    A cast to eight bits counts as a copy in the type of its input.
    """
    if isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex()):
        wider = (t.dtype for t in tensors_in(args) if t.is_floating_point() and t.dtype not in _FLOAT8)
        return next(wider, result.dtype) if result.dtype in _FLOAT8 else result.dtype
    return next((t.dtype for t in tensors_in(result, args) if t.is_floating_point()), torch.float32)
