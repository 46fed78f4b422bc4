"""Transformers: by name, from a configuration, as modules; prefill, decoding, several inputs."""

import tomllib
from pathlib import Path

import pytest
import torch
from modules import module

import joulecast
from joulecast.errors import InputError, MissingDependencyError
from joulecast.extraction.models.language_models import BY_NAME, LANGUAGE_MODELS
from joulecast.extraction.models.torchvision_models import import_torchvision
from joulecast.generation.models import known_decoder
from joulecast.predictors.networks.memory import memory_need

import_torchvision()  # transformers imports it
transformers = pytest.importorskip("transformers")

from joulecast.extraction.models import transformers_models  # noqa: E402 (it needs what may be missing)

# Templates of the same models are compared with extraction in test_templates.py.
pytestmark = pytest.mark.usefixtures("without_templates")

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def small_llama(**settings):
    config = transformers.LlamaConfig(**SMALL, **settings)
    return transformers.LlamaForCausalLM(config)


def count(network, kind: str) -> int:
    return sum(entry.count for entry in network if entry.operation.kind == kind)


with Path(__file__).with_name("published_models.toml").open("rb") as file:
    MILLIONS = tomllib.load(file)["millions"]


@pytest.mark.parametrize("name", sorted({*MILLIONS, *BY_NAME} - (set(LANGUAGE_MODELS) - set(MILLIONS))))
def test_sizes_are_the_published_ones(name):
    """Of every architecture of the table, and of language models whose sizes others wrote down."""
    if name in LANGUAGE_MODELS:
        parameters = known_decoder(name).parameters
    else:
        model = transformers_models.build(name)
        assert all(p.is_meta for p in model.parameters())
        parameters = sum(p.numel() for p in model.parameters())
    assert parameters / 1e6 == pytest.approx(MILLIONS[name], rel=0.008 if name in LANGUAGE_MODELS else 0.01)


# A layer has 12 x hidden^2 weights, 2 FLOPs each and token; scores and their product with the values are 2 x 2 x
# sequence x hidden per token. GPT-2 small: 12 layers of 768. BERT-large: 24 of 1024, and a pooler. ViT-L/16: 24 of 1024
# over 197 tokens, a pooler, and a convolution of 768 x 1024 at 196 places.
@pytest.mark.parametrize(
    ("name", "shape", "layers", "flops"),
    [
        (lambda: small_llama(attn_implementation="eager"), (2, 8), 2, None),
        ("gpt2_eager", (2, 256), 12, 12 * (2 * 12 * 768**2 + 4 * 256 * 768) * 512),
        ("bert_large_eager", (2, 128), 24, 24 * (2 * 12 * 1024**2 + 4 * 128 * 1024) * 256 + 2 * 2 * 1024**2),
        (
            *("vit_large_eager", (2, 3, 224, 224), 24),
            2 * (24 * (2 * 12 * 1024**2 + 4 * 197 * 1024) * 197 + 2 * 196 * 768 * 1024 + 2 * 1024 * 768),
        ),
    ],
)
def test_eager_attention_is_its_kernels_with_products_by_hand(name, shape, layers, flops):
    network = joulecast.extract(name if isinstance(name, str) else name(), shape, precision="bf16")
    products = [e for e in network if e.operation.kind in ("linear", "matmul", "conv2d")]
    assert flops in (None, sum(e.count * e.operation.flops for e in products))
    assert [count(network, kind) for kind in ("attention", "softmax", "matmul")] == [0, layers, 2 * layers]
    if len(shape) == 2:  # The scores of texts are masked in each layer.
        scores = (shape[1], shape[1])
        adds = [e for e in network if e.operation.kind == "add" and e.operation.output_shape[-2:] == scores]
        assert [e.count for e in adds] == [layers]


