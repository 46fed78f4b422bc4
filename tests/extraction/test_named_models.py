"""Models by name: all that torchvision has, timm, and names that nobody has."""

import importlib.util

import pytest

import joulecast
from joulecast.errors import ExtractionError, MissingDependencyError, UnknownNameError
from joulecast.extraction import network_of
from joulecast.extraction.models.named_models import build_timm
from joulecast.extraction.models.torchvision_models import all_names, build, model_names

OTHERS = sorted(set(all_names()) - set(model_names()))
DETECTION = ("fasterrcnn", "fcos", "keypointrcnn", "maskrcnn", "retinanet", "ssd")
# Wider, deeper or later ones of models whose blocks the default run traces.
VARIANTS = {
    *("deeplabv3_resnet101", "deeplabv3_resnet50", "fasterrcnn_mobilenet_v3_large_fpn", "fasterrcnn_resnet50_fpn"),
    *("fasterrcnn_resnet50_fpn_v2", "fcn_resnet101", "maskrcnn_resnet50_fpn_v2", "mvit_v1_b", "quantized_resnet50"),
    *("quantized_mobilenet_v2", "quantized_resnext101_32x8d", "quantized_resnext101_64x4d", "raft_large", "swin3d_b"),
    *("quantized_shufflenet_v2_x1_0", "quantized_shufflenet_v2_x1_5", "quantized_shufflenet_v2_x2_0", "swin3d_s"),
    *("retinanet_resnet50_fpn_v2", "quantized_inception_v3", "fcos_resnet50_fpn", "ssd300_vgg16"),
}
VIDEO = ("mc3", "mvit", "r2plus1d", "r3d", "s3d", "swin3d")


def cases(*, detection: bool):
    names = [name for name in OTHERS if name.startswith(DETECTION) == detection]
    return [pytest.param(name, marks=[pytest.mark.slow] if name in VARIANTS else []) for name in names]


def inputs(name: str):
    if name.startswith("raft"):
        return [(1, 3, 128, 128), (1, 3, 128, 128)]
    if name.startswith(VIDEO):
        return (1, 3, 16, 224, 224)
    if name.startswith(DETECTION):
        return (1, 3, 128, 128)
    return (1, 3, 299, 299) if "inception" in name else (1, 3, 224, 224)


@pytest.mark.parametrize("name", cases(detection=False))
def test_models_that_run_without_values_are_extracted(name):
    network = network_of(build(name), inputs(name))
    assert network.flops > 1e7
    # Work that no kind covers is listed.
    listed = "arange avg_pool3d grid_sampler_2d linspace max_pool3d_with_indices eq ne masked_fill new_zeros zero"
    assert {d.name for d in network.dropped} <= {f"aten.{name}" for name in listed.split()}


@pytest.mark.parametrize("name", cases(detection=True))
def test_models_that_decide_by_values_say_so(name):
    with pytest.raises(ExtractionError, match="values that only the input has") as caught:
        network_of(build(name), inputs(name))
    assert "{'boxes': 100}" in caught.value.hint
    # The part of the model that needs no values can be extracted.
    assert network_of(build(name).backbone, (1, 3, 320, 320)).flops > 1e8


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
        build_timm("timm/resnet26d")
