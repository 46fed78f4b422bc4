"""Models over several GPUs: shares by arithmetic, collectives against their measurements, laws of energy."""

import math
from pathlib import Path

import pytest

from conftest import SHARED_DATA
from joulecast import Operation, predict_generation
from joulecast.generation.collectives import collective_j, collective_s, curves
from joulecast.generation.decoder import Attention, Experts, Projection
from joulecast.generation.engines import ENGINES
from joulecast.generation.models import known_decoder
from joulecast.generation.parallel import Parallel, find_gpus, find_parallel, share
from joulecast.generation.steps import Precisions, StepTokens, step_network
from joulecast.hardware import find_gpu
from joulecast.runs.traffic import Traffic

H100 = find_gpu("H100 SXM")


def serve(model="llama3_8b", gpu="H100 SXM", batch=32, **options):
    return predict_generation(model, gpu, batch=batch, prompt_tokens=300, output_tokens=200, **options)


def test_shares_add_up_to_the_model():
    llama = known_decoder("llama3_1_70b")
    one = share(llama, Parallel(tensor=8))
    # All parameters are divided, except the norms (161 of 8192) and the input embedding.
    whole = 161 * 8192 + 128256 * 8192
    assert 8 * (one.parameters - whole) == llama.parameters - whole
    assert [part for part, _ in one if isinstance(part, Attention)] == [Attention(8, 1, 128, 128)]


def test_heads_of_keys_are_repeated_where_there_are_fewer_than_gpus():
    one = share(known_decoder("qwen3_30b_a3b"), Parallel(tensor=8))
    (attention,) = [part for part, _ in one if isinstance(part, Attention)]
    assert (attention.heads, attention.cached_heads) == (4, 1)  # of 32 heads of queries and 4 of keys
    # Queries of four heads, the key and the value of one, each of 128.
    assert {p.outputs for p, _ in one if isinstance(p, Projection) and p.division == "columns"} == {6 * 128}


def test_experts_are_divided_or_shared_out():
    mixtral = known_decoder("mixtral_8x7b")
    for parallel, parts in ((Parallel(tensor=4), (4, 1)), (Parallel(tensor=4, expert=4), (1, 4))):
        (experts,) = [part for part, _ in share(mixtral, parallel) if isinstance(part, Experts)]
        assert (experts.tensor_parallel, experts.expert_parallel) == parts
        assert experts.parameters == 3 * 8 * 4096 * 14336 // 4


