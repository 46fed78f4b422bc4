"""Names of models as people write them, names of timm's models, and names that nobody has."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

import joulecast
from joulecast.errors import InputError, MissingDependencyError, UnknownNameError
from joulecast.extraction.models.language_models import BY_NAME, SAME_ARCHITECTURE
from joulecast.extraction.models.named_models import build_timm
from joulecast.extraction.models.spelling import known_as, known_names
from joulecast.generation.images.pipelines import spelled_pipeline

with Path(__file__).with_name("published_models.toml").open("rb") as file:
    WRITTEN = tomllib.load(file)["names"]


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


def test_the_beginning_of_a_pipeline_is_enough_where_no_other_has_it():
    assert spelled_pipeline("stable-diffusion-xl") == "sdxl"
    assert spelled_pipeline("Wan2.1-14B") == "wan_2_1_14b"
    assert [spelled_pipeline(each) for each in ("flux", "", "p", "dall-e")] == ["flux", "", "p", "dall-e"]


def test_predictions_generation_and_images_take_them():
    assert joulecast.extract("bert-base-uncased", (1, 128)) == joulecast.extract("bert_base", (1, 128))
    load = {"batch": 8, "prompt_tokens": 500, "output_tokens": 100}
    for ask, options, written, name in (
        (joulecast.predict_generation, load, "meta-llama/Llama-3.1-8B-Instruct", "llama3_1_8b"),
        (joulecast.predict_image, {}, "black-forest-labs/FLUX.1-dev", "flux_1_dev"),
    ):
        assert ask(written, "H100 SXM", **options).to_dict() == ask(name, "H100 SXM", **options).to_dict()
    with pytest.raises(InputError, match="does not write text"):
        joulecast.predict_generation("resnet50", "H100 SXM", **load)
    with pytest.raises(UnknownNameError):
        joulecast.predict_generation("llama9", "H100 SXM", **load)


@pytest.mark.parametrize("name", ["timm/resnet26d", "resnet26d", "vit_tiny_patch16_224.augreg_in21k"])
def test_timm(name):
    pytest.importorskip("timm")
    network = joulecast.extract(name, (2, 3, 224, 224))
    assert network.name == name
    assert network.flops > 1e9
    assert {entry.operation.kind for entry in network} & {"conv2d", "attention"}
    assert joulecast.extract(name, (2, 3, 224, 224)) == network


def test_timm_asks_for_timms():
    pytest.importorskip("timm")
    ours, theirs = (joulecast.extract(name, (1, 3, 64, 64)) for name in ("resnet50", "timm/resnet50"))
    assert ours.flops == theirs.flops
    assert ours.entries != theirs.entries  # Only the paths of modules differ.


@pytest.mark.parametrize("name", ["timm/resnet26x", "bert_bas", "../resnet50"])
def test_unknown_names(name):
    with pytest.raises(UnknownNameError, match="did you mean"):
        joulecast.extract(name, (1, 3, 224, 224))


def test_missing_timm_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "timm" else real(name, *a))
    with pytest.raises(MissingDependencyError, match=r"\.\[timm\]"):
        build_timm("timm/resnet26d")
