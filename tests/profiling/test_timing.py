"""Runners and timing, on the CPU through the same path."""

import importlib
import time

import pytest
import torch
from costs_of_elements import ELEMENTS
from costs_of_indices import INDICES
from costs_of_layers import LAYERS

from joulecast import Operation
from joulecast.errors import InputError
from joulecast.extraction.models.torchvision_models import import_torchvision
from joulecast.operations.kinds import KINDS
from joulecast.profiling.runners import RUNNERS, Instance
from joulecast.profiling.timing import block_length, by_cpu_time, clock_of, running, time_block

CPU = torch.device("cpu")
# The sizes of `costs_of_*.py`, and several heads of queries for each head of keys.
CASES = {**LAYERS, **ELEMENTS, **INDICES}
# PyTorch has neither windows nor, on the CPU, LSTMs with projections.
RUN = [(kind, *case[:2]) for kind in RUNNERS for case in CASES[kind] if not {"window", "proj_size"} & case[1].keys()]
RUN += [("attention", [(2, 6, 1, 8), (2, 3, 4, 8), (2, 3, 4, 8)], {"causal": True})]


def example(kind: str, mode: str) -> Operation:
    return Operation(kind, CASES[kind][0].shapes, CASES[kind][0].attributes, mode=mode)


def roi_align_in_python(
    x: torch.Tensor, boxes: torch.Tensor, output_size: tuple[int, int], spatial_scale: float, sampling_ratio: int
) -> torch.Tensor:
    # Unwrapped, because torchvision would compile it, for many seconds.
    plain = importlib.import_module("torchvision.ops.roi_align")._roi_align.__wrapped__
    pooled: torch.Tensor = plain(x, boxes, spatial_scale, *output_size, sampling_ratio, False)
    return pooled


def test_every_kind_has_a_runner():
    # What a checkpoint keeps runs no kernel, so there is nothing to measure.
    assert RUNNERS.keys() == {kind for kind, row in KINDS.items() if not row.measured_only} - {"checkpoint"}


@pytest.mark.parametrize(
    "operation",
    [
        Operation("linear", [(3, 8)], {"out_features": 5}, precision="fp8"),
        Operation("linear", [(3, 8)], {"out_features": 5, "implementation": "vllm"}),
        Operation("conv2d", [(2, 6, 9, 8)], {"out_channels": 4, "kernel_size": 3, "direction": "weight_gradient"}),
        Operation("attention", [(2, 3, 4, 8)] * 3, {"window": 2}),
        Operation("all_reduce", [(8,)], {"gpus": 2}),
    ],
    ids=lambda operation: operation.kind,
)
def test_what_pytorch_does_not_run_is_refused(operation):
    with pytest.raises(InputError, match="cannot be run here"):
        Instance.of_operation(operation, CPU, torch.Generator())


@pytest.mark.filterwarnings("ignore:`torch.jit.*:DeprecationWarning")  # by torchvision, while it is imported
@pytest.mark.parametrize(("kind", "shapes", "attributes"), RUN)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_runners_do_what_the_operation_says(kind, shapes, attributes, mode, monkeypatch):
    """PyTorch's own shapes and parameters are those that the rules of the kind give."""
    operation = Operation(kind, shapes, attributes, mode=mode)
    if kind == "roi_align":  # torchvision's kernels may not load here, but what it runs without them does.
        monkeypatch.setattr(import_torchvision().ops, "roi_align", roi_align_in_python)
    instance = Instance.of_operation(operation, CPU, torch.Generator().manual_seed(0))
    output = instance.output()
    assert tuple(output.shape) == operation.output_shape
    assert not output.isnan().any()
    module = instance._run
    parameters = sum(p.numel() for p in module.parameters()) if isinstance(module, torch.nn.Module) else 0
    assert parameters == operation.parameters or kind == "prelu"
    instance()


def test_instances_are_distinct_and_seeded_and_training_runs_the_backward_and_clears_gradients():
    first, again = (
        [Instance.of_operation(example("relu", "inference"), CPU, generator)._inputs[0] for _ in range(2)]
        for generator in (torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    )
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], first[1])
    instance = Instance.of_operation(example("linear", "training"), CPU, torch.Generator().manual_seed(0))
    called = []
    instance._leaves[0].register_hook(lambda gradient: called.append(gradient.shape))
    instance()
    assert called == [(2, 3, 4)]
    assert all(leaf.grad is None for leaf in instance._leaves)


def test_blocks_exceed_the_cache_within_memory():
    relu = Operation("relu", [(1024, 1024)])  # 8 MiB in and out
    assert block_length(relu, 64 * 2**20, 2**40) == 16
    assert block_length(relu.replace(mode="training"), 64 * 2**20, 2**40) == 8
    assert block_length(relu, 64 * 2**20, 32 * 2**20) == 2
    assert block_length(Operation("relu", [(1,)]), 64 * 2**20, 2**40) == 64


def test_the_timer_of_torch_measures_the_loop(monkeypatch):
    """Each call takes 2 ms of CPU time, whatever other programs do."""

    def call():
        end_s = time.process_time() + 0.002
        while time.process_time() < end_s:
            pass

    from joulecast.profiling import timing as module

    monkeypatch.setattr(module, "clock_of", lambda device: time.process_time)
    found = time_block([call, call], CPU, seconds=0.06)
    assert found.time_s == pytest.approx(0.002, rel=0.1)
    assert found.iterations * found.time_s >= 0.06
    assert found.iterations % 2 == 0  # Each call of a block runs as often.
    assert found.time_std_s is not None
    assert found.loops[-1] == (found.iterations, pytest.approx(found.iterations * found.time_s))


def test_precision_switches_are_put_back():
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    with running("training", "tf32"):
        assert torch.backends.cudnn.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
    with running("training", "fp32"):
        assert not torch.backends.cudnn.allow_tf32
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_plain_transformers_run_as_a_whole():
    import joulecast
    from joulecast.extraction.models.plain_transformers import Encoder

    model = Encoder(vocabulary=50, width=16, layers=2, heads=2, inner=32, positions=8)
    run = Instance.of_network(model, (2, 8), "training", torch.Generator().manual_seed(0))
    assert run._inputs[0].dtype == torch.int64
    run()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert joulecast.extract(model, (2, 8)).flops == 2 * joulecast.extract(model, (1, 8)).flops


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_plain_bert_does_what_bert_does(mode):
    pytest.importorskip("transformers", reason="compares with the transformers library")
    import joulecast

    plain, real = (joulecast.extract(name, (8, 128), mode=mode) for name in ("plain_bert_base", "bert_base"))
    difference = {entry.operation: entry.count for entry in real}
    for entry in plain:
        difference[entry.operation] = difference.get(entry.operation, 0) - entry.count
    left = {operation.kind for operation, count in difference.items() if count > 0}
    # Only the pooler, which looks at one token, and a gradient that it sends there; and the types of tokens looked up.
    assert left <= {"linear", "tanh", "copy", "gradient_accumulation", "gather"}
    assert not [operation for operation, count in difference.items() if count < 0]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_single_thread_is_timed_by_its_cpu_time(threads):
    before, cpu = torch.get_num_threads(), torch.device("cpu")
    torch.set_num_threads(threads)
    try:
        assert by_cpu_time(cpu) == (threads == 1)
        clock = time.process_time if threads == 1 else time.perf_counter
        start_s = clock()
        assert start_s <= clock_of(cpu)() <= clock()
    finally:
        torch.set_num_threads(before)
