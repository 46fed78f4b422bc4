"""Extraction: complete against torch's own count, explicit about what it drops, and without side effects."""

import os
import resource
from collections import Counter

import pytest
import torch
from modules import module
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import joulecast
from conftest import benchmark, full_disk
from joulecast.errors import ExtractionError, InputError, UnknownNameError
from joulecast.extraction import cache, network_of
from joulecast.extraction.job import Job
from joulecast.extraction.models.torchvision_models import build, model_names
from joulecast.extraction.tracing import trace
from joulecast.operations.inputs import Inputs
from joulecast.operations.kinds import KINDS
from joulecast.operations.operation import Operation

with benchmark("template_layout") as layout:
    pass

# One of each kind of block, and of each way to put them together; the others differ in width and depth.
TRACED = {
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3"),
    *("maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_large", "regnet_x_400mf", "regnet_y_400mf", "resnet18"),
    *("resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "swin_v2_t", "vgg11", "vgg11_bn", "vit_b_16"),
}


BY_DEFAULT = [pytest.param(name, marks=[] if name in TRACED else [pytest.mark.slow]) for name in model_names()]


@pytest.mark.parametrize("name", BY_DEFAULT)
def test_a_classification_model_is_traced_as_its_template_says_with_the_flops_of_torch(name):
    model, shape = build(name), (2, 3, 299, 299) if name == "inception_v3" else (2, 3, 224, 224)
    network = network_of(model, shape)
    assert network.entries == joulecast.extract(name, shape).entries
    # Only masks, counters and initializations are dropped, each with its reason.
    dropped = {"aten.eq", "aten.ne", "aten.masked_fill", "aten.new_zeros", "aten.zero"}
    assert {d.name for d in network.dropped} <= dropped
    flops = sum(e.count * e.operation.flops for e in network if KINDS[e.operation.kind].tensor_cores)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval().to("meta")(torch.empty(shape, device="meta"))
    assert flops == counter.get_total_flops()


# Gradients that are added up: one per residual. EfficientNet-B0 has 9, and 16 inputs of squeeze-and-excitation are used
# twice. (Those of Swin's windows were not counted by hand.)
@pytest.mark.parametrize(
    ("name", "added"), [("efficientnet_b0", 9 + 16), ("resnet18", 8), ("vgg11", 0), ("swin_t", None)]
)
def test_training_is_inference_and_what_only_training_does(name, added):
    only_training = {"gradient_accumulation", "save_input", "dropout", "stochastic_depth"}
    inference, training = (network_of(build(name), (2, 3, 224, 224), mode=mode) for mode in ("inference", "training"))
    counts = Counter()
    for entry in training:
        counts[entry.operation.kind] += entry.count
    assert added in (None, counts["gradient_accumulation"])
    if name == "efficientnet_b0":
        assert counts["stochastic_depth"] == 9  # for each residual, although training runs the model twice
    forward = {entry.operation.replace(mode="training"): entry.count for entry in inference}
    kept = Counter[Operation]()
    for operation, count in ((entry.operation, entry.count) for entry in training):
        if operation.kind not in only_training:  # masks of Swin's windows need no gradient
            kept[operation if operation.gradients == "all" else operation.replace(gradients="all")] += count
    assert kept == forward


@pytest.mark.parametrize(("layer", "saved"), [(nn.SiLU(inplace=True), 1), (nn.SiLU(), 0), (nn.ReLU(inplace=True), 0)])
def test_inputs_that_a_backward_needs_are_copied_in_place(layer, saved):
    network = network_of(nn.Sequential(nn.Linear(4, 4), layer), (2, 4), mode="training")
    assert sum(e.operation.kind == "save_input" for e in network) == saved


def test_whitelist_and_what_it_drops():
    network = network_of(build("resnet18"), (1, 3, 64, 64), whitelist={"conv2d", "linear"})
    assert {entry.operation.kind for entry in network} == {"conv2d", "linear"}
    stem = network.entries[0]
    assert (stem.module_paths, stem.operation.output_shape) == (("conv1",), (1, 64, 32, 32))
    dropped = {d.name: d for d in network.dropped}
    assert (dropped["add"].count, dropped["add"].reason) == (8, "not on the whitelist")
    assert dropped["add"].module_paths[:2] == ("layer1.0", "layer1.1")


def test_the_module_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    model[1].eval()
    flags = [child.training for child in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    network_of(model, (2, 3, 8, 8), mode="training")
    assert [child.training for child in model.modules()] == flags
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.device.type == "cpu" for value in model.state_dict().values())
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_a_large_model_needs_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    network_of(build("vit_h_14"), (64, 3, 224, 224))
    # Its weights alone are 2.5 GB, its activations tens of GB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_product_that_is_added_is_one_kernel():
    scale, shift = (nn.Parameter(torch.ones(1, 1, 8)) for _ in range(2))
    scaled = module(lambda self, x: torch.addcmul(self.shift, self.scale, x), scale=scale, shift=shift)
    network = network_of(scaled, (2, 4, 8))
    assert [(e.operation.kind, e.operation.input_shapes) for e in network] == [("mul", ((2, 4, 8), (1, 1, 8)))]
    assert not network.dropped


def test_errors_name_the_module_and_leave_no_hooks():
    with pytest.raises(ExtractionError, match=r"Made\.inner\.1"):
        network_of(module(lambda self, x: self.inner(x), inner=nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4))), (2, 4))
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    with pytest.raises(ExtractionError, match=r"Made does not run(?s:.*)values that only the input has"):
        network_of(module(lambda self, x: x * float(x.sum())), (2, 4))


