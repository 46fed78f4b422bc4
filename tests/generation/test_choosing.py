"""The best GPUs to serve a model, compared with single predictions."""

import pytest

from joulecast import best_generation, predict_generation


def best(model="llama3_8b", **options):
    options = {"gpus": ["H100 SXM", "L40S"], "batches": (1, 16, 64), **options}
    return best_generation(model, prompt_tokens=200, output_tokens=100, **options)


def test_rows_are_what_single_predictions_say():
    found = best(clocks=[1200.0, 1500.0], counts=(1, 2), batches=(1, 16), gpus="L40S")
    # One: two batches; two that share each layer: two; two replicas: one, as both get work; all at two clocks.
    assert len(found.rows) == (2 + 2 + 1) * 2
    for row in found.rows[::3]:
        asked = {"batch": row.batch, "tensor_parallel": row.tensor_parallel, "clock": row.clock_mhz}
        one = predict_generation(row.model, f"{row.gpus}x {row.gpu}", prompt_tokens=200, output_tokens=100, **asked)
        for name in ("energy_per_token_j", "time_to_first_token_s", "tokens_per_s", "latency_s"):
            assert getattr(row, name) == pytest.approx(getattr(one, name), rel=1e-6)
        assert row.latency_s == pytest.approx(row.time_to_first_token_s + 99 * row.time_per_output_token_s)
        assert row.replicas == one.replicas


def test_the_same_way_is_told_once_with_the_cap_that_the_board_keeps():
    asked = {"clocks": [1500.0], "batches": (16,)}
    (row,) = best(gpus=["L40S", "NVIDIA L40S"], counts=(1, 1), power_limit_w=(1000, 5000), **asked).rows
    kept = predict_generation(
        "llama3_8b", "L40S", batch=16, prompt_tokens=200, output_tokens=100, clock=1500, power_limit_w=1000
    )
    assert row.power_limit_w == kept.power_limit_w == 350
    found = best(gpus="L40S", precisions=("awq", "int4", "gptq"), **asked)
    assert [row.precision for row in found.rows] == ["int4"]


@pytest.mark.parametrize(
    ("engine", "started", "sequences"),
    [
        ("vllm", "vllm serve Qwen/Qwen3-30B-A3B --data-parallel-size 4 --enable-expert-parallel ", "num-seqs 16 "),
        ("vllm_async", "vllm serve --async-scheduling Qwen/Qwen3-30B-A3B --data-parallel-size 4 ", "num-seqs 16 "),
        ("sglang", "Qwen/Qwen3-30B-A3B --tp 4 --dp 4 --enable-dp-attention --ep 4 ", "running-requests 64 "),
        ("tensorrt_llm", "trtllm-serve Qwen/Qwen3-30B-A3B --tp_size 4 --ep_size 4 ", "batch_size 16 "),
    ],
)
def test_a_choice_is_started_as_it_was_predicted(engine, started, sequences):
    asked = {"gpus": "4x H100 SXM", "batches": (64,), "clocks": [1500.0], "engine": engine, "precisions": ("int4",)}
    rows = best("qwen3_30b_a3b", **asked).rows
    (row,) = (row for row in rows if (row.tensor_parallel, row.expert_parallel) == (1, 4))
    assert row.engine == engine
    command = row.to_dict()["command"]
    assert started in command
    assert sequences in command
    assert command.startswith("# of a checkpoint with weights in int4\n")


def test_an_engine_that_does_not_serve_has_no_command():
    (row,) = best("qwen3_0_6b", gpus="L4", engine="transformers", batches=(1,), clocks=[1500.0]).rows
    assert row.to_dict()["command"] is None


def test_the_best_of_each_gpu_comes_first():
    found = best()
    assert [choice.value for choice in found] == sorted(choice.value for choice in found)
    assert found[0].energy_per_token_j == min(row.energy_per_token_j for row in found.rows)
    assert found[0].batch == 64  # Weights are read once for all sequences.
    assert found[0].clock_mhz < 1980  # The voltage of a higher clock costs more than the time of a lower one.
    assert best(objective="time")[0].batch == 1
    assert len(found.pareto()) > 3


