"""`joulecast generate`, `best-generation` and `image` as a user meets them."""

import csv
import io
import json
import re

import pytest

import joulecast

GENERATE = ("generate", "llama3_8b", "--gpu", "H100 SXM", "--batch", 16, "--prompt", 200, "--output", 100)
LENGTHS = {"prompt_tokens": 200, "output_tokens": 100}
ASKED = ("best-generation", "llama3_8b", "--gpu", "H100 SXM,B200,T4", "--batches", "4,64", "--prompt", 200)
ASKED = (*ASKED, "--output", 100, "--clocks", "1200,1500")
IMAGE = ("image", "pixart_sigma", "--gpu", "H100 SXM", "--steps", 5)


def test_json_is_what_the_library_answers(printed):
    found = joulecast.predict_generation("llama3_8b", "H100 SXM", batch=16, tensor_parallel=2, **LENGTHS)
    assert json.loads(printed(*GENERATE, "--tensor-parallel", 2, "--json")) == json.loads(found.to_json())
    tree = json.loads(found.decode.tree().summarized().to_json())
    assert json.loads(printed(*GENERATE, "--tensor-parallel", 2, "--tree", "--json")) == tree
    tree = joulecast.predict("alexnet", (1, 3, 224, 224), "A30").tree().to_dict()
    assert json.loads(printed("predict", "alexnet", "1,3,224,224", "--gpu", "A30", "--tree", "--json")) == tree
    many = {"gpus": ["H100 SXM", "B200", "T4"], "counts": (1, 2), "batches": (4, 64), "precisions": ("bf16", "fp8")}
    ways = joulecast.best_generation("llama3_8b", clocks=[1200, 1500], **many, **LENGTHS)
    assert json.loads(printed(*ASKED, "--precision", "bf16,fp8", "--counts", "1,2", "--json")) == ways.to_dict()
    image = joulecast.predict_image("pixart_sigma", "H100 SXM", steps=5)
    assert json.loads(printed(*IMAGE, "--json")) == json.loads(image.to_json())


PRICED = (*ASKED, "--output", "100,50", "--pareto", "--price-per-hour", "3", "--carbon", "400")
VIDEO = ("image", "wan_2_1_1_3b", "--gpu", "H100 SXM", "--frames", 5, "--steps", 2)
SHOWN = {
    GENERATE: (
        "llama3_8b, bf16, 200 + 100 tokens, batch 16 (continuous), by vllm on NVIDIA H100",
        ("time per output token", "energy per token", "90 % interval", "16.1 GB of weights", "note: assumed"),
    ),
    (*GENERATE, "--tree"): (" energy    share", ("self_attn",)),
    ASKED: (
        "llama3_8b, 200 + 100 tokens, by vllm: least energy per token",
        ("clock MHz", "precision", "batch", "time per token", "power", "NVIDIA H100", "B200", "left out: Tesla T4"),
    ),
    PRICED: ("llama3_8b, 200 + 100 +- 50 tokens, by vllm: Pareto front", ("cost per million", "CO2 per million")),
    IMAGE: ("pixart_sigma, 1024 x 1024", ("t5_xxl", "denoiser", "per image", "10.8 GB of weights")),
    VIDEO: ("wan_2_1_1_3b", ("832 x 480, 5 frames", "per video")),
}


@pytest.mark.parametrize(("words", "begins", "shown"), [(words, *texts) for words, texts in SHOWN.items()])
def test_answers_are_printed(printed, words, begins, shown):
    out = printed(*words)
    assert out.startswith(begins)
    assert [each for each in shown if each not in out] == []


def test_csv_has_all_ways_or_the_front(printed):
    found = joulecast.best_generation(
        "llama3_8b", gpus=["H100 SXM", "B200", "T4"], batches=(4, 64), clocks=[1200, 1500], **LENGTHS
    )
    ways, front = (list(csv.DictReader(io.StringIO(printed(*ASKED, *more, "--csv")))) for more in ((), ("--pareto",)))
    assert len(ways) == 2 * 2 * 2  # Two GPUs, two batches and two clocks.
    assert [float(way["energy_per_token_j"]) for way in front] == [way.energy_per_token_j for way in found.pareto()]


def test_a_refusal_says_what_can_be_reached(call):
    code, _, err = call(*ASKED, "--gpu", "H100 SXM", "--max-first-token", "0.0001", "--min-tokens-per-s", "1e9")
    assert code == 2
    assert re.search(r"time to first token: at least [0-9.]+ ms; tokens: at most [0-9,]+ a second", err)