def test_decoding_reads_the_cache():
    prefill = joulecast.extract("llama3_8b", (8, 512))
    decode = joulecast.extract("llama3_8b", (8, 1), cache_length=511)
    (attention,) = (e for e in decode if e.operation.kind == "attention")
    assert attention.operation.input_shapes == ((8, 32, 1, 128), (8, 8, 512, 128), (8, 8, 512, 128))
    assert attention.count == 32
    assert decode.flops < prefill.flops / 400
    assert "511" in decode.name
    # The cache is copied to make room for one more token.
    grown = [e for e in decode if e.operation.kind == "cat" and (8, 8, 511, 128) in e.operation.input_shapes]
    assert sum(e.count for e in grown) == 2 * 32


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("bert_base", {"cache_length": 4}, "has no cache of keys"),
        ("t5_small", {"cache_length": 4}, "has no cache of keys"),
        ("gpt2", {"cache_length": 4, "mode": "training"}, "for inference"),
        ("gpt2", {"cache_length": 0}, "cache_length is a positive integer"),
        ("gpt2", {"cache_length": 1000}, "1024"),
    ],
)
def test_impossible_caches_are_refused(name, options, says):
    with pytest.raises(InputError, match=says):
        joulecast.extract(name, (1, 48), **options)


def test_a_module_a_configuration_and_its_file_agree(tmp_path):
    llama = small_llama()
    before = {name: value.clone() for name, value in llama.state_dict().items()}
    network = joulecast.extract(llama, (2, 8))
    assert all(torch.equal(value, before[name]) for name, value in llama.state_dict().items())
    config = transformers.LlamaConfig(**SMALL, architectures=["LlamaForCausalLM"])
    config.save_pretrained(tmp_path)
    assert joulecast.extract(config, (2, 8)) == network
    assert joulecast.extract(tmp_path / "config.json", (2, 8)) == network


def test_inputs_by_name_are_integers_where_they_must_be():
    network = joulecast.extract("t5_small", {"input_ids": (2, 16), "decoder_input_ids": (2, 1)})
    assert network.input_shape == {"input_ids": (2, 16), "decoder_input_ids": (2, 1)}
    queries = {e.operation.input_shapes[0][-2] for e in network if e.operation.kind == "attention"}
    assert queries == {16, 1}
    alone = joulecast.extract("bert_base", (2, 16))
    masked = joulecast.extract("bert_base", {"input_ids": (2, 16), "attention_mask": (2, 16)})
    assert masked.flops == alone.flops + 2 * 16  # The mask is compared with one number for each token.


def test_training():
    network = joulecast.extract("bert_base", (2, 16), mode="training")
    assert count(network, "linear") == count(joulecast.extract("bert_base", (2, 16)), "linear")
    assert count(network, "gradient_accumulation") > 12
    # One dropout after the embeddings and three in each layer. Dropout inside attention is part of the attention.
    assert count(network, "dropout") == 1 + 2 * 12


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"\.\[transformers\]"):
        joulecast.extract("gpt2_xl", (1, 5))


def test_weights_of_experts_take_memory(tmp_path):
    """Those of Mixtral; and those that are operands of products, as Llama 4's are."""
    config = transformers.MixtralConfig()
    config.save_pretrained(tmp_path)
    network = joulecast.extract(tmp_path / "config.json", (1, 64), precision="bf16")
    parameters = sum(p.numel() for p in transformers_models.from_config(config).parameters())
    assert parameters > 46e9
    assert memory_need(network).weights_bytes == pytest.approx(2 * parameters, rel=0.01)
    experts = module(
        lambda self, x: torch.bmm(self.first(x).expand(8, -1, -1), self.weights),
        first=torch.nn.Linear(16, 64, bias=False),
        weights=torch.nn.Parameter(torch.zeros(8, 64, 128)),
    )
    for mode, tensors in (("inference", 1), ("training", 2)):  # weights, and their gradients
        held = memory_need(joulecast.extract(experts, (32, 16), mode=mode)).weights_bytes
        assert held == tensors * 4 * (16 * 64 + 8 * 64 * 128)
