"""Names of models as people write them."""

import pytest

import joulecast
from joulecast.errors import InputError, UnknownNameError
from joulecast.extraction.models.language_models import BY_NAME, SAME_ARCHITECTURE
from joulecast.extraction.models.spelling import known_as, known_names

WRITTEN = {
    "Qwen/Qwen3-32B": "qwen3_32b",
    "qwen3-8b": "qwen3_8b",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3_30b_a3b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2_5_7b",
    "gpt-oss-120b": "gpt_oss_120b",
    "openai/gpt-oss-20b": "gpt_oss_20b",
    "llama3_3_70b": "llama3_1_70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_1_8b",
    "meta-llama/Meta-Llama-3.1-405B": "llama3_1_405b",
    "Llama-2-7b-chat-hf": "llama2_7b",
    "bert-base-uncased": "bert_base",
    "google-bert/bert-large-uncased": "bert_large",
    "distilbert-base-uncased": "distilbert",
    "roberta-base": "roberta_base",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral_7b",
    "Mixtral-8x7B-Instruct-v0.1": "mixtral_8x7b",
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "google/gemma-3-27b-it": "gemma3_27b",
    "microsoft/phi-4": "phi4",
    "google/vit-base-patch16-224": "vit_base",
    "ResNet-50": "resnet50",
    "RegNet-X-1.6GF": "regnet_x_1_6gf",
    "RegNet-X-16GF": "regnet_x_16gf",
    "microsoft/resnet-50": "resnet50",
    "ViT-B/16": "vit_b_16",  # the part after the slash alone would be no name
    "mistralai/Mistral-7B-v0.1": "mistral_7b_v0_1",
    "mistralai/Mistral-7B-Instruct-v0.2": "mistral_7b_v0_2",
    "Llama 2 70B": "llama2_70b",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama_1_1b",
    "google/gemma-2-9b-it": "gemma2_9b",
    "facebook/opt-6.7b": "opt_6_7b",
    "OPT-66B": "opt_66b",
    "EleutherAI/pythia-6.9b": "pythia_6_9b",
    "bigscience/bloom": "bloom",
    "falcon": "falcon_7b",
    "tiiuae/falcon-7b": "falcon_7b",
    "gpt-j": "gpt_j_6b",
    "EleutherAI/gpt-j-6B": "gpt_j_6b",
    "whisper-large": "whisper_large_v3_encoder",
    "openai/whisper-large-v3": "whisper_large_v3_encoder",
    "xlm-r": "xlm_roberta_base",
    "Flan-T5": "flan_t5_base",
    "google/flan-t5-base": "flan_t5_base",
    "microsoft/deberta-v3-base": "deberta_v3_base",
    "xlm-roberta-base": "xlm_roberta_base",
    "microsoft/Phi-3.5-mini-instruct": "phi3_5_mini",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "qwen2_5_32b",
    "facebook/deit-base-patch16-224": "vit_base",
    "google/flan-t5-xl": "flan_t5_xl",
    "FacebookAI/roberta-large": "roberta_large",
    "sentence-transformers/all-MiniLM-L6-v2": "minilm_l6",
    "BAAI/bge-large-en-v1.5": "bert_large",
    "openai/clip-vit-base-patch32": "clip_vit_base_patch32_images",
    "facebook/convnext-tiny-224": "convnext_tiny",
    "openai/whisper-tiny": "whisper_tiny_encoder",
    "Qwen/Qwen2.5-VL-7B-Instruct": "qwen2_5_vl_7b",
    "microsoft/Phi-3-mini-4k-instruct": "phi3_mini_4k",
    "zai-org/GLM-4.5-Air": "glm4_5_air",
    "moonshotai/Kimi-K2-Instruct": "kimi_k2",
    "CohereLabs/c4ai-command-r-plus": "command_r_plus",
    "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF": "llama3_1_70b",
    "gpt2-large": "gpt2_large",
}


@pytest.mark.parametrize("written", WRITTEN)
def test_models_are_found_as_people_write_them(written):
    assert known_as(written) == WRITTEN[written]


def test_every_name_and_repository_means_its_own_model():
    assert all(known_as(name) == name for name in known_names())
    assert all(known_as(row.source) == name for name, row in BY_NAME.items())
    assert all(known_as(repository) == name for repository, name in SAME_ARCHITECTURE.items())


# Other weights of the same name may have other layers: their configuration is needed.
@pytest.mark.parametrize("name", ["mistralai/Mistral-7B-v0.4", "Qwen3-9B", "gpt2-huge", "bert", "my/model", "", "/"])
def test_other_models_stay_unknown(name):
    assert known_as(name) == name


def test_pipelines_are_found_by_their_repositories():
    written, known = (
        joulecast.predict_image(name, "H100 SXM") for name in ("black-forest-labs/FLUX.1-dev", "flux_1_dev")
    )
    assert written.to_dict() == known.to_dict()


def test_predictions_and_generation_take_them():
    network = joulecast.extract("bert-base-uncased", (1, 128))
    assert network.name.startswith("bert_base")
    assert network.flops == joulecast.extract("bert_base", (1, 128)).flops
    written, known = (
        joulecast.predict_generation(name, "H100 SXM", batch=8, prompt_tokens=500, output_tokens=100)
        for name in ("meta-llama/Llama-3.1-8B-Instruct", "llama3_1_8b")
    )
    assert written.energy_per_request_j == known.energy_per_request_j
    assert written.model == "llama3_1_8b"
    with pytest.raises(InputError, match="does not write text"):
        joulecast.predict_generation("resnet50", "H100 SXM", batch=8, prompt_tokens=500, output_tokens=100)
    with pytest.raises(UnknownNameError):
        joulecast.predict_generation("llama9", "H100 SXM", batch=8, prompt_tokens=500, output_tokens=100)
