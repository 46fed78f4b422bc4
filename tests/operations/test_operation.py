"""Operations against torch: shapes and parameters by their attributes; values, JSON and errors.

Every kind is run by torch in its plain form in profiling/test_timing.py.
"""

import json

import pytest
import torch
from torch import nn

from joulecast.errors import InputError
from joulecast.operations.operation import Operation, real_precision

IMAGE, LINE = (2, 6, 17, 15), (2, 6, 17)
GROUPED = {"out_channels": 8, "kernel_size": (3, 5), "padding": (1, 2), "groups": 2, "bias": False}
DILATED = {"out_channels": 4, "kernel_size": 3, "dilation": 2, "padding": "same"}
TRANSPOSED = {"out_channels": 4, "kernel_size": 4, "stride": 2, "padding": 1, "groups": 2, "output_padding": 1}
POOLED = {"kernel_size": 2, "padding": 1, "ceil_mode": True}
REAL = {"dim": 1, "form": "c2r", "last_size": 9}
# kind, input shapes, attributes, the same in torch (a module or a function of the inputs)
CASES = [
    ("conv1d", [LINE], {"out_channels": 8, "kernel_size": 3, "stride": 2}, nn.Conv1d(6, 8, 3, 2)),
    ("conv2d", [IMAGE], GROUPED, nn.Conv2d(6, 8, (3, 5), padding=(1, 2), groups=2, bias=False)),
    ("conv2d", [IMAGE], DILATED, nn.Conv2d(6, 4, 3, dilation=2, padding="same")),
    ("conv_transpose1d", [LINE], {"out_channels": 8, "kernel_size": 3, "stride": 2}, nn.ConvTranspose1d(6, 8, 3, 2)),
    ("conv_transpose2d", [IMAGE], TRANSPOSED, nn.ConvTranspose2d(6, 4, 4, 2, 1, output_padding=1, groups=2)),
    ("linear", [(16,)], {"out_features": 7, "bias": False}, nn.Linear(16, 7, bias=False)),
    ("batch_norm", [(2, 6)], {"affine": False}, nn.BatchNorm1d(6, affine=False)),
    ("matmul", [(2, 3, 5, 7), (2, 3, 7, 11)], {}, torch.matmul),
    ("layer_norm", [(2, 5, 12)], {"normalized_shape": (5, 12)}, nn.LayerNorm((5, 12))),
    ("max_pool2d", [IMAGE], POOLED, nn.MaxPool2d(2, padding=1, ceil_mode=True)),
    ("avg_pool2d", [IMAGE], {"kernel_size": (2, 3)}, nn.AvgPool2d((2, 3))),
    ("adaptive_avg_pool2d", [IMAGE], {"output_size": (None, 4)}, nn.AdaptiveAvgPool2d((None, 4))),
    ("mean", [IMAGE], {"dim": (2, 3)}, lambda x: x.mean((2, 3))),
    ("sum", [IMAGE], {"dim": -1, "keepdim": True}, lambda x: x.sum(-1, keepdim=True)),
    ("norm", [IMAGE], {}, torch.linalg.vector_norm),
    ("max_pool3d", [(2, 6, 5, 7, 9)], {"kernel_size": (1, 2, 3), "stride": 2}, nn.MaxPool3d((1, 2, 3), 2)),
    ("avg_pool3d", [(2, 6, 5, 7, 9)], {"kernel_size": 2, "padding": 1}, nn.AvgPool3d(2, padding=1)),
    ("adaptive_avg_pool3d", [(2, 6, 5, 7, 9)], {"output_size": (None, 2, 3)}, nn.AdaptiveAvgPool3d((None, 2, 3))),
    ("var", [IMAGE], {"dim": (1, 3), "keepdim": True}, lambda x: x.var((1, 3), keepdim=True)),
    ("max", [IMAGE], {"dim": 0}, lambda x: x.amax(0)),
    ("logsumexp", [IMAGE], {"dim": (0, -1)}, lambda x: x.logsumexp((0, -1))),
    ("cumsum", [IMAGE], {"dim": 2}, lambda x: x.cumsum(2)),
    ("cdist", [(1, 5, 6), (4, 7, 6)], {"p": 1.0}, lambda a, b: torch.cdist(a, b, p=1.0)),
    ("sort", [IMAGE], {"dim": 1}, lambda x: x.sort(1)[0]),
    ("topk", [IMAGE], {"k": 4, "dim": 1}, lambda x: x.topk(4, 1)[0]),
    ("interpolate", [(2, 6, 9)], {"output_size": 14, "mode": "linear"}, nn.Upsample(14, mode="linear")),
    ("fft", [(3, 4, 7)], {"dim": (0, 2), "form": "r2c"}, lambda x: torch.view_as_real(torch.fft.rfftn(x, dim=(0, 2)))),
    ("fft", [(3, 5, 2)], REAL, lambda x: torch.fft.irfft(torch.view_as_complex(x), 9, dim=1)),
    ("fft", [(3, 5, 2)], {"dim": -1, "form": "c2r"}, lambda x: torch.fft.irfft(torch.view_as_complex(x))),
]
IDS = [f"{kind}-{i}" for i, (kind, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("kind", "shapes", "attributes", "module"), CASES, ids=IDS)
def test_shape_and_parameters_are_those_of_torch_and_survive_json(kind, shapes, attributes, module):
    operation = Operation(kind, shapes, attributes)
    assert operation.output_shape == tuple(module(*map(torch.randn, shapes)).shape)
    expected = sum(p.numel() for p in module.parameters()) if isinstance(module, nn.Module) else 0
    assert operation.parameters == expected
    operation = Operation(kind, shapes, attributes, precision="bf16", mode="training")
    again = Operation.from_dict(json.loads(json.dumps(operation.to_dict())))
    assert again == operation
    assert hash(again) == hash(operation)
    assert again.digest == operation.digest


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "output"),
    [
        ("attention", [(4, 8), (6, 8), (6, 5)], {}, (4, 5)),  # without heads
        ("attention", [(6, 4, 8), (3, 6, 8), (3, 6, 8)], {}, (6, 4, 8)),
        ("attention", [(1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8)], {"window": 6}, (1, 2, 4, 8)),
        ("matmul", [(2, 3), (3, 5)], {}, (2, 5)),
        ("cat", [(1, 2), (3, 2)], {"dim": -2}, (4, 2)),
        ("add", [(1, 1, 4), (3, 1)], {}, (1, 3, 4)),
        ("group_norm", [(2, 6, 4)], {"num_groups": 3}, (2, 6, 4)),
        ("group_norm", [(8, 16)], {"num_groups": 4}, (8, 16)),  # without positions
    ],
)
def test_what_just_fits_has_its_output(kind, shapes, attributes, output):
    assert Operation(kind, shapes, attributes).output_shape == output


