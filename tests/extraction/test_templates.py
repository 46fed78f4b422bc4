"""Templates equal extraction at any shape that they cover, do not answer for other shapes, and are up to date."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import joulecast
from conftest import benchmark
from joulecast.errors import ExtractionError, InputError, MissingDependencyError
from joulecast.extraction import cache
from joulecast.extraction.job import Job
from joulecast.extraction.models.language_models import BY_NAME
from joulecast.extraction.models.named_models import build
from joulecast.extraction.models.torchvision_models import model_names
from joulecast.extraction.templates import answer, refusal, store
from joulecast.extraction.traced_models import traced
from joulecast.operations.inputs import Inputs
from joulecast.predictors.networks.memory import parameters_held

with benchmark("template_making") as making:
    plan_of = making.plan_of
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
IMAGE = (2, 3, 224, 224)

IMAGES = [(1, 3, 224, 224), (2, 3, 97, 131), (3, 3, 225, 65), (7, 3, 64, 333), (32, 3, 512, 480), (1, 3, 187, 211)]
BATCHES = [(batch, 3, 224, 224) for batch in (1, 2, 3, 7, 33, 640)]
TEXTS = [(1, 1), (3, 1), (1, 7), (2, 33), (5, 128), (17, 511)]


def extracted(name: str, shape, cache_length=None, *, optimizer=None, **options):
    job = Job(cache_length=cache_length, optimizer=optimizer, **options)
    return traced(build(name), Inputs.of(shape), job, name)


def but_for_work(network):
    """A network without the sizes of dropped work and the reasons for it, which templates do not contain."""
    if network is None:
        return None
    dropped = Counter()
    for each in network.dropped:
        dropped[each.name] += each.count
    return replace(network, dropped=()), dropped


def answered(name: str, shape, **options):
    return answer(name, Job(name, shape, **options))


# Two of these six, others for each next model, or all for the first of its kind. benchmarks/templates.py compares all
# models at six other shapes.
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("alexnet", IMAGES),
        ("convnext_tiny", IMAGES),
        ("googlenet", IMAGES),
        ("mobilenet_v3_small", IMAGES),
        ("resnet50", IMAGES),
        ("shufflenet_v2_x0_5", IMAGES),
        ("swin_t", BATCHES),
        ("vit_b_32", BATCHES),
        ("bert_base", TEXTS),
        ("gpt2", TEXTS),
        ("qwen2_0_5b", TEXTS[:3]),
        ("t5_small", TEXTS),
        ("vit_base", BATCHES),
        ("whisper_small_encoder", [(batch, 80, 3000) for batch in (1, 2, 3, 7, 33, 640)]),
    ],
)
def test_equal_to_extraction(name, shapes):
    requests = [
        {"mode": "inference"},
        {"mode": "inference", "precision": "bf16"},
        {"mode": "inference", "precision": "tf32"},
        {"mode": "training"},
        {"mode": "training", "precision": "fp16", "optimizer": "adamw"},
        {"mode": "inference", "precision": "fp32"},
    ]
    pairs = list(zip(shapes, requests, strict=False))
    for shape, request in pairs if name in ("alexnet", "bert_base") else pairs[len(name) % 3 :: 3]:
        template, traced_here = answered(name, shape, **request), extracted(name, shape, **request)
        assert but_for_work(template) == but_for_work(traced_here), (shape, request)
        stored = [parameters_held(network).stored for network in (template, traced_here)]
        assert stored[0] == pytest.approx(stored[1], rel=0.02)


@pytest.mark.parametrize("precision", ["default", "bf16"])
@pytest.mark.parametrize(("shape", "cache_length"), [((3, 1), 77), ((1, 5), 1)])
def test_decoding_equal_to_extraction(shape, cache_length, precision):
    options = {"mode": "inference", "precision": precision}
    template = answered("gpt2", shape, cache_length=cache_length, **options)
    assert template == extracted("gpt2", shape, cache_length, **options)
    assert template.name == f"gpt2 after {cache_length} tokens"


def test_every_model_has_templates_that_are_up_to_date():
    pinned = dict(re.findall(r"^([\w-]+)==(.+)$", CONSTRAINTS.read_text(), re.MULTILINE))
    assert {*model_names(), "bert_base", "llama3_8b", "qwen3_8b"} <= set(store.names()) <= {*model_names(), *BY_NAME}
    for name in store.names():
        model = store.load(name)
        # Otherwise: python3 tasks.py templates
        assert model.operators
        assert model.digest == cache.digest(model.operators), name
        assert model.libraries == {library: pinned[library] for library in plan_of(name).libraries}
        assert {"inference", "training"} <= model.settings.keys()
        assert ("inference cached" in model.settings) == (plan_of(name).cached is not None)
    assert sum(path.stat().st_size for path in store.FOLDER.iterdir()) < 3e6


@pytest.mark.parametrize("name", ["squeezenet1_1", pytest.param("vit_base", marks=pytest.mark.slow)])
def test_made_again_they_are_the_same(name):
    assert making.Maker(name).make() == store.load(name)


def test_sizes_of_enlarged_and_padded_images_follow_from_those_of_the_input():
    module = torch.nn.Sequential(
        torch.nn.Upsample(scale_factor=2),
        torch.nn.ZeroPad2d(1),
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.AdaptiveAvgPool2d(7),
    )

    def calls(height, width):
        recorders = []
        traced(module, Inputs.of((2, 3, height, width)), Job(module), "enlarged", recorders.append)
        return tuple(recorders[0].calls)

    fitted = [(30, 41), (17, 64), (25, 9)]
    samples = [making.Sample(each, calls(*each), (), (False,) * len(calls(*each))) for each in fitted]
    assert tuple(making.fit(samples).operations((50, 23), "inference", "default")) == calls(50, 23)


def test_shapes_that_a_model_refuses_are_not_answered():
    for name, shape, options in [
        ("resnet50", (2, 1, 224, 224), {}),
        ("resnet50", (3, 224, 224), {}),
        ("resnet50", (1, 3, 32, 32), {"mode": "training"}),  # one value per channel
        ("googlenet", (1, 3, 15, 15), {"mode": "training"}),
        ("alexnet", (1, 3, 62, 300), {}),
        ("vit_b_16", (1, 3, 225, 224), {}),
        ("bert_base", (1, 513), {}),
        ("bert_base", (1, 5), {"cache_length": 5}),
        ("gpt2", (1, 48), {"cache_length": 1000}),
        ("gpt2", (1, 48), {"cache_length": 4, "mode": "training"}),
    ]:
        request = {"mode": "inference", "precision": "default", **options}
        assert answered(name, shape, **request) is None
        with pytest.raises((ExtractionError, InputError)):
            joulecast.extract(name, shape, **request)


def test_questions_that_only_torch_can_answer_are_left_to_it():
    for shape in [torch.empty(IMAGE, dtype=torch.float64), {"x": IMAGE}, [IMAGE, IMAGE], (2, 3, 31, 224)]:
        assert answered("resnet50", shape) is None
    assert answered("bert_base", {"input_ids": (2, 3), "attention_mask": (2, 3)}) is None
    assert answered("bert_base", {"input_ids": (2, 3)}) == answered("bert_base", (2, 3))
    assert answered("swin_t", (2, 3, 225, 224)) is None
    assert joulecast.extract("swin_t", (2, 3, 225, 224)).calls > 300
    assert answered("fcn_resnet50", IMAGE) is None
    assert answered("../data/resnet50", IMAGE) is None
    network = joulecast.extract("resnet18", IMAGE, whitelist={"conv2d"})
    assert {entry.operation.kind for entry in network} == {"conv2d"}


def test_without_torch_it_says_what_templates_hold_for(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None)
    monkeypatch.setattr("joulecast.extraction.sources.find_spec", lambda name: None)
    assert joulecast.extract("resnet50", (3, 3, 91, 93)).flops > 1e9
    for name, shape, says in [
        ("resnet50", (2, 3, 31, 31), r"height 32 to 4096.*\n.*in the folder.*\.\[torch\]"),
        ("swin_t", (2, 3, 225, 225), "height 224; "),
        ("gpt2", (1, 1025), "up to 1024 tokens"),
        ("whisper_small_encoder", (1, 80, 1500), "batch x 80 x 3000; "),
        ("resnet5", IMAGE, "did you mean resnet50"),
        ("fcn_resnet50", IMAGE, "no model that is known without torch"),
        ("yi_34b", (1, 8), "what yi_34b runs .* with torch"),
    ]:
        with pytest.raises(MissingDependencyError, match=says):
            joulecast.extract(name, shape)
    with pytest.raises(InputError, match="batch x tokens"):
        joulecast.extract("yi_34b", None)
    with pytest.raises(MissingDependencyError, match="did you mean resnet50"):
        joulecast.extract("resnet5", None)
    with pytest.raises(InputError, match="more than one value per channel"):
        joulecast.extract("resnet50", (1, 3, 32, 32), mode="training")


@pytest.mark.parametrize("changed", ["library", "tracing"])
def test_an_outdated_template_is_not_used(monkeypatch, changed):
    assert answered("resnet18", IMAGE) is not None
    if changed == "library":
        monkeypatch.setattr(store, "library_version", lambda name: "1.0.0")
    else:
        monkeypatch.setattr(cache, "TRACING_VERSION", cache.TRACING_VERSION + 1)
    assert answered("resnet18", IMAGE) is None
    assert "outdated" in str(refusal("resnet18", Job("resnet18", IMAGE)))
    monkeypatch.setattr(store, "library_version", lambda name: "none")
    assert (answered("resnet18", IMAGE) is None) == (changed == "tracing")


def test_a_changed_operator_outdates_only_what_runs_it(monkeypatch):
    tokens = (2, 33)
    assert answered("resnet18", IMAGE) is not None
    assert answered("bert_base", tokens) is not None
    monkeypatch.setitem(cache.REVISIONS, "layer_norm", 7)
    assert answered("bert_base", tokens) is None
    assert answered("resnet18", IMAGE) is not None
    monkeypatch.delitem(cache.REVISIONS, "layer_norm")
    monkeypatch.setitem(cache.OPERATORS, "fft_of_nobody", cache.OPERATORS["relu"])
    assert answered("bert_base", tokens) is not None
    monkeypatch.delitem(cache.OPERATORS, "layer_norm")
    assert answered("bert_base", tokens) is None
