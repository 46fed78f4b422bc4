"""Steps of training over several GPUs: parts of a network by arithmetic, and laws of time and energy."""

import pytest

import joulecast
from joulecast import predict_run
from joulecast.extraction import Job
from joulecast.hardware import find_gpu
from joulecast.runs import Layout
from joulecast.runs.computed import divided, results_of_blocks
from joulecast.runs.step import step_of
from joulecast.runs.traffic import Traffic

H100 = find_gpu("H100 SXM")


def train(shape=(8, 512), gpu="H100 SXM", gpus=1, optimizer="adamw", **divided):
    """A step without the loss, which is no part of a model."""
    layout, how = Layout(gpus, **divided), {"mode": "training", "precision": "bf16", "optimizer": optimizer}
    whole = joulecast.extract("gpt2", layout.micro_shape(shape), **how)
    return step_of(Job("gpt2", shape, **how), whole, find_gpu(gpu), layout)


def waits_s(step):
    return sum(step.parts[name].time_s for name in ("communication", "waiting for stages") if name in step.parts)


def flops(network, kind):
    return sum(entry.count * entry.operation.flops for entry in network if entry.operation.kind == kind)


def test_a_part_has_its_share_of_heads_and_features():
    whole = joulecast.extract("gpt2", (4, 512), mode="training", precision="bf16", optimizer="adamw")
    part = divided(whole, 4)
    words = 3 * 2 * 4 * 512 * 768  # The logits, forward and backward; 50,257 words are 12,565 on each GPU.
    assert flops(part, "linear") - words * 12565 == (flops(whole, "linear") - words * 50257) // 4
    assert flops(part, "attention") == flops(whole, "attention") // 4
    # Norms and residuals by tokens.
    assert flops(part, "layer_norm") == flops(whole, "layer_norm") // 4
    residuals = [e.operation for e in part if e.operation.kind == "add" and e.module_paths[0] == "transformer.h.0"]
    assert [each.input_shapes[0] for each in residuals] == [(4, 128, 768)]
    assert flops(part, "tanh") == flops(whole, "tanh") // 4
    # Attention and feed-forward of 12 layers close with 768 features of 2048 tokens.
    assert list(results_of_blocks(whole)) == [(2048, 768)] * 24
    assert divided(whole, 1) is whole
    # Llama's first and last layers of attention both map 4096 to 4096 features: one entry, of which half closes.
    llama = joulecast.extract("llama3_8b", (1, 512), mode="training", precision="bf16")
    assert list(results_of_blocks(llama)) == [(1, 512, 4096)] * 64


def test_stages_send_each_other_the_part_that_each_gpu_has():
    def messages(tensor):
        options = {"pipeline_parallel": 2, "tensor_parallel": tensor, "accumulation": 4, "optimizer": None}
        return train((32, 512), gpus=2 * tensor, **options)

    # 8 x 512 x 768 results of two bytes cross 2 x 4 times at 450 GB/s, 10 us each; divided by 2, half of the bytes.
    whole = 8 * 512 * 768 * 2
    assert messages(1).communication_s == pytest.approx(8 * (10e-6 + whole / 450e9))
    # Two blocks of each of the 6 layers of a stage are summed, in 4 micro-batches, forward and back.
    sums_s = 4 * 2 * 12 * Traffic(H100, 8).all_reduce(whole, 2).time_s
    assert messages(2).communication_s - sums_s == pytest.approx(8 * (10e-6 + whole / 2 / 450e9))


def test_replicas_wait_for_gradients_only_where_the_backward_is_over():
    # The input embedding and the weight of the logits are one tensor.
    alone, four = train((2, 512)), train((8, 512), gpus=4)
    assert four.whole.time_s - waits_s(four) == pytest.approx(alone.whole.time_s)
    # Each GPU sends and receives 2 x 3/4 of 124,439,808 gradients of two bytes, at a little less than the 450 GB/s of
    # its links in each direction.
    least_s = 2 * 3 / 4 * 124_439_808 * 2 / 450e9
    assert least_s < four.communication_s < 1.5 * least_s
    assert 0 < waits_s(four) < four.communication_s
    assert four.whole.energy_j > alone.whole.energy_j
    twice = train((16, 512), gpus=4, accumulation=2)
    assert twice.communication_s == pytest.approx(four.communication_s)


def test_the_backward_hides_all_buckets_but_the_last_or_a_part_where_links_are_slow():
    """248.9 MB of gradients are 9.49 buckets of 25 MiB. The backward is half of computing to two thirds."""
    last = 25 * 2**20 / (2 * 124_439_808)
    quick, slow = train((8, 128), gpus=4), train((8, 128), "L40S", 4, optimizer=None)
    assert waits_s(quick) == pytest.approx(quick.communication_s * last)
    hidden_s = slow.communication_s - waits_s(slow)
    assert 1 / 2 < hidden_s / ((slow.whole.time_s - waits_s(slow)) * (1 - last)) < 2 / 3


def test_the_memory_of_each_gpu_is_checked():
    # Llama-2-7B in fp32: weights, gradients and two moments of 6.74e9 parameters take 108 GB alone, of 80 on a board.
    found = predict_run("llama2_7b", (64, 1024), "H100 SXM", samples=64)
    assert found.memory_bytes > 4 * 4 * 6.74e9 > H100.memory_bytes
    assert found.notes[0].startswith("it would not fit: each GPU needs ")
    # Sixteen stages hold a sixteenth of the weights, and at most 16 of 64 micro-batches.
    options = {"samples": 64, "pipeline_parallel": 16, "accumulation": 64, "precision": "bf16"}
    stages = predict_run("llama2_7b", (64, 1024), "16x H100 SXM", **options)
    assert stages.memory_bytes < H100.memory_bytes
    assert not any("not fit" in note for note in stages.notes)


@pytest.mark.parametrize("shape", [(1, 128), (16, 512)], ids=["the host decides", "the device decides"])
def test_one_gpu_takes_as_long_as_an_iteration(shape):
    one = joulecast.predict("gpt2", shape, "H100 SXM", mode="training", precision="bf16", optimizer="adamw")
    found = train(shape)
    assert (found.whole.time_s, found.whole.energy_j) == pytest.approx((one.time_s, one.energy_j))
    assert found.memory.total_bytes == one.memory_bytes
