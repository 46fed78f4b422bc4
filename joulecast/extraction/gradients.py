"""Which gradients a backward computes, what it runs again, and the work of calls that have no kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils import checkpoint
from torch.utils.flop_counter import flop_registry

from ..operations.entry import DroppedWork
from ..operations.operation import Operation
from ..operations.rules import Shape
from .conversions import Bound, shape_of
from .in_place import Memory, Saved, refuse_overwritten, saved, write
from .known_values import tensors_in
from .models import replaced

_OPERANDS = {
    **dict.fromkeys(("self", "input", "data", "hx", "mat1", "batch1", "x1"), ("first", "inputs")),
    **dict.fromkeys(("weight", "bias", "params"), ("second", "parameters")),
    **dict.fromkeys(("mat2", "batch2", "vec", "tensor", "other", "exponent", "x2"), ("second", "parameters")),
}
"""Name of an argument in the schemas of operators -> values of `kind.GRADIENTS` if no other one needs a gradient.

The second operand are the parameters of an operation, or the other factor. Other arguments need all gradients."""


@dataclass(eq=False, slots=True)
class Edge:
    """A tensor as autograd's graph has it: the step that made it, 0 for learned tensors, its shape and its type."""

    step: int
    shape: Shape
    dtype: torch.dtype


