"""`joulecast generate`, `best-generation` and `image` as a user meets them."""

import csv
import io
import json
import re

import joulecast

GENERATE = ("generate", "llama3_8b", "--gpu", "H100 SXM", "--batch", 16, "--prompt", 200, "--output", 100)
LENGTHS = {"prompt_tokens": 200, "output_tokens": 100}
ASKED = ("best-generation", "llama3_8b", "--gpu", "H100 SXM,B200,T4", "--batches", "4,64", "--prompt", 200)
ASKED = (*ASKED, "--output", 100, "--clocks", "1200,1500")
IMAGE = ("image", "pixart_sigma", "--gpu", "H100 SXM", "--steps", 5)


def test_generate_prints_seconds_joules_and_memory(printed):
    out = printed(*GENERATE)
    assert out.startswith("llama3_8b, bf16, 200 + 100 tokens, batch 16 (continuous), by vllm on NVIDIA H100")
    for shown in ("time per output token", "energy per token", "90 % interval", "16.1 GB of weights", "note: assumed"):
        assert shown in out
    assert "self_attn" in printed(*GENERATE, "--tree")


def test_json_is_what_the_library_answers(printed):
    found = joulecast.predict_generation("llama3_8b", "H100 SXM", batch=16, tensor_parallel=2, **LENGTHS)
    assert json.loads(printed(*GENERATE, "--tensor-parallel", 2, "--json")) == json.loads(found.to_json())
    many = {"gpus": ["H100 SXM", "B200", "T4"], "counts": (1, 2), "batches": (4, 64), "precisions": ("bf16", "fp8")}
    ways = joulecast.best_generation("llama3_8b", clocks=[1200, 1500], **many, **LENGTHS)
    assert json.loads(printed(*ASKED, "--precision", "bf16,fp8", "--counts", "1,2", "--json")) == ways.to_dict()
    image = joulecast.predict_image("pixart_sigma", "H100 SXM", steps=5)
    assert json.loads(printed(*IMAGE, "--json")) == json.loads(image.to_json())


def test_an_answer_is_drawn_beside_what_is_printed(printed, tmp_path):
    for name in ("a.png", "a.svg"):
        out = printed(
            "generate", "gpt2", "--gpu", "A30", "--prompt", "64", "--output", "16", "--plot", str(tmp_path / name)
        )
        assert "energy per token" in out
        assert (tmp_path / name).stat().st_size > 1000


def test_the_table_of_ways_names_all_that_is_chosen(printed):
    out = printed(*ASKED)
    assert out.startswith("llama3_8b, 200 + 100 tokens, by vllm: least energy per token")
    header, _, first, second, *rest = out.splitlines()[2:]
    for column in ("GPU", "clock MHz", "precision", "batch", "energy per token", "time per token", "power"):
        assert column in header
    assert {first.split()[1], second.split()[1]} == {"H100", "B200"}
    assert all(line.startswith("left out: Tesla T4") or "T4" in line for line in rest)


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
    assert re.search(r"time to first token: at least [0-9.]+ ms; tokens: at most [0-9,]+ a second", err)


def test_images_and_videos_have_parts_and_totals(printed):
    out = printed(*IMAGE)
    for shown in ("pixart_sigma, 1024 x 1024", "t5_xxl", "denoiser", "per image", "10.8 GB of weights"):
        assert shown in out
    out = printed("image", "wan_2_1_1_3b", "--gpu", "H100 SXM", "--frames", 5, "--steps", 2)
    assert "832 x 480, 5 frames" in out
    assert "per video" in out
