"""Training takes no less than its forward, on every GPU and in every precision."""

from __future__ import annotations

import numpy as np
import pytest

from joulecast import Operation
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.any_gpu.forward import with_forward
from joulecast.zoo.catalogue import find_predictor

IMAGE = (32, 64, 56, 56)
CONV = Operation("conv2d", [IMAGE], {"out_channels": 64, "kernel_size": 3}, mode="training")
CAT = Operation("cat", [IMAGE, IMAGE], {"dim": 1}, mode="training")
ARGMAX = Operation("argmax", [(64, 1000)], mode="training")
SMALL_HALF = Operation("gelu", [(10, 200)], precision="fp16", mode="training")


def test_operations_in_inference_have_nothing_to_be_compared_with():
    listed = OperationList([CONV.replace(mode="inference")])
    operations, places, _ = with_forward(listed)
    assert operations is listed
    assert not len(places)


def test_what_is_compared():
    operations, places, multiples = with_forward(OperationList([CONV, CAT, ARGMAX, SMALL_HALF]))
    known = [CONV, CAT, ARGMAX, SMALL_HALF]
    assert [*operations] == [*known, *(each.replace(mode="inference") for each in known[1:])]
    assert places.tolist() == [1, 2, 3]
    # Gradients of cat are views of the output's, and argmax has none. GELU reads two tensors and writes one.
    assert multiples.tolist() == [1.0, 1.0, 2.0]


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