_TYPES_GRADIENTS = frozenset(
    """
    _to_copy copy_ softmax log_softmax cumsum cumprod batch_norm native_batch_norm layer_norm native_layer_norm
    group_norm native_group_norm rms_norm mse_loss smooth_l1_loss
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
"""Operators whose backward computes each gradient in the type of its tensor.

For all others, the backward computes it in the type of the result, and the engine of autograd casts it
(torch/csrc/autograd/engine.cpp, `validate_outputs`): that of the bf16 factor of a product with an fp32 tensor."""


class _Step(NamedTuple):
    """An operator that needs a gradient: the calls recorded before it, and the tensors that it reads.

    The gradients of those in `casts` are cast to their type after they have been computed; `saved` is what these need.
    What is run within a function of autograd is no step of the backward, which has the whole function as one.
    """

    recorded: int
    reads: tuple[Edge, ...]
    casts: tuple[Edge, ...]
    saved: tuple[Saved, ...]
    is_inside: bool


class Gradients:
    """Follows which tensors need a gradient, and which operators a gradient reaches from the outputs.

    The edge of a tensor that needs a gradient is an attribute of it.

    Attributes:
        in_checkpoint: Whether a checkpoint runs, which keeps nothing that its operators need.
    """

    def __init__(self, learned: Iterable[torch.Tensor]) -> None:
        self._steps: list[_Step] = []
        self._in_function = self.in_checkpoint = False
        for tensor in learned:
            tensor.edge = Edge(0, shape_of(tensor), tensor.dtype)  # type: ignore[attr-defined]
            Memory.of(tensor).is_leaf = True

    def follow(self, func: Any, bound: Bound, result: Any, recorded: int, path: str, *, needed: bool) -> None:
        """Mark the results of an operator, through which the backward runs if it is needed.

        `recorded` is the number of calls before those that stand for the operator, `path` that of the module which runs
        it. Raises ExtractionError: PyTorch refuses a write in place.
        """
        name = func.overloadpacket.__name__
        # Of the input of the others, only sizes are read.
        if name == "detach" or name.endswith("_like") or name.startswith("new_"):
            return
        if func.is_view:
            viewed = tensors_in(bound)[0]
            is_part = not isinstance(result, torch.Tensor) or getattr(viewed, "is_one_of_several", False)
            for leaf in tensors_in(result):
                leaf.memory = Memory.of(viewed)  # type: ignore[attr-defined]
                leaf.is_one_of_several = is_part  # type: ignore[attr-defined]
        keeps = needed and not (self._in_function or self.in_checkpoint)
        needs = [*saved(name, bound, result, self.needed)] if keeps else []
        if func._schema.is_mutable:
            write(func, bound, path, needed=needed)
        if needed:
            reads = self._edges(bound, recorded)
            dtypes = () if name in _TYPES_GRADIENTS else {leaf.dtype for leaf in tensors_in(result)[:1]}
            casts = [edge for edge in reads for dtype in dtypes if _is_cast(dtype, edge.dtype)]
            self._mark(result, reads, recorded, casts, needs, is_written=func._schema.is_mutable)

    def _mark(
        self,
        result: Any,
        reads: list[Edge],
        recorded: int,
        casts: Sequence[Edge] = (),
        needs: Sequence[Saved] = (),
        *,
        is_written: bool = False,
    ) -> None:
        self._steps.append(_Step(recorded, tuple(reads), tuple(casts), tuple(needs), self._in_function))
        for leaf in tensors_in(result):
            if not (leaf.is_floating_point() or leaf.is_complex()):
                continue
            if is_written:
                memory = Memory.of(leaf)
                memory.written = Edge(len(self._steps), memory.shape, leaf.dtype)
            else:
                leaf.edge = Edge(len(self._steps), shape_of(leaf), leaf.dtype)  # type: ignore[attr-defined]

    def _edges(self, values: Any, recorded: int) -> list[Edge]:
        """Of each tensor that needs a gradient its edge, once for each time that it stands among the values."""
        return [edge for tensor in tensors_in(values) if (edge := self._edge(tensor, recorded)) is not None]

    def _edge(self, tensor: torch.Tensor, recorded: int) -> Edge | None:
        edge, memory = _edge_of(tensor), getattr(tensor, "memory", None)
        if edge is None or memory is None or memory.written is None or edge.step > memory.written.step:
            return edge
        edge = memory.written
        if shape_of(tensor) != memory.shape:  # autograd makes views of memory that was written anew
            self._steps.append(_Step(recorded, (edge,), (), (), self._in_function))
            edge = Edge(len(self._steps), shape_of(tensor), tensor.dtype)
            tensor.edge = edge  # type: ignore[attr-defined]
        return edge

    def backward(self, result: Any, recorded: int) -> tuple[set[int], list[Edge], list[Edge]]:
        """What a backward from the outputs of a model does.

        Returns the places of recorded calls that no gradient reaches, such as what a model detaches; tensors in the
        order in which two of their gradients are added up, one less than there are readers; and tensors to whose type a
        gradient is cast. Raises ExtractionError: PyTorch refuses this backward.
        """
        outputs = self._edges(result, recorded)
        reached, given = {edge.step for edge in outputs}, set[Edge]()
        places: set[int] = set()
        sums: list[Edge] = []
        casts: list[Edge] = []

        def gradients(edges: Iterable[Edge]) -> None:
            for edge in edges:
                if edge in given:
                    sums.append(edge)
                given.add(edge)

        gradients(outputs)
        for number in range(len(self._steps), 0, -1):
            step = self._steps[number - 1]
            if number in reached or not outputs:  # if these are in a container that PyTorch does not know
                reached.update(edge.step for edge in step.reads)
                if not step.is_inside:
                    gradients(step.reads)
                    casts += step.casts
                if outputs:
                    refuse_overwritten(step.saved)
            else:
                places.update(range(step.recorded, recorded))
            recorded = step.recorded
        return places, sums, casts

    def needed(self, *values: Any) -> bool:
        """Whether the backward runs through an operator with these arguments."""
        enabled = torch.is_grad_enabled() or self._in_function
        return enabled and any(_edge_of(tensor) is not None for tensor in tensors_in(*values))

    def computed(self, operator: str, bound: Bound) -> tuple[str, ...]:
        """The gradients that an operator computes in the backward: values of `kind.GRADIENTS`, of which a kind has one.

        A bias that is added to a product needs no product for its gradient, which is a sum over rows. If it alone is
        learned, that sum is not counted.
        """
        bias = "self" if operator in ("addmm", "baddbmm") else "bias" if operator.startswith(("linear", "conv")) else ""
        operands = ((name, value) for name, value in bound.items() if name not in ("<output>", bias))
        needs = {_OPERANDS.get(name, ("all",)) for name, value in operands if self.needed(value)}
        return needs.pop() if len(needs) == 1 else ("all",) if needs else ("none",)

    def through_functions(self, calls: Sequence[Any]) -> AbstractContextManager[None]:
        """Follow gradients through functions of autograd that a model defines, whose forward runs without them.

        Their operators count as if they were differentiated as usual. `calls` are those that are recorded.
        """

        def apply(original: Callable[..., Any], cls: Any, *args: Any, **named: Any) -> Any:
            if self._in_function or not self.needed(args, named):
                return original(cls, *args, **named)
            self._in_function = True
            try:
                with torch.no_grad():
                    result = original(cls, *args, **named)
            finally:
                self._in_function = False
            self._mark(result, self._edges((args, named, result), len(calls)), len(calls))
            return result

        return replaced(torch.autograd.Function, "apply", apply)


def _is_cast(made: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether autograd casts a gradient that a backward computes in one type. Of a complex one, it takes a part."""
    is_number = made.is_floating_point or made.is_complex
    return is_number and wanted != (made if wanted.is_complex else made.to_real())


def _edge_of(tensor: torch.Tensor) -> Edge | None:
    """The edge of a tensor, which may be older than what was written to its memory; None if it needs no gradient."""
    edge: Edge | None = getattr(tensor, "edge", None)
    memory: Memory | None = getattr(tensor, "memory", None)
    return memory.written if edge is None and memory is not None else edge


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

    Its two ways (use_reentrant) replace autograd's storing and running in ways that meta tensors do not take.
    """
    signature = inspect.signature(checkpoint._checkpoint_without_reentrant_generator)

    def without_reentrant(original: Any, *given: Any, **named: Any) -> Iterator[None]:
        bound = signature.bind(*given, **named).arguments
        with around((bound.get("args", ()), bound.get("kwargs", {})), bound.get("early_stop", True)):
            yield

    def reentrant(original: Any, cls: Any, run: Callable[..., Any], preserves: bool, *args: Any) -> Any:
        with around(args, False):
            return run(*args)

    with (
        replaced(checkpoint, "_checkpoint_without_reentrant_generator", without_reentrant),
        replaced(checkpoint.CheckpointFunction, "apply", reentrant),
    ):
        yield


def recomputed(calls: Sequence[tuple[Operation, str]], stops_early: bool) -> list[tuple[Operation, str]]:
    """The calls that the backward repeats of a checkpoint's forward.

    If recomputing stops as soon as all tensors are there that the backward needs, the last product is not repeated,
    because its inputs are saved before it runs.
    """
    if not any(operation.has_backward and operation.row.has_gradient for operation, _ in calls):
        return []
    repeated = list(calls)
    if stops_early:
        while repeated and repeated[-1][0].kind in _SAVE_NOTHING:
            repeated.pop()
        if repeated and repeated[-1][0].row.family in _SAVE_INPUTS:
            repeated.pop()
    return [(operation.replace(gradients="recomputed"), path) for operation, path in repeated]
