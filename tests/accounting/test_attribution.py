"""Traces written by hand: which module, phase and operator each moment belongs to."""

import pytest

from joulecast.accounting.attribution import (
    ACCUMULATION,
    ITERATION,
    Trace,
    TraceEvent,
    attributed,
    kind_and_name,
    module_share,
)

THREAD, BACKWARD_THREAD = 1, 2


def event(kind, name, start_s, end_s, sequence=-1, lane=THREAD, numbering=THREAD, launch=0, device="cpu"):
    return TraceEvent(kind, name, lane, start_s, end_s, device, sequence, numbering, launch)


def seconds(events):
    """Place -> seconds."""
    found = {}
    for place, start, end in zip(events.place, events.start_s, events.end_s, strict=True):
        found[events.places[place]] = found.get(events.places[place], 0.0) + end - start
    return found


FORWARD = (
    event("module", "", 0, 10),
    event("module", "a", 1, 4),
    event("operator", "aten::linear", 1, 3, sequence=5),
    event("operator", "aten::addmm", 1.5, 2.5, sequence=6),
    event("module", "b", 5, 9),
    event("operator", "aten::relu", 6, 8, sequence=7),
    event("operator", "aten::add", 9, 10, sequence=8),
)


@pytest.mark.parametrize("trace", [FORWARD, FORWARD[::-1]], ids=["in order", "in another order"])
def test_an_operator_belongs_to_the_innermost_module_and_has_its_parts(trace):
    assert seconds(attributed(Trace(trace))) == {
        ("a", "forward", "aten::linear"): 2,
        ("b", "forward", "aten::relu"): 2,
        ("", "forward", "aten::add"): 1,
    }


def test_a_node_belongs_to_the_module_whose_operator_made_it_on_whatever_thread_it_runs():
    backward = (
        event("node", "ReluBackward0", 11, 13, sequence=7, lane=BACKWARD_THREAD),
        event("operator", "aten::threshold_backward", 11.5, 12.5, lane=BACKWARD_THREAD),
        event("node", "AddmmBackward0", 13, 16, sequence=6, lane=BACKWARD_THREAD),
        event("node", ACCUMULATION, 16, 17, lane=BACKWARD_THREAD),
    )
    found = seconds(attributed(Trace((*FORWARD, *backward))))
    assert found["b", "backward", "ReluBackward0"] == 2
    assert found["a", "backward", "AddmmBackward0"] == 3
    assert found["a", "backward", "AccumulateGrad"] == 1
    of_another_thread = event("node", "AddmmBackward0", 11, 12, sequence=6, numbering=77)
    assert seconds(attributed(Trace((*FORWARD, of_another_thread))))[None, "backward", "AddmmBackward0"] == 1


def test_what_is_computed_again_in_the_backward_belongs_to_its_module_and_to_the_backward():
    """Gradient checkpointing: a module runs inside of a node."""
    again = (
        event("operator", "CheckpointFunction", 9, 10, sequence=9),
        event("node", "CheckpointFunctionBackward", 11, 20, sequence=9),
        event("module", "a", 12, 15),
        event("operator", "aten::linear", 12, 15, sequence=20),
        event("node", "AddmmBackward0", 16, 18, sequence=20),
    )
    found = seconds(attributed(Trace((*FORWARD[:-1], *again))))
    assert found["a", "backward", "aten::linear"] == 3
    assert found["a", "backward", "AddmmBackward0"] == 2
    assert found["", "backward", "CheckpointFunctionBackward"] == 9 - 3 - 2


def test_steps_of_an_optimizer_belong_to_the_model_and_losses_to_no_module():
    trace = (
        *FORWARD,
        event("operator", "aten::mse_loss", 10, 12),
        event("optimizer", "SGD.step", 12, 15),
        event("operator", "aten::add_", 13, 14),
    )
    events = attributed(Trace(trace))
    assert seconds(events)[None, "forward", "aten::mse_loss"] == 2
    assert seconds(events)["", "optimizer", "aten::add_"] == 1
    # 5 seconds of operators in modules, 2 of the loss
    assert module_share(events, "forward") == pytest.approx(5 / 7)
    assert any("75.0 % of the time of operators belongs to a module" in note for note in events.notes)


def test_kernels_belong_to_the_operator_that_launched_them():
    trace = (
        event("module", "", 0, 10),
        event("module", "a", 1, 4),
        event("operator", "aten::linear", 1, 3, launch=100),
        event("operator", "aten::addmm", 1.5, 2.5, launch=101),
        event("kernel", "gemm", 5, 9, lane=(0, 7), launch=101, device="gpu0"),
        event("kernel", "who knows", 9, 10, lane=(0, 7), launch=999, device="gpu0"),
    )
    events = attributed(Trace(trace))
    on_gpu = {events.places[p] for p in events.place[events.on("gpu0")]}
    assert on_gpu == {("a", "forward", "aten::linear"), (None, "forward", "who knows")}
    launched_by_a_module = (
        event("module", "", 0, 10, launch=1),
        event("module", "a", 1, 4, launch=2),
        event("kernel", "triton_kernel", 5, 9, lane=(0, 7), launch=2, device="gpu0"),
    )
    assert list(seconds(attributed(Trace(launched_by_a_module)))) == [("a", "forward", "triton_kernel")]


def test_iterations_are_marked_or_begin_with_a_forward_and_a_change_between_them_is_noted():
    def iteration(start_s, *names):
        inside = [event("operator", name, start_s + i, start_s + i + 1) for i, name in enumerate(names)]
        return event("iteration", ITERATION, start_s, start_s + 5), event("module", "", start_s, start_s + 5), *inside

    for second, says in ((("aten::a", "aten::b"), None), (("aten::a",), "1 of 2 differ")):
        events = attributed(Trace((*iteration(0, "aten::a", "aten::b"), *iteration(10, *second))))
        noted = [note for note in events.notes if "changes" in note or "differ" in note]
        assert [says in note for note in noted] == [True] if says else noted == []
    trace = (*FORWARD, *(event(e.kind, e.name, e.start_s + 20, e.end_s + 20, e.sequence) for e in FORWARD))
    assert attributed(Trace(trace)).windows == ((0, 20), (20, 30))


@pytest.mark.parametrize(
    ("name", "is_annotation", "expected"),
    [
        ("aten::mm", False, ("operator", "aten::mm")),
        ("joulecast.module:layer1.0", True, ("module", "layer1.0")),
        ("joulecast.module:", True, ("module", "")),
        ("autograd::engine::evaluate_function: MmBackward0", False, ("node", "MmBackward0")),
        ("Optimizer.step#AdamW.step", True, ("optimizer", "AdamW.step")),
        ("ProfilerStep#3", True, ("iteration", "ProfilerStep#3")),
        ("Torch-Compiled Region: 1/0", True, ("operator", "Torch-Compiled Region: 1/0")),
        ("my training step", True, None),
    ],
)
def test_names_tell_kinds(name, is_annotation, expected):
    assert kind_and_name(name, is_annotation) == expected
