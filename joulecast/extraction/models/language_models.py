"""Well-known language models by name: class and sizes as the config.json of their repositories gives them.

To add one, add a row, and write the parts of all of them again (`python -m joulecast.generation.making`, which needs
torch and transformers). Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .transformers_configs import ARCHITECTURES, Architecture


def _sizes(hidden: int, inner: int, layers: int, heads: int, cached: int, words: int, **others: Any) -> dict[str, Any]:
    """The settings that nearly all configurations have, and others."""
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": cached,
        "vocab_size": words,
        "max_position_embeddings": 32768,
        **others,
    }


def _llama(source: str, *sizes: int, **others: Any) -> Architecture:
    return Architecture("LlamaForCausalLM", f"meta-llama/{source}", _sizes(*sizes, **others))


def _qwen2(source: str, *sizes: int, **others: Any) -> Architecture:
    return Architecture("Qwen2ForCausalLM", f"Qwen/{source}", _sizes(*sizes, **others))


def _qwen3(source: str, *sizes: int, **others: Any) -> Architecture:
    return Architecture("Qwen3ForCausalLM", f"Qwen/{source}", _sizes(*sizes, head_dim=128, **others))


def _gemma3(source: str, *sizes: int, **others: Any) -> Architecture:
    settings = _sizes(*sizes, sliding_window=1024, tie_word_embeddings=True, **others)
    return Architecture("Gemma3ForCausalLM", f"google/{source}", settings)


def _opt(source: str, hidden: int, layers: int, heads: int) -> Architecture:
    sizes = {"hidden_size": hidden, "word_embed_proj_dim": hidden, "ffn_dim": 4 * hidden, "vocab_size": 50272}
    settings = {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads}
    return Architecture("OPTForCausalLM", f"facebook/{source}", settings)


def _bloom(source: str, hidden: int, layers: int, heads: int) -> Architecture:
    sizes = {"hidden_size": hidden, "n_layer": layers, "n_head": heads, "vocab_size": 250880}
    return Architecture("BloomForCausalLM", f"bigscience/{source}", sizes)


def _mistral(source: str, words: int, **others: Any) -> Architecture:
    sizes = _sizes(4096, 14336, 32, 32, 8, words, **{"sliding_window": None, **others})
    return Architecture("MistralForCausalLM", f"mistralai/{source}", sizes)


def _gemma2(source: str, *sizes: int, **others: Any) -> Architecture:
    settings = _sizes(*sizes, sliding_window=4096, tie_word_embeddings=True, **others)
    return Architecture("Gemma2ForCausalLM", f"google/{source}", settings)


def _phi(source: str, *sizes: int, **others: Any) -> Architecture:
    return Architecture("Phi3ForCausalLM", f"microsoft/{source}", _sizes(*sizes, pad_token_id=0, **others))


def _architecture(class_name: str, source: str, *sizes: int, **others: Any) -> Architecture:
    return Architecture(class_name, source, _sizes(*sizes, **others))


_TIED = {"tie_word_embeddings": True}
_QWEN3_EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "head_dim": 128}

LANGUAGE_MODELS: Mapping[str, Architecture] = {
    **{name: ARCHITECTURES[name] for name in ("gpt2", "gpt2_xl", "llama2_7b", "llama3_8b", "qwen2_0_5b", "qwen2_7b")},
    "llama3_1_8b": _llama("Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128256),
    "llama3_1_70b": _llama("Llama-3.1-70B", 8192, 28672, 80, 64, 8, 128256),
    "llama3_1_405b": _llama("Llama-3.1-405B", 16384, 53248, 126, 128, 8, 128256),
    "llama3_2_1b": _llama("Llama-3.2-1B", 2048, 8192, 16, 32, 8, 128256, **_TIED),
    "llama3_2_3b": _llama("Llama-3.2-3B", 3072, 8192, 28, 24, 8, 128256, **_TIED),
    "qwen2_5_1_5b": _qwen2("Qwen2.5-1.5B", 1536, 8960, 28, 12, 2, 151936, **_TIED),
    "qwen2_5_3b": _qwen2("Qwen2.5-3B", 2048, 11008, 36, 16, 2, 151936, **_TIED),
    "qwen2_5_7b": _qwen2("Qwen2.5-7B", 3584, 18944, 28, 28, 4, 152064),
    "qwen2_5_14b": _qwen2("Qwen2.5-14B", 5120, 13824, 48, 40, 8, 152064),
    "qwen2_5_32b": _qwen2("Qwen2.5-32B", 5120, 27648, 64, 40, 8, 152064),
    "qwen2_5_72b": _qwen2("Qwen2.5-72B", 8192, 29568, 80, 64, 8, 152064),
    "qwen3_0_6b": _qwen3("Qwen3-0.6B", 1024, 3072, 28, 16, 8, 151936, **_TIED),
    "qwen3_1_7b": _qwen3("Qwen3-1.7B", 2048, 6144, 28, 16, 8, 151936, **_TIED),
    "qwen3_4b": _qwen3("Qwen3-4B", 2560, 9728, 36, 32, 8, 151936, **_TIED),
    "qwen3_8b": _qwen3("Qwen3-8B", 4096, 12288, 36, 32, 8, 151936),
    "qwen3_14b": _qwen3("Qwen3-14B", 5120, 17408, 40, 40, 8, 151936),
    "qwen3_32b": _qwen3("Qwen3-32B", 5120, 25600, 64, 64, 8, 151936),
    "llama2_13b": _llama("Llama-2-13b-hf", 5120, 13824, 40, 40, 40, 32000),
    "llama2_70b": _llama("Llama-2-70b-hf", 8192, 28672, 80, 64, 8, 32000),
    "tinyllama_1_1b": Architecture(
        "LlamaForCausalLM", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", _sizes(2048, 5632, 22, 32, 4, 32000)
    ),
    "mistral_7b": _mistral("Mistral-7B-v0.3", 32768),
    "mistral_7b_v0_1": _mistral("Mistral-7B-v0.1", 32000, sliding_window=4096),
    "mistral_7b_v0_2": _mistral("Mistral-7B-Instruct-v0.2", 32000),
    "mistral_small_24b": _architecture(
        "MistralForCausalLM",
        "mistralai/Mistral-Small-24B-Instruct-2501",
        *(5120, 32768, 40, 32, 8, 131072),
        head_dim=128,
        sliding_window=None,
    ),
    "phi3_5_mini": _phi("Phi-3.5-mini-instruct", 3072, 8192, 32, 32, 32, 32064),
    "phi4": _phi("phi-4", 5120, 17920, 40, 40, 10, 100352),
    "phi4_mini": _phi("Phi-4-mini-instruct", 3072, 8192, 32, 24, 8, 200064, partial_rotary_factor=0.75, **_TIED),
    "gemma2_9b": _gemma2("gemma-2-9b-it", 3584, 14336, 42, 16, 8, 256000, head_dim=256),
    "gemma2_27b": _gemma2("gemma-2-27b-it", 4608, 36864, 46, 32, 16, 256000, head_dim=128, query_pre_attn_scalar=144),
    "gemma3_4b": _gemma3("gemma-3-4b-it", 2560, 10240, 34, 8, 4, 262208, head_dim=256),
    "gemma3_12b": _gemma3("gemma-3-12b-it", 3840, 15360, 48, 16, 8, 262208, head_dim=256),
    "gemma3_27b": _gemma3("gemma-3-27b-it", 5376, 21504, 62, 32, 16, 262208, head_dim=128),
    "mixtral_8x7b": _architecture(
        "MixtralForCausalLM",
        "mistralai/Mixtral-8x7B-v0.1",
        *(4096, 14336, 32, 32, 8, 32000),
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
    ),
    "qwen3_30b_a3b": _architecture(
        "Qwen3MoeForCausalLM",
        "Qwen/Qwen3-30B-A3B",
        *(2048, 6144, 48, 32, 4, 151936),
        moe_intermediate_size=768,
        **_QWEN3_EXPERTS,
    ),
    "qwen3_235b_a22b": _architecture(
        "Qwen3MoeForCausalLM",
        "Qwen/Qwen3-235B-A22B",
        *(4096, 12288, 94, 64, 4, 151936),
        moe_intermediate_size=1536,
        **_QWEN3_EXPERTS,
    ),
    "qwen3_coder_480b_a35b": _architecture(
        "Qwen3MoeForCausalLM",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        *(6144, 8192, 62, 96, 8, 151936),
        moe_intermediate_size=2560,
        **{**_QWEN3_EXPERTS, "num_experts": 160},
    ),
    "llama4_scout": Architecture("Llama4ForCausalLM", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
    "llama4_maverick": Architecture(
        "Llama4ForCausalLM",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
        {"num_local_experts": 128, "interleave_moe_layer_step": 2, "use_qk_norm": False},
    ),
    "opt_1_3b": _opt("opt-1.3b", 2048, 24, 32),
    "opt_6_7b": _opt("opt-6.7b", 4096, 32, 32),
    "opt_13b": _opt("opt-13b", 5120, 40, 40),
    "opt_30b": _opt("opt-30b", 7168, 48, 56),
    "opt_66b": _opt("opt-66b", 9216, 64, 72),
    "bloom_7b1": _bloom("bloom-7b1", 4096, 30, 32),
    "bloom": _bloom("bloom", 14336, 70, 112),
    "gpt_j_6b": Architecture(
        "GPTJForCausalLM",
        "EleutherAI/gpt-j-6b",
        {"vocab_size": 50400, "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "rotary_dim": 64},
    ),
    "falcon_7b": Architecture(
        "FalconForCausalLM",
        "tiiuae/falcon-7b",
        {
            "vocab_size": 65024,
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
        },
    ),
    "pythia_6_9b": Architecture(
        "GPTNeoXForCausalLM",
        "EleutherAI/pythia-6.9b",
        {"hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32, "num_attention_heads": 32},
    ),
    "gpt_oss_20b": Architecture(
        "GptOssForCausalLM", "openai/gpt-oss-20b", {"num_hidden_layers": 24, "num_local_experts": 32}
    ),
    "gpt_oss_120b": Architecture("GptOssForCausalLM", "openai/gpt-oss-120b"),
    "deepseek_v3": Architecture("DeepseekV3ForCausalLM", "deepseek-ai/DeepSeek-V3"),
}
"""Name -> class and sizes. Where sizes are left out, the defaults of transformers are those of the model."""

BY_NAME: Mapping[str, Architecture] = {**ARCHITECTURES, **LANGUAGE_MODELS}
"""All transformers that are built by name."""

SAME_ARCHITECTURE: Mapping[str, str] = {
    "meta-llama/Llama-3.3-70B-Instruct": "llama3_1_70b",
    "meta-llama/Meta-Llama-3-70B-Instruct": "llama3_1_70b",
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "llama3_1_8b",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": "llama3_1_70b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "qwen2_5_7b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": "qwen2_5_14b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "qwen2_5_32b",
    "Qwen/QwQ-32B": "qwen2_5_32b",
    "Qwen/Qwen2-72B-Instruct": "qwen2_5_72b",
    "Qwen/Qwen2.5-0.5B-Instruct": "qwen2_0_5b",
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": "qwen2_5_1_5b",
    "Qwen/Qwen2.5-Coder-7B-Instruct": "qwen2_5_7b",
    "Qwen/Qwen2.5-Coder-32B-Instruct": "qwen2_5_32b",
    "microsoft/Phi-3-mini-128k-instruct": "phi3_5_mini",
    "facebook/deit-base-patch16-224": "vit_base",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3_30b_a3b",
    **dict.fromkeys(("GPT-J", "GPT-J-6B", "GPTJ"), "gpt_j_6b"),
    **dict.fromkeys(("falcon", "tiiuae/falcon-7b-instruct"), "falcon_7b"),
    **dict.fromkeys(("whisper-large", "whisper-large-v3-turbo"), "whisper_large_v3_encoder"),
    **dict.fromkeys(("XLM-R", "XLM-RoBERTa"), "xlm_roberta_base"),
    "microsoft/resnet-18": "resnet18",
    "microsoft/resnet-50": "resnet50",
    "microsoft/resnet-101": "resnet101",
    "microsoft/resnet-152": "resnet152",
}
"""Repository -> name of the model whose layers it has, with other weights."""
