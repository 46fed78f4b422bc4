"""Layers of experts and collectives: sizes, FLOPs and bytes by hand, and impossible ones."""

import pytest

from joulecast import predict_operations
from joulecast.operations.operation import Operation
from joulecast.operations.parallel import sent_elements, touched_experts

MIXTRAL = {"intermediate": 14336, "top_k": 2, "experts": 8}


def experts(tokens=64, hidden=4096, precision="bf16", **changes):
    return Operation("experts", [(tokens, hidden)], {**MIXTRAL, **changes}, precision=precision)


def test_a_layer_of_experts_by_hand():
    one = 3 * 4096 * 14336  # Gate, up and down of an expert.
    layer = experts()
    assert layer.output_shape == (64, 4096)
    assert layer.parameters == 8 * one
    assert layer.flops == 2 * 64 * 2 * one
    # 64 tokens that draw 2 of 8 experts leave none of them out; a single token needs two.
    assert layer.bytes_read == pytest.approx(2 * (64 * 4096 + 8 * one), rel=1e-6)
    assert experts(tokens=1).bytes_read == 2 * (4096 + 2 * one)
    assert experts(precision="fp8").bytes_read == pytest.approx(64 * 4096 + 8 * one, rel=1e-6)
    assert experts(precision="fp8").bytes_written == 2 * 64 * 4096


def test_experts_are_divided_over_gpus():
    assert experts(tensor_parallel=4).flops == experts().flops // 4
    assert experts(expert_parallel=4).flops == experts().flops // 4
    assert experts(expert_parallel=4).parameters == experts(tensor_parallel=4).parameters == experts().parameters // 4
    # Each of two experts here is missed by a token with three chances in four.
    assert touched_experts(3, experts(expert_parallel=4).attributes) == pytest.approx(2 * (1 - 0.75**3))


def collective(kind, elements=1 << 20, gpus=8, mode="inference", **changes):
    return Operation(kind, [(elements, 2)], {"gpus": gpus, **changes}, precision="fp16", mode=mode)


@pytest.mark.parametrize(
    ("kind", "output", "sent", "flops"),
    [
        ("all_reduce", (1 << 20, 2), 1 << 21, (1 << 21) * 7 // 8),
        ("all_gather", (1 << 23, 2), 1 << 21, 0),
        ("reduce_scatter", (1 << 17, 2), (1 << 21) * 7 / 8, (1 << 21) * 7 // 8),
        ("all_to_all", (1 << 20, 2), (1 << 21) * 7 / 8, 0),
    ],
)
def test_collectives_by_hand(kind, output, sent, flops):
    operation, trained = collective(kind), collective(kind, mode="training")
    assert operation.output_shape == output
    # Its backward is another collective, in no total: it reads its input and writes its output, in training too.
    assert operation.flops == trained.flops == flops
    assert operation.bytes_read == trained.bytes_read == 2 * (2 << 20)
    assert operation.bytes_written == trained.bytes_written == 2 * output[0] * output[1]
    assert operation == collective(kind, link="nvlink", implementation="pytorch") != collective(kind, link="pcie")
    assert operation.row.family == "movement"
    assert sent_elements(kind, operation.input_shapes, operation.attributes) == sent
    # Those that were not learned are missing, and nothing stands in.
    for gpu in ("A30", "H100 SXM"):
        assert predict_operations([operation], gpu).source == ("missing",)