def test_one_operation_has_one_spelling():
    short = Operation("conv2d", [IMAGE], {"out_channels": 8, "kernel_size": 3})
    long = Operation(
        "conv2d", [list(IMAGE)], {"out_channels": 8, "kernel_size": [3, 3], "stride": (1, 1), "bias": True}
    )
    assert short == long
    assert short != short.replace(mode="training")
    norm = {"normalized_shape": [12], "affine": True}
    assert Operation("layer_norm", [(2, 5, 12)]) == Operation("layer_norm", [(2, 5, 12)], norm)


def test_a_hash_does_not_travel_to_other_processes():
    """Each process hashes strings in its own way, so what is sent to another one must not hold a hash."""
    operation = Operation("relu", [(4, 4)])
    hash(operation)
    assert "_hash" in vars(operation)
    rebuild, values = operation.__reduce__()
    arrived = rebuild(*values)
    assert arrived == operation
    assert "_hash" not in vars(arrived)


def test_noise_is_an_identity_in_inference():
    dropout = Operation("dropout", [(8, 8)], {"p": 0.5})
    assert dropout.is_identity
    assert dropout.bytes_read == dropout.bytes_written == dropout.flops == 0
    assert not dropout.replace(mode="training").is_identity
    assert Operation("stochastic_depth", [(8, 8)], {"p": 0.0}, mode="training").is_identity


def test_real_precision():
    assert [real_precision(kind, "default") for kind in ("conv2d", "linear", "relu")] == ["tf32", "fp32", "fp32"]
    assert [real_precision(kind, "tf32") for kind in ("linear", "relu")] == ["tf32", "fp32"]
    assert (real_precision("conv2d", "fp32"), real_precision("relu", "bf16")) == ("fp32", "bf16")


@pytest.mark.parametrize("value", [None, [], {"kind": "relu"}, {"kind": "relu", "input_shapes": [[1]], "extra": 1}])
def test_json_that_is_no_operation_is_refused(value):
    with pytest.raises(InputError):
        Operation.from_dict(value)
