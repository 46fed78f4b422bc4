"""The best GPUs to serve a model, compared with single predictions."""

from __future__ import annotations

import pytest

from joulecast import best_generation, predict_generation
from joulecast.errors import InputError, UnknownNameError


def best(model="llama3_8b", **options):
    options = {"gpus": ["H100 SXM", "L40S"], "batches": (1, 16, 64), **options}
    return best_generation(model, prompt_tokens=200, output_tokens=100, **options)


def test_rows_are_what_single_predictions_say():
    found = best(clocks=[1200.0, 1500.0], counts=(1, 2))
    assert len(found.rows) == 2 * 2 * 3 * 2  # GPUs x numbers of GPUs x batches x clocks
    for row in found.rows[::5]:
        one = predict_generation(
            "llama3_8b",
            f"{row.gpus}x {row.gpu}",
            batch=row.batch,
            prompt_tokens=200,
            output_tokens=100,
            tensor_parallel=row.gpus,
            clock=row.clock_mhz,
        )
        assert row.energy_per_token_j == pytest.approx(one.energy_per_token_j, rel=1e-6)
        assert row.time_to_first_token_s == pytest.approx(one.time_to_first_token_s, rel=1e-6)
        assert row.tokens_per_s == pytest.approx(one.tokens_per_s, rel=1e-6)


def test_the_best_of_each_gpu_comes_first():
    found = best()
    assert [choice.value for choice in found] == sorted(choice.value for choice in found)
    assert found[0].energy_per_token_j == min(row.energy_per_token_j for row in found.rows)
    assert found[0].batch == 64  # Weights are read once for all sequences.
    assert found[0].clock_mhz < 1980  # The voltage of a higher clock costs more than the time of a lower one.
    assert best(objective="time")[0].batch == 1


def test_no_way_beats_one_of_the_pareto_front():
    found = best()
    front = found.pareto()
    assert len(front) > 3
    for row in front:
        assert not any(
            other.energy_per_token_j < row.energy_per_token_j
            and other.time_per_output_token_s <= row.time_per_output_token_s
            for other in found.rows
        )


def test_choices_satisfy_the_limits():
    found = best(max_time_per_output_token_s=0.01, min_tokens_per_s=1000)
    assert all(row.time_per_output_token_s <= 0.01 and row.tokens_per_s >= 1000 for row in found.rows)
    assert set(found.left_out) == {"NVIDIA L40S"}  # Its memory is too slow.
    with pytest.raises(InputError, match="no GPU serves"):
        best(max_time_to_first_token_s=1e-6)


def test_prices_and_carbon():
    prices = {"H100 SXM": 3.0}
    found = best(objective="cost", price_per_hour=prices, carbon=400)
    assert {row.gpu for row in found} == {"NVIDIA H100 80GB HBM3"}
    row = found[0]
    assert row.cost_per_million_tokens == pytest.approx(3.0 / 3600 * 1e6 / row.tokens_per_s)
    assert row.carbon_g_per_million_tokens == pytest.approx(400 * row.energy_per_token_j * 1e6 / 3.6e6)
    with pytest.raises(InputError, match="prices"):
        best(objective="cost")
    with pytest.raises(InputError, match="carbon intensity"):
        best(objective="carbon")


def test_what_lacks_memory_precision_or_kernels_is_left_out():
    found = best("llama3_1_70b", gpus=["L4", "B200", "2x H100 SXM"], precisions=("bf16", "nvfp4"))
    assert {row.boards for row in found} == {"NVIDIA B200", "2x NVIDIA H100 80GB HBM3"}
    assert "does not fit" in found.left_out["NVIDIA L4"]
    assert {row.precision for row in found.rows if row.gpu == "NVIDIA B200"} == {"bf16", "nvfp4"}
    # fp8 was not measured on this GPU, and missing operations must not count as zero.
    assert {row.precision for row in best(gpus="MI300X", precisions=("bf16", "fp8")).rows} == {"bf16"}


def test_it_is_a_table():
    found = best(clocks=[1200.0])
    assert len(found.to_csv().splitlines()) == 1 + len(found.rows)
    value = found.to_dict()
    assert value["choices"][0]["value"] == found[0].value


def test_mistakes_are_refused():
    with pytest.raises(UnknownNameError, match="objective"):
        best(objective="watts")
    with pytest.raises(UnknownNameError, match="GPU"):
        best(gpus="H1000")
    with pytest.raises(InputError, match="positive integer"):
        best(batches=(0,))
