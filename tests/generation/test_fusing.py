"""The parts of decoders, against published numbers of parameters and against what their configurations say."""

from pathlib import Path

import pytest

import joulecast
from joulecast.errors import InputError
from joulecast.extraction.models.language_models import LANGUAGE_MODELS
from joulecast.extraction.models.transformers_models import import_transformers
from joulecast.generation.decoder import Activation, Attention, Experts, LatentAttention, Logits, Projection, Recurrence
from joulecast.generation.engines import ENGINES
from joulecast.generation.models import find_decoder, known_decoder


def test_recurrent_layers_have_a_state_for_each_sequence():
    name, load = "nemotron_nano_9b_v2", {"batch": 8, "prompt_tokens": 100, "output_tokens": 9}
    assert parts_of(name, Recurrence) == [Recurrence(128, 80, 128)]
    found = joulecast.predict_generation(name, "H100 SXM", **load)
    # States in fp32 of 27 layers, and 106 + 8 keys and values of 8 heads of 128 elements in 16 bits of 4 layers.
    assert found.memory.cache_bytes == 8 * (27 * 4 * 128 * 80 * 128 + 4 * 114 * 2 * 8 * 128 * 2)
    assert (8, 128 * 80 * 128) in [shape for cost in found.decode.operations for shape in cost.operation.input_shapes]
    # 128 heads and one chunk of each prompt, whose tokens attend to each other.
    assert (128, 256, 256) in [cost.operation.input_shapes[0] for cost in found.prefill.operations]
    assert any("recurrent layers" in note for note in found.notes)
    alone = joulecast.predict_generation(name, "H100 SXM", **{**load, "batch": 1})
    lengths = {"prompt_tokens": 100, "output_tokens": 9}
    simulated = joulecast.simulate_serving(name, "H100 SXM", concurrency=1, duration_s=1, **lengths)
    assert simulated.tpot_s(0.5) == pytest.approx(alone.time_per_output_token_s, rel=0.02)
    assert simulated.ttft_s(0.5) == pytest.approx(alone.time_to_first_token_s, rel=0.05)


def test_steps_that_read_prompts_take_as_long_as_their_scans_are_launched():
    engine = ENGINES["vllm_async"]
    assert (scans := known_decoder("nemotron_nano_9b_v2").scans) == 27
    short, long = (
        joulecast.predict_generation(
            "nemotron_nano_9b_v2", "H100 SXM", batch=1, prompt_tokens=tokens, output_tokens=9, engine="vllm_async"
        )
        for tokens in (100, 8000)
    )
    assert short.time_to_first_token_s == pytest.approx(scans * engine.scan_s + engine.overhead_s(1))
    # The GPU is still busy with the first layers of a long prompt when the last ones are launched.
    assert long.time_to_first_token_s == pytest.approx(long.prefill.time_s + engine.overhead_s(1), rel=0.01)
    assert long.prefill.time_s > scans * engine.scan_s > short.prefill.time_s


@pytest.mark.parametrize("name", ["llama3_2_1b", "gpt_oss_20b", "nemotron_nano_9b_v2"])
def test_the_file_holds_what_extraction_gives(name, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from generation_tables import decoder

    assert decoder(name, LANGUAGE_MODELS[name]) == known_decoder(name)


def parts_of(name, kind):
    return [part for part, _ in known_decoder(name) if isinstance(part, kind)]


def test_layers_that_read_the_same_input_are_one():
    projections = parts_of("llama3_8b", Projection)
    # Queries 32 x 128, keys and values 8 x 128 each; gate and up 14336 each.
    assert {(p.inputs, p.outputs, p.division) for p in projections} == {
        (4096, 4096 + 2 * 1024, "columns"),
        (4096, 4096, "rows"),
        (4096, 2 * 14336, "columns"),
        (14336, 4096, "rows"),
    }
    assert parts_of("llama3_8b", Attention) == [Attention(32, 8, 128, 128)]
    assert parts_of("llama3_8b", Activation) == [Activation(14336, gated=True)]
    assert parts_of("gpt2", Activation) == [Activation(3072, gated=False)]


def test_windows_experts_and_latent_attention_are_found():
    assert {part.window for part in parts_of("gemma3_27b", Attention)} == {1024, None}
    assert {part.window for part in parts_of("gpt_oss_20b", Attention)} == {128, None}
    assert parts_of("gpt_oss_20b", Attention)[0].cached_heads == 8
    assert parts_of("mixtral_8x7b", Experts) == [Experts(4096, 14336, experts=8, top_k=2)]
    (latent,) = parts_of("deepseek_v3", LatentAttention)
    assert (latent.latent, latent.turned, latent.key_size, latent.value_size) == (512, 64, 192, 128)
    assert latent.cached_elements == 576  # for each token and layer, as in the paper
    assert not any(part.quantized for part in parts_of("deepseek_v3", Logits))


def test_a_configuration_and_its_file_are_the_same_model(tmp_path):
    transformers = import_transformers()
    sizes = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 500, "max_position_embeddings": 16384}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    config = transformers.Qwen2Config(**sizes, **layers, architectures=["Qwen2ForCausalLM"])
    config.save_pretrained(tmp_path)
    first, second = find_decoder(config), find_decoder(str(tmp_path / "config.json"))
    assert first.parts == second.parts
    assert first.tied is second.tied is True
    assert first.context == second.context == 16384
    # Embeddings of 500 x 64, once. A layer has queries, keys and values with biases, an output, 3 x 64 x 96, two norms.
    layer = 64 * (64 + 2 * 32) + (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64
    assert first.parameters == 500 * 64 + 2 * layer + 64


@pytest.mark.parametrize("name", ["bert_base", "resnet18", "vit_base"])
def test_models_that_generate_no_text_are_refused(name):
    with pytest.raises(joulecast.JoulecastError):
        find_decoder(name)
    with pytest.raises(InputError, match="not enough to predict all steps"):
        find_decoder([(joulecast.Operation("relu", [(2, 3)]), 1)])
