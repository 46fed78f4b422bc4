"""`joulecast generate` as a user meets it."""

from __future__ import annotations

import json

GENERATE = ("generate", "llama3_8b", "--gpu", "H100 SXM", "--batch", 16, "--prompt", 200, "--output", 100)


def test_it_prints_seconds_joules_and_memory(call):
    code, out, err = call(*GENERATE)
    assert (code, err) == (0, "")
    assert out.startswith("llama3_8b, bf16, 200 + 100 tokens, batch 16 (continuous), by vllm on NVIDIA H100")
    for shown in ("time per output token", "energy per token", "90 % interval", "16.1 GB of weights", "note: assumed"):
        assert shown in out


def test_json_has_what_the_library_answers(call):
    code, out, _ = call(*GENERATE, "--tensor-parallel", 2, "--json")
    value = json.loads(out)
    assert code == 0
    assert (value["gpus"], value["tensor_parallel"], value["batch"]) == (2, 2, 16)
    assert value["power_w"] * value["time_per_output_token_s"] > 0


def test_the_tree_shows_modules_of_a_step(call):
    code, out, _ = call(*GENERATE, "--tree")
    assert code == 0
    assert "self_attn" in out


def test_mistakes_are_one_message(call):
    code, _, err = call(*GENERATE, "--engine", "vlm")
    assert code == 2
    assert "vllm" in err
    code, _, err = call("generate", "llama3_1_70b", "--gpu", "H100 SXM")
    assert code == 2
    assert "does not fit" in err


def test_an_answer_is_drawn_beside_what_is_printed(call, tmp_path):
    for name in ("a.png", "a.svg"):
        code, out, err = call(
            "generate", "gpt2", "--gpu", "A30", "--prompt", "64", "--output", "16", "--plot", str(tmp_path / name)
        )
        assert (code, err) == (0, "")
        assert "energy per token" in out
        assert (tmp_path / name).stat().st_size > 1000
