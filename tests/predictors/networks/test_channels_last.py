"""Depthwise convolutions on channels-last tensors in training."""

from __future__ import annotations

import pytest
import torch

import joulecast
from joulecast.extraction.models.torchvision_models import build, import_torchvision
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.predictors.networks.channels_last import layout_slowdowns

SHAPE = (2, 3, 64, 64)


def _slowdowns(network: Network, gpu: str) -> dict[bool, set[float]]:
    """Whether an operation is a depthwise convolution -> the slowdowns of such operations."""
    found: dict[bool, set[float]] = {True: set(), False: set()}
    for entry, slowdown in zip(network, layout_slowdowns(network, find_gpu(gpu)).tolist(), strict=True):
        found[entry.operation.is_depthwise].add(slowdown)
    return found


def _convnext() -> torch.nn.Module:
    convnext = import_torchvision().models.convnext
    return convnext.ConvNeXt([convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 2)])


@pytest.mark.parametrize("make", [_convnext, lambda: build("mobilenet_v3_small")], ids=["convnext", "mobilenet"])
def test_convolutions_count_as_channels_last_where_pytorch_keeps_their_tensors_so(make):
    model, orders = make().to_empty(device="cpu"), []

    def look(module: torch.nn.Conv2d, inputs: tuple[torch.Tensor]) -> None:
        if module.groups == module.in_channels > 1:
            orders.append(inputs[0].is_contiguous(memory_format=torch.channels_last) and not inputs[0].is_contiguous())

    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_pre_hook(look)
    with torch.no_grad():
        model.eval()(torch.zeros(SHAPE))
    in_pytorch = set(orders)
    network = joulecast.extract(model, SHAPE, mode="training", precision="fp32")
    slowdowns = _slowdowns(network, "A30")[True]
    assert {slowdown > 1 for slowdown in slowdowns} == in_pytorch


@pytest.mark.parametrize(
    ("gpu", "mode", "precision", "slowdown"),
    [
        ("A30", "training", "fp32", 3.3),
        ("A30", "training", "default", 1.8),
        ("T4", "training", "default", 3.3),  # This GPU has no TF32.
        ("A30", "training", "bf16", 1.0),
        ("A30", "inference", "fp32", 1.0),
        ("MI210", "training", "fp32", 1.0),
    ],
)
def test_only_depthwise_convolutions_in_training_are_slower(gpu, mode, precision, slowdown):
    network = joulecast.extract("convnext_tiny", (4, 3, 224, 224), mode=mode, precision=precision)
    assert _slowdowns(network, gpu) == {True: {slowdown}, False: {1.0}}


@pytest.mark.parametrize(("precision", "measured_s"), [("default", 0.5403), ("fp32", 0.6681)])
def test_convnext_in_training_takes_what_was_measured(precision, measured_s):
    # nicolai2025, A30; the factors were found on these two.
    prediction = joulecast.predict("convnext_base", (32, 3, 224, 224), "A30", mode="training", precision=precision)
    assert prediction.time_s == pytest.approx(measured_s, rel=0.02)
