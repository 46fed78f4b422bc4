"""Which gradients a backward computes, what it runs again, and the work of calls that have no kind."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils.flop_counter import flop_registry

from ..operations.entry import DroppedWork
from ..operations.operation import Operation
from .conversions import Bound
from .known_values import tensors_in

_OPERANDS = {
    **dict.fromkeys(("self", "input", "data", "hx", "mat1", "batch1", "x1"), ("first", "inputs")),
    **dict.fromkeys(("weight", "bias", "params"), ("second", "parameters")),
    **dict.fromkeys(("mat2", "batch2", "vec", "tensor", "other", "exponent", "x2"), ("second", "parameters")),
}
"""Name of an argument in the schemas of operators -> values of `kind.GRADIENTS` if no other one needs a gradient.

The second operand are the parameters of an operation, or the other factor. Other arguments need all gradients."""


class Gradients:
    """Follows which tensors need a gradient, and which operators a gradient reaches from the outputs."""

    def __init__(self, learned: Iterable[torch.Tensor]) -> None:
        self._learned = {id(tensor) for tensor in learned}
        # Of each operator that needs a gradient: the calls recorded before it, and the operators that it depends on.
        # A tensor that needs a gradient is marked with the number of its operator, from 1 on; a detached one with 0.
        self._steps: list[tuple[int, frozenset[int]]] = []
        # Memory that an operator in place wrote, and the number of the operator. It is kept alive, so that no other
        # gets its address.
        self._written: dict[int, tuple[Any, int]] = {}
        self._in_function = False

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any, recorded: int, *, needed: bool) -> None:
        """Mark the results of an operator, through which the backward runs if it is needed.

        `recorded` is the number of calls before those that stand for the operator.
        """
        is_detached = func.overloadpacket.__name__ == "detach"
        if needed and not is_detached:
            self._mark(result, (args, kwargs), recorded, is_written=func._schema.is_mutable)
        elif is_detached or any(getattr(each, "step", None) == 0 for each in tensors_in(args)):
            for leaf in tensors_in(result):
                leaf.step = 0  # type: ignore[attr-defined]

    def _mark(self, result: Any, sources: Any, recorded: int, *, is_written: bool = False) -> None:
        self._steps.append((recorded, self._steps_of(sources)))
        for leaf in tensors_in(result):
            if leaf.is_floating_point() or leaf.is_complex():
                leaf.step = len(self._steps)  # type: ignore[attr-defined]
                if is_written:  # all views of this memory have changed
                    self._written[leaf.untyped_storage()._cdata] = leaf.untyped_storage(), len(self._steps)

    def _steps_of(self, values: Any) -> frozenset[int]:
        """The operators that tensors depend on directly."""
        found = set()
        for tensor in tensors_in(values):
            _, written = self._written.get(tensor.untyped_storage()._cdata, (None, 0))
            step = getattr(tensor, "step", written)
            found |= {step, written} if step else set()
        return frozenset(found - {0})

    def unreached(self, result: Any, recorded: int) -> set[int]:
        """Places of recorded calls that no gradient reaches from the outputs of a model, such as what it detaches."""
        reached = set(self._steps_of(result))
        places: set[int] = set()
        if not reached:
            return places  # The outputs are in a container that PyTorch does not know.
        for step in range(len(self._steps), 0, -1):
            start, sources = self._steps[step - 1]
            if step in reached:
                reached |= sources
            else:
                places.update(range(start, recorded))
            recorded = start
        return places

    def needed(self, *values: Any) -> bool:
        """Whether the backward runs through an operator with these arguments."""
        enabled = torch.is_grad_enabled() or self._in_function
        return enabled and any(map(self._needs, tensors_in(*values)))

    def computed(self, operator: str, bound: Bound) -> tuple[str, ...]:
        """The gradients that an operator computes in the backward: values of `kind.GRADIENTS`, of which a kind has one.

        A bias that is added to a product needs no product for its gradient, which is a sum over rows. If it alone is
        learned, that sum is not counted.
        """
        bias = "self" if operator in ("addmm", "baddbmm") else "bias" if operator.startswith(("linear", "conv")) else ""
        operands = ((name, value) for name, value in bound.items() if name not in ("<output>", bias))
        needs = {_OPERANDS.get(name, ("all",)) for name, value in operands if self.needed(value)}
        return needs.pop() if len(needs) == 1 else ("all",) if needs else ("none",)

    def _needs(self, tensor: torch.Tensor) -> bool:
        step: int | None = getattr(tensor, "step", None)
        if step is None:
            return id(tensor) in self._learned or tensor.untyped_storage()._cdata in self._written
        return step > 0

    @contextmanager
    def through_functions(self, calls: Sequence[Any]) -> Iterator[None]:
        """Follow gradients through functions of autograd that a model defines, whose forward runs without them.

        Their operators count as if they were differentiated as usual. `calls` are those that are recorded.
        """
        function: Any = torch.autograd.Function
        original, mine = vars(function)["apply"], threading.get_ident()

        def apply(cls: Any, *args: Any, **named: Any) -> Any:
            run = original.__get__(None, cls)
            if threading.get_ident() != mine or self._in_function or not self.needed(args, named):
                return run(*args, **named)
            self._in_function = True
            try:
                with torch.no_grad():
                    result = run(*args, **named)
            finally:
                self._in_function = False
            self._mark(result, (args, named, result), len(calls))
            return result

        function.apply = classmethod(apply)
        try:
            yield
        finally:
            function.apply = original


def of_whole_model(calls: list[tuple[Operation, str]]) -> list[tuple[Operation, str]]:
    """The calls of a model that is learned as a whole, which need not say which gradients they compute in most models.

    In these, all products compute all gradients, but for that of the data in the first layer. Composition knows this of
    lists of operations, too (predictors/networks/parts.py). What else is done with data alone costs next to nothing.
    """
    partial = [operation for operation, _ in calls if operation.gradients not in ("all", "recomputed")]
    products = [each for each in partial if each.product or each.gradients in ("first", "second")]
    first = next((operation for operation, _ in calls if operation.parameters), None)
    if len(products) > 1 or any(each is not first or each.gradients != "parameters" for each in products):
        return calls
    complete = ("all", "recomputed")
    return [(each if each.gradients in complete else each.replace(gradients="all"), path) for each, path in calls]


class CallSizes:
    """Computes the work of operator calls of one forward; views of its parameters count as parameters, too."""

    def __init__(self, parameters: Collection[torch.Tensor]) -> None:
        self._parameters = {_storage(tensor) for tensor in parameters}
        self._counted: set[int] = set()

    def work(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> DroppedWork:
        """The work of one call, with its arguments and its result on the meta device."""
        read, made = ({id(tensor): tensor for tensor in tensors_in(part)} for part in ((args, kwargs), result))
        moved = sum(tensor.nbytes for tensor in {**read, **made}.values())
        learned = [tensor for tensor in read.values() if _storage(tensor) in self._parameters]
        # A parameter that several calls read counts once.
        first = {_storage(tensor): tensor.nbytes for tensor in learned if _storage(tensor) not in self._counted}
        self._counted.update(first)
        flops, formula = 0, flop_registry.get(func.overloadpacket)
        # A formula may not support this form of the operator, whose bytes are counted nevertheless.
        with suppress(AssertionError, TypeError, ValueError):
            flops = int(formula(*args, **kwargs, out_val=result)) if formula else 0
        return DroppedWork(
            flops=flops,
            moved_bytes=moved,
            parameter_bytes=sum(first.values()),
            output_bytes=sum(tensor.nbytes for place, tensor in made.items() if place not in read),
            largest_bytes=moved - sum(tensor.nbytes for tensor in learned),
        )


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


Around = Callable[[Any, bool], AbstractContextManager[None]]
"""What is done around the function of a checkpoint, from its inputs and whether recomputing stops early."""

_SAVE_NOTHING = frozenset({"add", "sub", "neg", "cat", "copy"})
_SAVE_INPUTS = ("convolution", "matmul")  # Families of operations that save what they are given, before they run.


@contextmanager
def followed(around: Around) -> Iterator[None]:
    """Within this context, a checkpoint in this thread is a plain call of its function, with something around it.

    Its two ways (use_reentrant) replace autograd's storing and running in ways that meta tensors do not take. PyTorch
    finds both in its own module when a model calls a checkpoint, so they are replaced there.
    """
    generator, function = checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction
    mine = threading.get_ident()
    signature = inspect.signature(generator)

    def without_reentrant(*given: Any, **named: Any) -> Iterator[None]:
        if threading.get_ident() != mine:
            yield from generator(*given, **named)
            return
        bound = signature.bind(*given, **named).arguments
        with around((bound.get("args", ()), bound.get("kwargs", {})), bound.get("early_stop", True)):
            yield

    class Reentrant:
        @staticmethod
        def apply(run: Callable[..., Any], preserves: bool, *args: Any) -> Any:
            if threading.get_ident() != mine:
                return function.apply(run, preserves, *args)  # type: ignore[no-untyped-call]
            with around(args, False):
                return run(*args)

    module: Any = checkpoint
    module._checkpoint_without_reentrant_generator, module.CheckpointFunction = without_reentrant, Reentrant
    try:
        yield
    finally:
        module._checkpoint_without_reentrant_generator, module.CheckpointFunction = generator, function


def recomputed(calls: Sequence[tuple[Operation, str]], stops_early: bool) -> list[tuple[Operation, str]]:
    """The calls that the backward repeats of a checkpoint's forward.

    If recomputing stops as soon as all tensors are there that the backward needs, the last product is not repeated,
    because its inputs are saved before it runs.
    """
    if not any(operation.has_backward and operation.row.has_gradient for operation, _ in calls):
        return []
    repeated = [call for call in calls if call[0].gradients != "recomputed" and call[0].kind != "checkpoint"]
    if stops_early:
        while repeated and repeated[-1][0].kind in _SAVE_NOTHING:
            repeated.pop()
        if repeated and repeated[-1][0].row.family in _SAVE_INPUTS:
            repeated.pop()
    return [(operation.replace(gradients="recomputed"), path) for operation, path in repeated]


_LAYERS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu", "roi_align"})


class _Whole(torch.autograd.Function):
    """A function with given outputs, whose backward returns one gradient of the right shape for each input."""

    @staticmethod
    def forward(ctx: Any, outputs: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*inputs)
        return tuple(torch.empty_like(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


class WholeLayers(TorchFunctionMode):
    """Replaces recurrent layers and `roi_align` by single functions of autograd."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in _LAYERS:
            return result
        inputs = tensors_in(args)
        outputs = [result] if isinstance(result, torch.Tensor) else result
        made = _Whole.apply([output.detach() for output in outputs], *inputs)  # type: ignore[no-untyped-call]
        return made[0] if isinstance(result, torch.Tensor) else made
