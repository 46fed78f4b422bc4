"""`joulecast generate` as a user meets it."""

import json

GENERATE = ("generate", "llama3_8b", "--gpu", "H100 SXM", "--batch", 16, "--prompt", 200, "--output", 100)


def test_it_prints_seconds_joules_and_memory(printed):
    out = printed(*GENERATE)
    assert out.startswith("llama3_8b, bf16, 200 + 100 tokens, batch 16 (continuous), by vllm on NVIDIA H100")
    for shown in ("time per output token", "energy per token", "90 % interval", "16.1 GB of weights", "note: assumed"):
        assert shown in out


def test_json_has_what_the_library_answers(printed):
    value = json.loads(printed(*GENERATE, "--tensor-parallel", 2, "--json"))
    assert (value["gpus"], value["tensor_parallel"], value["batch"]) == (2, 2, 16)
    assert value["power_w"] * value["time_per_output_token_s"] > 0


def test_the_tree_shows_modules_of_a_step(printed):
    out = printed(*GENERATE, "--tree")
    assert "self_attn" in out


def test_an_answer_is_drawn_beside_what_is_printed(printed, tmp_path):
    for name in ("a.png", "a.svg"):
        out = printed(
            "generate", "gpt2", "--gpu", "A30", "--prompt", "64", "--output", "16", "--plot", str(tmp_path / name)
        )
        assert "energy per token" in out
        assert (tmp_path / name).stat().st_size > 1000