def test_each_block_adds_up_its_result_once():
    parallel = Parallel(tensor=4)
    step = step_network(
        share(known_decoder("llama3_8b"), parallel),
        StepTokens(decoding=16, cached=400, sampled=16),
        ENGINES["vllm"],
        Precisions("bf16"),
        parallel,
    )
    found = {e.operation.kind: (e.count, e.operation.input_shapes[0]) for e in step if e.operation.kind[:4] == "all_"}
    # Attention and feed-forward of 32 layers, and the words that go in; each GPU has a quarter of those that come out.
    assert found == {"all_reduce": (65, (16, 4096)), "all_gather": (1, (16, 128256 // 4))}


@pytest.mark.parametrize(
    ("elements", "gpus", "engine", "microseconds"),
    [
        # Rows of the measurements: H100, vLLM 0.24 and 0.19, and NCCL 2.29.
        (128, 2, "vllm", 4.3),
        (1048576, 4, "vllm", 18.5),
        (536870912, 8, "vllm", 4014),
        (1048576, 8, "pytorch", 38.5),
    ],
)
def test_collectives_take_what_was_measured(elements, gpus, engine, microseconds):
    operation = Operation("all_reduce", [(elements,)], {"gpus": gpus, "implementation": engine}, precision="bf16")
    assert collective_s(operation, H100) == pytest.approx(microseconds * 1e-6, rel=0.05)


def test_the_file_of_collectives_is_what_its_command_makes(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from generation_tables import table

    folder = SHARED_DATA / "aiconfigurator2026"
    if not folder.is_dir():
        pytest.skip("the measurements are not beside this checkout")
    made = {
        (row["gpu"], row["implementation"], row["kind"], row["gpus"]): row["seconds"]
        for row in table(folder / "collectives.parquet")["curves"]
    }
    assert made == {key: curve.seconds for key, curve in curves().items()}


def test_no_collective_beats_its_link_and_larger_ones_take_longer():
    for (name, _, kind, gpus), curve in curves().items():
        assert list(curve.seconds) == sorted(curve.seconds)
        link = find_gpu(name).link_bandwidth or find_gpu(name).pcie_bandwidth
        # Each GPU sends its part at least once. A switch may add up the parts.
        sent = {"all_gather": 1 / gpus, "all_reduce": 1, "all_to_all": (gpus - 1) / gpus}[kind]
        least_s = 2 * curve.elements[-1] * sent / link
        assert curve.seconds[-1] > 0.9 * least_s
        assert curve.at(2 * curve.elements[-1]) == pytest.approx(2 * curve.seconds[-1])


def test_each_byte_of_a_collective_is_read_written_added_and_sent():
    """62 pJ for each access to a byte of HBM, and 5 pJ for each bit on the link."""
    operation = Operation("all_reduce", [(1000,)], {"gpus": 2}, precision="bf16")
    assert collective_j(operation) == pytest.approx(2000 * (3 * 62e-12 + 8 * 5e-12))


def sums_s(gpu, count, link, elements=2**24, implementation="pytorch"):
    attributes = {"gpus": count, "link": link, "implementation": implementation}
    return collective_s(Operation("all_reduce", [(elements,)], attributes, precision="bf16"), find_gpu(gpu))


def test_gpus_without_measurements_take_those_of_the_nearest_link_and_rings_are_as_long_as_their_parts():
    assert sums_s("B300", 4, "nvlink", implementation="vllm") == pytest.approx(
        sums_s("B200", 4, "nvlink", implementation="vllm"), rel=0.3
    )
    assert sums_s("L4", 4, "pcie") > 10 * sums_s("H100 SXM", 4, "nvlink")
    # One server with L40S whose GPUs reach each other: 2 GB takes 59, 75 and 90 ms on 2, 4 and 8 (sglang 0.5.12).
    for count, seconds in ((2, 59.0e-3), (4, 74.9e-3), (8, 90.2e-3)):
        assert sums_s("L40S", count, "pcie", 2**29) == pytest.approx(seconds, rel=0.1)


def test_bridges_join_pairs():
    pair, boxes = find_gpu("A100 80GB PCIe"), find_gpu("A100 SXM4 80GB")
    assert [pair.link(count) for count in (2, 4, 8)] == ["nvlink", "pcie", "pcie"]
    assert (boxes.link(8), find_gpu("L40S").link(2)) == ("nvlink", "pcie")
    # Eight sum up at the rate of their slots: 20 of 31.5 GB/s.
    assert Traffic(pair, 8).all_reduce(2e9, 8).time_s == pytest.approx(2 * 7 / 8 * 2e9 / 20e9, rel=0.1)
    assert Traffic(pair, 8).all_reduce(2e9, 2).time_s < 0.15 * Traffic(pair, 8).all_reduce(2e9, 4).time_s


def test_replicas_share_the_batch():
    one, four = serve(batch=16), serve(gpu="4x H100 SXM", batch=64, tensor_parallel=1)
    assert four.gpus == 4
    assert four.tokens_per_s == pytest.approx(4 * one.tokens_per_s)
    assert four.energy_per_token_j == pytest.approx(one.energy_per_token_j)
    # Two of the four have nothing to do, and draw the static power of a waiting board.
    idle = serve(gpu="4x H100 SXM", batch=2, tensor_parallel=1)
    alone = serve(batch=1)
    assert idle.power_w > 2 * alone.power_w + 2 * 70
    assert idle.time_per_output_token_s == pytest.approx(alone.time_per_output_token_s)


@pytest.mark.parametrize(
    ("model", "gpu", "options", "tensor", "replicas"),
    [
        ("llama3_8b", "2x H100", {}, 2, 1),
        ("llama3_8b", "16x H100 SXM", {}, 8, 2),
        ("llama3_8b", "3x H100 SXM", {}, 1, 3),  # Three GPUs divide no layer.
        ("gpt2", "8x H100 SXM", {}, 4, 2),  # Twelve heads.
        ("llama3_8b", "2x H100 SXM", {"engine": "transformers", "batch": 4}, 1, 2),
        ("qwen3_30b_a3b", "4x H100 SXM", {"expert_parallel": 4}, 1, 1),
        ("llama3_8b", "p5.48xlarge", {}, 8, 1),
    ],
)
def test_gpus_with_a_number_share_the_model_as_far_as_it_divides(model, gpu, options, tensor, replicas):
    found = serve(model, gpu, **options)
    assert (found.tensor_parallel, found.replicas) == (tensor, replicas)
    assert any(found.notes[place].startswith(f"the {found.gpus} GPUs are used as") for place in (0, 1))
    told = serve(model, gpu, **{"tensor_parallel": tensor, **options})
    assert told.energy_per_token_j == found.energy_per_token_j
    assert not any("are used as" in note for note in told.notes)


def test_names_of_several_gpus():
    assert find_gpus("2x H100 SXM") == (2, H100)
    assert find_gpus("16 X h100-sxm") == (16, H100)
    assert find_gpus(H100) == (1, H100)
    assert find_parallel(16, H100, 8, 1) == Parallel(8, 1, 2)
    assert find_parallel(1, find_gpu("L40S"), 2, 1).link == "pcie"


def deepseek(batch, **options):
    lengths = {"prompt_tokens": 1000, "output_tokens": 1000, "precision": "fp8", "engine": "sglang"}
    return predict_generation("deepseek_v3", "H200", batch=batch, **lengths, **options)


def test_attention_of_each_gpu_for_sequences_of_its_own():
    shared, own = deepseek(256, tensor_parallel=8), deepseek(256, expert_parallel=8)
    assert own.gpus == shared.gpus == 8
    assert own.tokens_per_s == pytest.approx(256 / own.time_per_output_token_s, rel=0.02)
    # All heads read one latent vector of 576 numbers, so tensor parallelism repeats the cache on each GPU: when it
    # holds most, 1502 and 8 tokens of 61 layers in 16 bits for each of 256 sequences, or 1516 and 8 of 32.
    token_bytes = 61 * 576 * 2
    assert shared.memory.cache_bytes == pytest.approx(256 * 1510 * token_bytes)
    assert own.memory.cache_bytes == pytest.approx(32 * 1524 * token_bytes)
    assert own.largest_batch > 4 * shared.largest_batch
    # A token of 7168 features goes to the 5.25 of 8 GPUs that have one of its 8 experts, and back.
    (sent,) = [cost for cost in own.decode.operations if cost.operation.kind == "all_to_all"]
    assert sent.operation.input_shapes == ((32, math.ceil(8 * (1 - (7 / 8) ** 8) * 7168)),)
    assert sent.count == 2 * 58  # Three of the 61 layers have no experts.
    (experts,) = [cost.operation for cost in own.decode.operations if cost.operation.kind == "experts"]
    assert experts.input_shapes == ((256, 7168),)
    assert not [cost for cost in own.decode.operations if cost.operation.kind == "all_reduce"]
