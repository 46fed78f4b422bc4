"""`joulecast best-generation` as a user meets it."""

import csv
import io
import json
import re

from joulecast import best_generation

ASKED = ("best-generation", "llama3_8b", "--gpu", "H100 SXM,B200,T4", "--batches", "4,64", "--prompt", 200)
ASKED = (*ASKED, "--output", 100, "--clocks", "1200,1500")


def test_the_table_names_all_that_is_chosen(printed):
    out = printed(*ASKED)
    assert out.startswith("llama3_8b, 200 + 100 tokens, by vllm: least energy per token")
    header, _, first, second, *rest = out.splitlines()[2:]
    for column in ("GPU", "clock MHz", "precision", "batch", "energy per token", "time per token", "power"):
        assert column in header
    assert {first.split()[1], second.split()[1]} == {"H100", "B200"}
    assert all(line.startswith("left out: Tesla T4") or "T4" in line for line in rest)


def test_json_is_what_the_library_answers(call):
    code, out, _ = call(*ASKED, "--precision", "bf16,fp8", "--counts", "1,2", "--json")
    found = best_generation(
        "llama3_8b",
        prompt_tokens=200,
        output_tokens=100,
        gpus=["H100 SXM", "B200", "T4"],
        counts=(1, 2),
        batches=(4, 64),
        precisions=("bf16", "fp8"),
        clocks=[1200, 1500],
    )
    assert code == 0
    assert json.loads(out) == found.to_dict()


def test_csv_has_all_ways_or_the_front(printed):
    ways, front = (list(csv.DictReader(io.StringIO(printed(*ASKED, *more, "--csv")))) for more in ((), ("--pareto",)))
    assert len(ways) == 2 * 2 * 2  # Two GPUs, two batches and two clocks.
    pairs = [(float(way["time_per_output_token_s"]), float(way["energy_per_token_j"])) for way in ways]
    undominated = {
        one for one in pairs if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in pairs)
    }
    assert {(float(way["time_per_output_token_s"]), float(way["energy_per_token_j"])) for way in front} == undominated


def test_the_front_and_prices_are_shown(printed):
    out = printed(*ASKED, "--output", "100,50", "--pareto", "--price-per-hour", "3", "--carbon", "400")
    assert out.startswith("llama3_8b, 200 + 100 +- 50 tokens, by vllm: Pareto front")
    assert "cost per million" in out
    assert "CO2 per million" in out


def test_a_refusal_says_what_can_be_reached(call):
    code, _, err = call(*ASKED, "--gpu", "H100 SXM", "--max-first-token", "0.0001", "--min-tokens-per-s", "1e9")
    assert code == 2
    assert re.search(r"time to the first token: at least [0-9.]+ ms; tokens: at most [0-9,]+ a second", err)
