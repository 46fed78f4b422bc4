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


@pytest.mark.parametrize("gpu", ["A100 SXM4 80GB", "H100 SXM", "B200"])
def test_tf32_changes_nothing_where_tensor_cores_have_no_part(gpu):
    predictor = find_predictor(gpu, "inference").operations
    plain, allowed = (Operation("var", [(238, 176)], precision=precision) for precision in ("fp32", "tf32"))
    found = predictor.predict([plain, allowed])
    assert np.unique(found.device_time_s).size == np.unique(found.dynamic_energy_j).size == 1
