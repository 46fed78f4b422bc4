"""What to say of a forward that raises: what PyTorch said, where, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ExtractionError, JoulecastError
from ..operations.inputs import Inputs, shape_text

if TYPE_CHECKING:
    from .assumptions import Assume
    from .recorder import Recorder

LONGEST = 300
"""Characters of a foreign message that are told."""

_CHECK_DIMENSIONS = "check the dimensions; a model that needs the values of tensors cannot be extracted"
_LEAVES_PYTORCH = (
    "the forward takes values out of PyTorch (.numpy(), .tolist(), float(x)), where nobody sees what becomes of them: "
    "write that part in PyTorch, or extract what comes before it"
)
# What PyTorch says -> what to do about it.
_HINTS: Mapping[str, str] = {
    "missing": "give every input: a list of shapes, or a dictionary of names and shapes",
    "positional argument": "give as many shapes as the model has inputs, or a dictionary of names and shapes",
    "unexpected keyword": "name the inputs as the model's forward does",
    "targets should not be none": "a detector trains on lists of boxes, for which no shape stands: "
    "assume={'boxes': 20} gives each image as many",
    "fake impl": "register one with torch.library.register_fake, so that its shapes are known",
    "Index": "give an example tensor of the right type, such as torch.empty(shape, dtype=torch.int64), for indices",
    "indices": "give an example tensor of the right type, such as torch.empty(shape, dtype=torch.int64), for indices",
    "meta tensor": _LEAVES_PYTORCH,
    "meta device type tensor": _LEAVES_PYTORCH,
    "unallocated storage": _LEAVES_PYTORCH,
    "data pointer": _LEAVES_PYTORCH,
    "CUDA": "the forward asks for a GPU by itself: move tensors to that of another, tensor.to(x.device)",
    "NVIDIA": "the forward asks for a GPU by itself: move tensors to that of another, tensor.to(x.device)",
}
_ASSUMPTIONS: tuple[Assume, ...] = ({"experts": "uniform"}, {"boxes": 100}, {"boxes": 100, "box_side": 100})
_NOTHING_TO_ASSUME = (
    "nothing that can be assumed gives this value: take decisions by values out of the forward (layers skipped by "
    "chance: layerdrop=0), or extract what comes before them, such as a backbone"
)


def explained(error: Exception, name: str, recorder: Recorder, inputs: Inputs, hint: str | None) -> ExtractionError:
    """What a forward raised, as an error that says where, and what to do.

    Args:
        error: What it raised.
        name: What the model is called.
        recorder: Knows the module and the operator that ran.
        inputs: What the model was given.
        hint: What to do; None to go by what PyTorch says.
    """
    where = f"{name}.{recorder.path}" if recorder.path else name
    what = next(iter(str(error).strip().splitlines()), "no message")[:LONGEST]
    within = f" in {recorder.operator}" if recorder.operator else ""
    return ExtractionError(
        f"{name} does not run on this input: {where} raised {type(error).__name__}{within}: {what}",
        given=shape_text(inputs.shape),
        hint=hint or next((each for sign, each in _HINTS.items() if sign in what), _CHECK_DIMENSIONS),
    )


def what_to_assume(trace: Callable[..., Any], stated: Assume | None) -> str:
    """What helps a model that decides by values: an assumption under which it runs, found by trying each.

    Args:
        trace: Extracts the model, given `assume`.
        stated: What has been assumed already, which stays.
    """
    for assume in _worth_trying(stated):
        try:
            trace(assume=assume)
        except JoulecastError:
            continue
        return f"the model runs under an assumption: assume={assume}"
    return _NOTHING_TO_ASSUME


def _worth_trying(stated: Assume | None) -> tuple[Assume, ...]:
    if not stated:
        return _ASSUMPTIONS
    return () if "box_side" in stated else ({"boxes": 100, **stated, "box_side": 100},)
