"""Well-known transformers by name: class and sizes as their published configurations give them.

To add one, add a row; the source is its repository on huggingface.co (file config.json). Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """A class of `transformers` and how it differs from the defaults of its configuration.

    Args:
        class_name: Name of the class; models that write text have a language-model head.
        source: Repository whose config.json gives the sizes.
        sizes: Settings of the configuration that are not the library's defaults.
    """

    class_name: str
    source: str
    sizes: Mapping[str, Any] = field(default_factory=dict)


ARCHITECTURES: Mapping[str, Architecture] = {
    "bert_base": Architecture("BertModel", "google-bert/bert-base-uncased"),
    "bert_large": Architecture(
        "BertModel",
        "google-bert/bert-large-uncased",
        {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24},
    ),
    "distilbert": Architecture("DistilBertModel", "distilbert/distilbert-base-uncased"),
    "roberta_base": Architecture(
        "RobertaModel",
        "FacebookAI/roberta-base",
        {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "albert_base": Architecture(
        "AlbertModel",
        "albert/albert-base-v2",
        {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "vocab_size": 30000},
    ),
    "xlm_roberta_base": Architecture(
        "XLMRobertaModel",
        "FacebookAI/xlm-roberta-base",
        {"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "gpt2": Architecture("GPT2LMHeadModel", "openai-community/gpt2"),
    "gpt2_xl": Architecture(
        "GPT2LMHeadModel", "openai-community/gpt2-xl", {"n_embd": 1600, "n_head": 25, "n_layer": 48}
    ),
    "llama2_7b": Architecture(
        "LlamaForCausalLM",
        "meta-llama/Llama-2-7b-hf",
        {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096},
    ),
    "llama3_8b": Architecture(
        "LlamaForCausalLM",
        "meta-llama/Meta-Llama-3-8B",
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
        },
    ),
    "qwen2_0_5b": Architecture(
        "Qwen2ForCausalLM",
        "Qwen/Qwen2-0.5B",
        {
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
    ),
    "qwen2_7b": Architecture(
        "Qwen2ForCausalLM",
        "Qwen/Qwen2-7B",
        {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
        },
    ),
    "vit_base": Architecture("ViTForImageClassification", "google/vit-base-patch16-224", {"num_labels": 1000}),
    "vit_large": Architecture(
        "ViTForImageClassification",
        "google/vit-large-patch16-224",
        {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "num_labels": 1000,
        },
    ),
    "t5_small": Architecture("T5ForConditionalGeneration", "google-t5/t5-small"),
    "t5_base": Architecture(
        "T5ForConditionalGeneration",
        "google-t5/t5-base",
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    "whisper_small_encoder": Architecture(
        "WhisperEncoder",
        "openai/whisper-small",
        {"d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072},
    ),
    "whisper_large_v3_encoder": Architecture(
        "WhisperEncoder",
        "openai/whisper-large-v3",
        {
            "d_model": 1280,
            "encoder_layers": 32,
            "encoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "num_mel_bins": 128,
        },
    ),
}
