"""What torch.compile fuses, by rules: against chains counted by hand, and laws on well-known models."""

import numpy as np
import pytest

import joulecast
from joulecast.operations.fusion import ROLES, fusion_of, role_of
from joulecast.operations.kinds import KINDS
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation

ROWS, NARROW, WIDE = 32, 64, 256
N = ROWS * WIDE  # Elements of the wide tensors.
FLOAT = 4  # Bytes.


def op(kind, *shapes, mode="inference", **attributes):
    return Operation(kind, shapes, attributes, mode=mode)


def linear(columns, out):
    return op("linear", (ROWS, columns), out_features=out)


def fused(*operations, counts=None):
    network = Network.of(zip(operations, counts or [1] * len(operations), strict=True))
    kernels, traffic = fusion_of(network)
    return dict(zip(operations, zip(kernels.tolist(), traffic.tolist(), strict=True), strict=True))


@pytest.mark.parametrize("calls", [1, 3])
def test_a_chain_between_two_products_is_one_kernel(calls):
    gelu, mul = op("gelu", (ROWS, WIDE)), op("mul", (ROWS, WIDE), (ROWS, WIDE))
    first, last = linear(NARROW, WIDE), linear(WIDE, NARROW)
    found = fused(first, gelu, mul, last, counts=[calls] * 4)
    # Alone, gelu reads one tensor and mul two, and each writes one. Together they read two tensors and write one.
    assert found[gelu] == found[mul] == (1 / 2, 3 / 5)
    assert found[first] == found[last] == (1.0, 1.0)


def test_a_norm_takes_along_the_sum_before_it_which_is_still_written():
    add = op("add", (ROWS, WIDE), (ROWS, WIDE))
    norm = op("layer_norm", (ROWS, WIDE), normalized_shape=(WIDE,))
    found = fused(linear(NARROW, WIDE), add, norm, linear(WIDE, NARROW))
    alone = FLOAT * (3 * N + 2 * N + 2 * WIDE)  # add; layer_norm with weight and bias.
    together = alone - FLOAT * N  # The norm does not have to read the sum.
    assert found[add][0] == 1 / 2
    assert found[add][1] == found[norm][1] == pytest.approx(together / alone, rel=1e-12)


def test_two_reductions_are_two_kernels():
    softmax, mean = op("softmax", (ROWS, WIDE)), op("mean", (ROWS, WIDE), dim=(1,))
    assert fused(softmax, mean)[softmax] == (1.0, 1.0)


def test_roles_depend_on_the_mode_of_a_norm_and_the_length_of_a_concatenation():
    shape = (8, 16, 7, 7)
    assert role_of(op("batch_norm", shape)) == role_of(op("cat", *[(4, 4)] * 8)) == "point-wise"
    assert role_of(op("batch_norm", shape, mode="training")) == "reduction"
    assert role_of(op("cat", *[(4, 4)] * 9)) == "call"
    assert set(ROLES) <= set(KINDS) | {kind.family for kind in KINDS.values()}


def test_a_scale_that_a_product_computes_has_to_be_waited_for():
    """Squeeze and excitation: what comes before the pooling and after the scale are two kernels."""
    image, scale = (8, 16, 14, 14), (8, 16, 1, 1)
    conv = op("conv2d", (8, 16, 14, 14), out_channels=16, kernel_size=3, padding=1, groups=16)
    squeeze = op("conv2d", scale, out_channels=16, kernel_size=1)
    project = op("conv2d", image, out_channels=4, kernel_size=1)
    norm, relu, mean = op("batch_norm", image), op("relu", image), op("mean", image, dim=(2, 3))
    found = fused(conv, norm, relu, mean, squeeze, op("mul", image, scale), project)
    # (batch_norm, relu, mean) and (mul): 2 kernels of 4.
    assert found[norm][0] == 1 / 2


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet50", (8, 3, 224, 224)),
        ("gpt2", (2, 64)),
        ("bert_large", (1, 128)),
        ("efficientnet_b0", (4, 3, 224, 224)),
    ],
)
def test_compiling_never_adds_kernels_or_bytes_and_leaves_products_alone(name, shape, mode):
    network = joulecast.extract(name, shape, mode=mode)
    kernels, traffic = fusion_of(network)
    for share in (kernels, traffic):
        assert ((share > 0) & (share <= 1)).all()
    calls = np.array([role_of(entry.operation) == "call" for entry in network])
    assert (kernels[calls] == 1).all()
    assert (traffic[calls] == 1).all()
    assert kernels.min() < 1


def test_resnet50_is_left_with_about_as_many_kernels_as_inductor_writes():
    network = joulecast.extract("resnet50", (8, 3, 224, 224))
    counts = np.array([entry.count for entry in network])
    written = np.array([role_of(entry.operation) != "call" for entry in network])
    # Inductor of PyTorch 2.13 writes 50 (benchmarks/FUSION.md).
    assert (counts * fusion_of(network).kernels)[written].sum() == pytest.approx(50, abs=4)
