"""Models by name: all that torchvision has, timm, and names that nobody has."""

from __future__ import annotations

import importlib.util

import pytest

import joulecast
from joulecast.errors import ExtractionError, MissingDependencyError, UnknownNameError
from joulecast.extraction.models import timm_models
from joulecast.extraction.models.torchvision_models import all_names, build, model_names
from joulecast.extraction.tracing import trace

OTHERS = sorted(set(all_names()) - set(model_names()))
DETECTION = ("fasterrcnn", "fcos", "keypointrcnn", "maskrcnn", "retinanet", "ssd")
VIDEO = ("mc3", "mvit", "r2plus1d", "r3d", "s3d", "swin3d")


def inputs(name: str):
    if name.startswith("raft"):
        return [(1, 3, 128, 128), (1, 3, 128, 128)]
    if name.startswith(VIDEO):
        return (1, 3, 16, 224, 224)
    return (1, 3, 299, 299) if "inception" in name else (1, 3, 224, 224)


def test_torchvision_has_121_models():
    assert len(all_names()) == 121
    assert len(model_names()) == 80


@pytest.mark.parametrize("name", [name for name in OTHERS if not name.startswith(DETECTION)])
def test_models_that_run_without_values_are_extracted(name):
    network = trace(build(name), inputs(name), name=name)
    assert network.flops > 1e7
    # Work that no kind covers is listed.
    assert {d.name for d in network.dropped} <= {
        "aten.arange",
        "aten.avg_pool3d",
        "aten.grid_sampler_2d",
        "aten.linspace",
        "aten.max_pool3d_with_indices",
        "aten.eq",
        "aten.ne",
        "aten.masked_fill",
        "aten.new_zeros",
        "aten.zero",
    }


FEWER_BOXES = ({"boxes": 10}, {"boxes": 10, "box_side": 100})


@pytest.mark.parametrize("name", [name for name in OTHERS if name.startswith(DETECTION)])
def test_models_that_decide_by_values_say_so(name, monkeypatch):
    if name.startswith("keypointrcnn"):  # runs dozens of operators for each box
        monkeypatch.setattr("joulecast.extraction.failures._ASSUMPTIONS", FEWER_BOXES)
    with pytest.raises(ExtractionError, match="values that only the input has") as caught:
        trace(build(name), inputs(name), name=name)
    reads_sizes = name.startswith(("maskrcnn", "keypointrcnn"))
    assumed = "{'boxes': 100, 'box_side': 100}" if reads_sizes else "{'boxes': 100}"
    assumed = str(FEWER_BOXES[-1]) if name.startswith("keypointrcnn") else assumed
    assert f"assume={assumed}" in caught.value.hint
    # The part of the model that needs no values can be extracted.
    assert trace(build(name).backbone, (1, 3, 320, 320)).flops > 1e8


def test_upsampling_is_one_operation():
    network = trace(build("fcn_resnet50"), (1, 3, 64, 64))
    resized = [e for e in network if e.operation.kind == "interpolate" and e.operation.output_shape == (1, 21, 64, 64)]
    assert [e.count for e in resized] == [1]


@pytest.mark.parametrize("name", ["timm/resnet26d", "resnet26d", "vit_tiny_patch16_224.augreg_in21k"])
def test_timm(name):
    pytest.importorskip("timm")
    network = joulecast.extract(name, (2, 3, 224, 224))
    assert network.name == name
    assert network.flops > 1e9
    assert {entry.operation.kind for entry in network} & {"conv2d", "attention"}
    assert joulecast.extract(name, (2, 3, 224, 224)) == network


def test_timm_asks_for_timms():
    pytest.importorskip("timm")
    ours, theirs = (joulecast.extract(name, (1, 3, 64, 64)) for name in ("resnet50", "timm/resnet50"))
    assert ours.flops == theirs.flops
    assert ours.entries != theirs.entries  # Only the paths of modules differ.


@pytest.mark.parametrize("name", ["timm/resnet26x", "bert_bas", "../resnet50"])
def test_unknown_names(name):
    with pytest.raises(UnknownNameError, match="did you mean"):
        joulecast.extract(name, (1, 3, 224, 224))


def test_missing_timm_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "timm" else real(name, *a))
    with pytest.raises(MissingDependencyError, match=r"\.\[timm\]"):
        timm_models.build("timm/resnet26d")