def test_positions_of_a_million_tokens_are_followed_and_of_more_than_four_refused():
    decides = module(lambda self, x: x + 1 if (torch.arange(x.shape[1]) > 5).any() else x)
    assert [entry.operation.kind for entry in network_of(decides, (1, 2**20))] == ["add"]
    with pytest.raises(ExtractionError) as refused:
        network_of(decides, (1, 2**22 + 1))
    assert refused.value.allowed.startswith("fewer than 4,194,304 tokens")
    assert refused.value.hint == "give fewer tokens"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("resnet5", (1, 3, 224, 224)), UnknownNameError, "did you mean resnet"),
        (("resnet50", (32, 1, 224, 224)), ExtractionError, "conv1"),
        (("resnet50", (0, 3, 224, 224)), InputError, "positive"),
        (("resnet50", (224,)), ExtractionError, "resnet50"),
        (("resnet50", None), InputError, "shape"),
        ((3.5, (1, 3)), InputError, "not a model"),
        (([("relu", 1)], None), InputError, "pairs"),
    ],
)
def test_bad_input(arguments, error, says):
    with pytest.raises(error, match=says):
        joulecast.extract(*arguments)


@pytest.mark.usefixtures("without_templates")
def test_named_models_are_cached_until_an_operator_that_they_run_changes(fresh_cache, monkeypatch):
    first = joulecast.extract("resnet18", (3, 3, 67, 67))
    (path,) = fresh_cache.rglob("resnet18-*.json")
    path.write_text(path.read_text()[:100])
    assert joulecast.extract("resnet18", (3, 3, 67, 67)) == first  # What is damaged is made again.
    monkeypatch.setattr("joulecast.extraction.traced_models.trace", lambda *a, **k: pytest.fail("extracted again"))
    monkeypatch.setitem(cache.REVISIONS, "layer_norm", 7)
    assert joulecast.extract("resnet18", (3, 3, 67, 67)) == first
    monkeypatch.setitem(cache.REVISIONS, "relu", 7)
    with pytest.raises(pytest.fail.Exception):
        joulecast.extract("resnet18", (3, 3, 67, 67))


SMALL = joulecast.Network.of([(joulecast.Operation("relu", [(2, 8)]), 1)])


def remember(name):
    cache.remember(SMALL, name, [], ("aten.relu",))


def stored(folder):
    return sorted(path.name.split("-")[0] for path in (folder / "networks").iterdir())


def test_what_was_not_asked_for_longest_makes_room_and_a_full_disk_leaves_nothing(fresh_cache, monkeypatch):
    with full_disk():
        remember("a")
    assert stored(fresh_cache) == []
    assert cache.recall("a", []) is None
    remember("a")
    (entry,) = (fresh_cache / "networks").iterdir()
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * entry.stat().st_size + 10)
    remember("b")
    remember("c")
    for age_s, path in enumerate(sorted((fresh_cache / "networks").iterdir(), reverse=True)):
        os.utime(path, (1e9 - age_s, 1e9 - age_s))  # The first is the oldest.
    assert cache.recall("a", []) is not None
    remember("d")
    assert stored(fresh_cache) == ["a", "c", "d"]
    assert cache.recall("b", []) is None


def test_given_operations_keep_what_they_say():
    network = joulecast.extract([(joulecast.Operation("relu", [(4,)], mode="training"), 2)])
    assert network.mode == "training"
    asked = joulecast.extract(
        [(joulecast.Operation("linear", [(4, 4)], {"out_features": 4}), 2)], mode="training", precision="bf16"
    )
    assert (asked.mode, asked.entries[0].operation.precision) == ("training", "bf16")


def test_calls_that_read_across_memory_are_known():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.norm = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8)

        def forward(self, x):
            tokens = self.patches(x).flatten(2).transpose(1, 2)  # features of a token lie far apart
            tokens = tokens + self.norm(tokens)
            in_rows = tokens.contiguous()
            heads = in_rows.unflatten(2, (2, 4)).transpose(1, 2)
            return torch.cat([heads, heads], dim=2) * 2, in_rows + in_rows

    recorders = []
    model = Patches()
    with layout.recording_layout():
        trace(model, Inputs.of((2, 3, 16, 12)), Job(model), on_trace=recorders.append)
    calls = [operation.kind for operation, _ in recorders[0].calls]
    assert calls == ["conv2d", "copy", "layer_norm", "add", "copy", "cat", "mul", "add"]
    # The norm copies its input; the sum stays as the convolution wrote it, and its second operand lies in rows.
    assert [calls[place] for place in sorted(recorders[0].across)] == ["copy", "add", "copy", "cat"]
    assert sorted(recorders[0].across) == [1, 3, 4, 5]