def test_choices_satisfy_the_limits():
    found = best(max_time_per_output_token_s=0.01, min_tokens_per_s=1000)
    assert all(row.time_per_output_token_s <= 0.01 and row.tokens_per_s >= 1000 for row in found.rows)
    assert set(found.left_out) == {"NVIDIA L40S"}  # Its memory is too slow.


def test_prices_and_carbon():
    prices = {"H100 SXM": 3.0}
    found = best(objective="cost", price_per_hour=prices, carbon=400)
    assert {row.gpu for row in found} == {"NVIDIA H100 80GB HBM3"}
    row = found[0]
    assert row.cost_per_million_tokens == pytest.approx(3.0 / 3600 * 1e6 / row.tokens_per_s)
    assert row.carbon_g_per_million_tokens == pytest.approx(400 * row.energy_per_token_j * 1e6 / 3.6e6)


def test_what_lacks_memory_precision_or_kernels_is_left_out():
    found = best("llama3_1_70b", gpus=["L4", "B200", "2x H100 SXM"], precisions=("bf16", "nvfp4"))
    assert {row.boards for row in found} == {"NVIDIA B200", "2x NVIDIA H100 80GB HBM3"}
    assert "does not fit" in found.left_out["NVIDIA L4"]
    assert {row.precision for row in found.rows if row.gpu == "NVIDIA B200"} == {"bf16", "nvfp4"}
    # This GPU has no units for nvfp4, and missing operations must not count as zero.
    assert {row.precision for row in best(gpus="MI300X", precisions=("bf16", "fp8", "nvfp4")).rows} == {"bf16", "fp8"}


def test_layouts_and_batches_are_searched_up_to_the_largest_that_fits():
    load = {"prompt_tokens": 1000, "output_tokens": 1000}
    found = best_generation("deepseek_v3", gpus="8x H200", precisions=["fp8"], **load)
    layouts = {(row.tensor_parallel, row.expert_parallel, row.replicas) for row in found.rows}
    assert layouts == {(8, 1, 1), (8, 8, 1), (1, 8, 1)}  # No other has room for its weights.
    apart = {**load, "tensor_parallel": 1, "expert_parallel": 8, "precision": "fp8"}
    most = max(row.batch for row in found.rows)
    largest = predict_generation("deepseek_v3", "8x H200", batch=most, **apart)
    assert most == largest.largest_batch
    assert found[0].energy_per_token_j <= largest.energy_per_token_j
    assert found[0].layout == "EP 8 with DP attention"
    # Without experts to distribute, layers are shared or replicated.
    dense = best_generation("llama3_8b", gpus="2x H100 SXM", batches=[1, 64], clocks=[1500], **load)
    assert {(row.layout, row.batch) for row in dense.rows} == {("TP 2", 1), ("TP 2", 64), ("2 replicas", 64)}
    assert min(dense.rows, key=lambda row: row.latency_s).layout == "TP 2"


def test_a_cap_above_the_range_leaves_no_gpu_out_and_one_below_does():
    options = {"prompt_tokens": 100, "output_tokens": 100, "precisions": ["fp16"]}
    found = best_generation("gpt2", gpus=["T4", "L4"], power_limit_w=150, **options)
    assert {row.gpu for row in found} == {"Tesla T4", "NVIDIA L4"}
    assert all(row.power_w <= 70.001 for row in found.rows if row.gpu == "Tesla T4")
    low = best_generation("gpt2", gpus=["T4", "H100 SXM"], power_limit_w=70, **options)
    assert [(gpu, "cannot be capped" in why) for gpu, why in low.left_out.items()] == [("NVIDIA H100 80GB HBM3", True)]
