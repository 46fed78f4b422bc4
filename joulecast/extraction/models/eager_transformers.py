"""Transformers that compute attention as product, softmax and product (`attn_implementation="eager"`).

They are models without a head and without a cache of keys and values, as EnergAIzer (arXiv 2604.20105) measured them.
Its BERT added a mask to the scores in every layer, as release 4 of transformers does. Release 5 does so only if
something is masked, so BERT gets a mask here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...errors import unknown_name
from .transformers_configs import Architecture
from .transformers_models import without_weights

_LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}

EAGER_TRANSFORMERS: Mapping[str, Architecture] = {
    "bert_large_eager": Architecture("BertModel", "google-bert/bert-large-uncased", _LARGE),
    "gpt2_eager": Architecture("GPT2Model", "openai-community/gpt2"),
    # The source's lists of operations have a pooler that is as wide.
    "vit_large_eager": Architecture("ViTModel", "google/vit-large-patch16-224", {**_LARGE, "pooler_output_size": 768}),
}
"""Name -> class and sizes."""


def build(name: str, **options: Any) -> torch.nn.Module:
    """Build one of these models on the meta device.

    Args:
        name: Name of the model.
        options: Further settings of its configuration.

    Raises:
        UnknownNameError: There is no such name.
        MissingDependencyError: transformers is not installed.
    """
    if name not in EAGER_TRANSFORMERS:
        raise unknown_name("transformer with eager attention", name, EAGER_TRANSFORMERS)
    row = EAGER_TRANSFORMERS[name]
    model = without_weights(row, **{"use_cache": False, **options, "attn_implementation": "eager"})
    if row.class_name == "BertModel":
        model.register_forward_pre_hook(_with_mask, with_kwargs=True)
    return model


def _with_mask(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    ids: torch.Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    mask = torch.zeros((len(ids), 1, 1, ids.shape[1]), dtype=module.dtype, device=ids.device)
    return args, {**kwargs, "attention_mask": mask}
