"""Training takes no less than its forward, and a mask costs nothing, on every GPU and in every precision."""

import numpy as np
import pytest

from joulecast import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.physics.limits import with_limits
from joulecast.zoo.catalogue import find_predictor

IMAGE = (32, 64, 56, 56)
CONV = Operation("conv2d", [IMAGE], {"out_channels": 64, "kernel_size": 3}, mode="training")
CAT = Operation("cat", [IMAGE, IMAGE], {"dim": 1}, mode="training")
ARGMAX = Operation("argmax", [(64, 1000)], mode="training")
SMALL_HALF = Operation("gelu", [(10, 200)], precision="fp16", mode="training")


def attention(causal, mode="inference"):
    return Operation("attention", [(1, 8, 256, 32)] * 3, {"causal": causal}, precision="fp16", mode=mode)


def test_operations_in_inference_without_a_mask_have_no_limit():
    listed = OperationList([CONV.replace(mode="inference"), attention(causal=False)])
    operations, masked, trained, _ = with_limits(listed)
    assert operations is listed
    assert not len(masked) + len(trained)


def test_what_is_compared():
    known = [CONV, CAT, ARGMAX, SMALL_HALF]
    operations, masked, trained, multiples = with_limits(OperationList(known))
    assert [*operations] == [*known, *(each.replace(mode="inference") for each in known)]
    assert not len(masked)
    assert trained.tolist() == [0, 1, 2, 3]
    # Gradients of cat are views of the output's, and argmax has none. GELU reads two tensors and writes one.
    assert multiples.tolist() == [2.0, 1.0, 1.0, 2.0]


def test_attention_under_a_mask_is_compared_with_that_without_and_both_with_their_forwards():
    operations, masked, trained, _ = with_limits(OperationList([ARGMAX, attention(causal=True, mode="training")]))
    full = attention(causal=False, mode="training")
    assert [*operations][2:] == [
        full,
        *(each.replace(mode="inference") for each in (ARGMAX, attention(causal=True), full)),
    ]
    assert (masked.tolist(), trained.tolist()) == ([1], [0, 1, 2])


@pytest.mark.parametrize("gpu", ["A100 SXM4 40GB", "MI325X", "L40", "RTX 3060"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_mask_costs_nothing(gpu, mode):
    """It cost up to 2 % where launches decide."""
    predictor = find_predictor(gpu, mode).operations
    full, masked = (predictor.predict([attention(causal, mode)]) for causal in (False, True))
    assert masked.device_time_s[0] <= full.device_time_s[0] * (1 + 1e-12)
    assert masked.dynamic_energy_j[0] <= full.dynamic_energy_j[0] * (1 + 1e-12)


@pytest.mark.parametrize("gpu", ["V100 PCIe 32GB", "A10", "L40S", "H100 SXM", "GB200", "MI210"])
@pytest.mark.parametrize(
    "operation",
    [
        Operation("hardsigmoid", [(10, 200)], precision="fp16"),
        Operation("div", [(23, 328, 1, 1)] * 2, precision="fp16"),
        Operation("linear", [(3, 175)], {"out_features": 6}, precision="fp16"),
        Operation("attention", [(10, 12, 2, 128)] * 3, precision="fp16"),
        Operation("attention", [(24, 4, 445, 128), (24, 4, 30, 128), (24, 4, 30, 128)], precision="fp16"),
        Operation("sum", [(1, 1, 16)]),
        Operation("batch_norm", [(1, 8)]),
        Operation("cat", [IMAGE, IMAGE], {"dim": 1}),
        Operation("argmax", [(50, 336, 28, 28)]),
    ],
    ids=str,
)
def test_training_takes_no_less_than_inference(gpu, operation):
    """While the two modes were predicted independently, each of these took less in training on some GPU."""
    forward, both = (
        find_predictor(gpu, mode).operations.predict([operation.replace(mode=mode)])
        for mode in ("inference", "training")
    )
    assert both.device_time_s[0] >= forward.device_time_s[0] * (1 - 1e-12)
    if both.held_clock_mhz[0] == forward.held_clock_mhz[0]:
        assert both.dynamic_energy_j[0] >= forward.dynamic_energy_j[0] * (1 - 1e-12)


@pytest.mark.parametrize("clock", [None, 900])
@pytest.mark.parametrize("gpu", ["A30", "RTX 2080 Ti"])
def test_parts_of_a_chip_of_both_modes_agree(gpu, clock):
    """They are fitted apart: pooling took a third, and a small sigmoid two thirds, of its forward and as much again."""
    operations = [
        Operation("sigmoid", [(366, 816)], mode="training"),
        Operation("linear", [(190, 19, 2448)], {"out_features": 30}, mode="training"),
        Operation("adaptive_avg_pool2d", [(32, 512, 7, 7)], {"output_size": 1}, mode="training"),
        Operation("add", [(32, 256, 56, 56)] * 2, mode="training"),
    ]
    forward, both = (
        find_predictor(gpu, mode).operations.predict([each.replace(mode=mode) for each in operations], clock)
        for mode in ("inference", "training")
    )
    # Limits hold at the default clock; at others the parts of an operation and of its limit may scale otherwise.
    least = np.array([2, 2, 1, 1]) * (1 - (5e-3 if clock else 1e-9))
    assert (both.device_time_s >= least * forward.device_time_s).all()
    assert (both.dynamic_energy_j >= least * forward.dynamic_energy_j).all()
    assert (both.time_s >= both.device_time_s).all()


def test_the_prediction_of_an_operation_does_not_depend_on_the_others():
    predictor = find_predictor("H100 SXM", "training").operations
    together = predictor.predict([CONV, CAT, ARGMAX, SMALL_HALF])
    alone = [predictor.predict([operation]) for operation in together.operations]
    assert together.device_time_s.tolist() == [float(each.device_time_s[0]) for each in alone]


@pytest.mark.parametrize("gpu", ["A100 SXM4 80GB", "H100 SXM", "B200"])
def test_tf32_changes_nothing_where_tensor_cores_have_no_part(gpu):
    predictor = find_predictor(gpu, "inference").operations
    plain, allowed = (Operation("var", [(238, 176)], precision=precision) for precision in ("fp32", "tf32"))
    found = predictor.predict([plain, allowed])
    assert np.unique(found.device_time_s).size == np.unique(found.dynamic_energy_j).size == 1
