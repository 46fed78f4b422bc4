"""Layers of experts and collectives over several GPUs. What one GPU computes and moves is in costs_of_layers.py."""

import pytest

from joulecast import predict_operations
from joulecast.operations.operation import Operation
from joulecast.operations.parallel import sent_elements, touched_experts

MIXTRAL = {"intermediate": 14336, "top_k": 2, "experts": 8}


def experts(precision="bf16", **changes):
    return Operation("experts", [(64, 4096)], {**MIXTRAL, **changes}, precision=precision)


# Eight GPUs; the first dimension of the output, and the least elements that each has to send.
@pytest.mark.parametrize(
    ("kind", "rows", "sent"),
    [
        ("all_reduce", 1 << 20, 1 << 21),
        ("all_gather", 1 << 23, 1 << 21),
        ("reduce_scatter", 1 << 17, (1 << 21) * 7 / 8),
        ("all_to_all", 1 << 20, (1 << 21) * 7 / 8),
    ],
)
def test_collectives(kind, rows, sent):
    def collective(**options):
        return Operation(kind, [(1 << 20, 2)], {"gpus": 8, **options}, precision="fp16")

    operation = collective()
    assert operation.output_shape == (rows, 2)
    assert operation == collective(link="nvlink", implementation="pytorch") != collective(link="pcie")
    assert operation.row.family == "movement"
    assert sent_elements(kind, operation.input_shapes, operation.attributes) == sent
    # Those that were not learned are missing, and nothing stands in.
    for gpu in ("A30", "H100 SXM"):
        assert predict_operations([operation], gpu).source == ("missing",)


def test_a_layer_of_experts_and_its_division_over_gpus():
    """FLOPs and bytes of one GPU are those of costs_of_layers.py."""
    one = 3 * 4096 * 14336  # Gate, up and down of an expert.
    assert experts().parameters == 8 * one
    # 64 tokens that draw 2 of 8 experts leave none of them out.
    assert experts(precision="fp8").bytes_read == pytest.approx(64 * 4096 + 8 * one, rel=1e-6)
    assert experts(precision="fp8").bytes_written == 2 * 64 * 4096
    for divided in (experts(tensor_parallel=4), experts(expert_parallel=4)):
        assert (divided.flops, divided.parameters) == (2 * 64 * 2 * one // 4, 8 * one // 4)
    # Each of two experts here is missed by a token with three chances in four.
    assert touched_experts(3, experts(expert_parallel=4).attributes) == pytest.approx(2 * (1 - 0.75**3))
