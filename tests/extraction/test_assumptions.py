"""Models that decide by values of their input: by a stated assumption, which their answers carry."""

import pytest
import torch
from modules import module
from torch import nn

import joulecast
from joulecast import Network
from joulecast.errors import ExtractionError, InputError, UnknownNameError

UNIFORM = {"experts": "uniform"}
TOKENS, WIDTH, EXPERTS, CHOSEN = 12, 16, 4, 2


class Mixture(nn.Module):
    """Experts in a loop, as they are written by hand."""

    def __init__(self, experts: int = EXPERTS) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(experts))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(CHOSEN)
        out = x.new_zeros(len(x), 3 * WIDTH)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            if token.numel():
                out[token] += expert(x[token]) * weights[token, place, None]
        return out


class Selects(nn.Module):
    def forward(self, x):
        kept = x[x[:, 0] > 0.5]
        places = torch.nonzero(x[:, 1] > 0.5).squeeze(1)
        return torch.relu(kept), torch.sigmoid(x[places])


# Of sixteen experts for three tokens, those that get no token do not run.
@pytest.mark.parametrize(("experts", "tokens", "run", "each"), [(EXPERTS, TOKENS, EXPERTS, 6), (16, 3, 3 * CHOSEN, 1)])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_every_expert_gets_equally_many_tokens(mode, experts, tokens, run, each):
    network = joulecast.extract(Mixture(experts), (tokens, WIDTH), mode=mode, assume=UNIFORM)
    (found,) = (entry for entry in network if entry.operation.attributes.get("out_features") == 3 * WIDTH)
    assert (found.operation.input_shapes[0], found.count) == ((each, WIDTH), run)
    assert found.module_paths == tuple(f"experts.{i}" for i in range(run))
    assert network.assumptions == ("every expert gets equally many tokens",)


def test_answers_carry_the_assumption():
    network = joulecast.extract(Mixture(), (TOKENS, WIDTH), assume=UNIFORM)
    assert Network.from_dict(network.to_dict()) == network
    assert network.replace(mode="training").assumptions == network.assumptions
    listed = Network.of([(entry.operation, entry.count) for entry in network])
    carried = Network(listed.entries, assumptions=network.assumptions)
    for answer in (joulecast.predict(carried, None, "A30"), joulecast.best(carried, gpus="A30")[0]):
        assert "assumed: every expert gets equally many tokens" in answer.notes


STATE, TAKE_OUT = r"state what .*'experts': 'uniform'.*'boxes': 100.*'box_side': 100", "take decisions by values out"


@pytest.mark.parametrize(
    ("model", "shape", "options", "says"),
    [
        (Mixture(), (TOKENS, WIDTH), {}, f"{STATE}.*{TAKE_OUT}"),
        (module(lambda self, x: x if x.sum() > 0 else -x), (2, 3), {"assume": {"boxes": 3, "box_side": 3}}, TAKE_OUT),
        ("maskrcnn_resnet50_fpn", (1, 3, 300, 300), {"assume": {"boxes": 5}}, STATE),
        ("fcos_resnet50_fpn", (1, 3, 300, 300), {}, f"{STATE}.*{TAKE_OUT}"),
        ("fcos_resnet50_fpn", (1, 3, 300, 300), {"mode": "training"}, r"(?s)targets.*assume=\{'boxes': 20\}"),
    ],
)
def test_advice_names_what_may_be_assumed(model, shape, options, says):
    with pytest.raises(ExtractionError, match=says) as caught:
        joulecast.extract(model, shape, **options)
    assert "values that only the input has" in caught.value.what or "targets" in caught.value.what
    assert ("state what" in caught.value.hint) == ("state what" in says)


@pytest.mark.parametrize("form", [torch.Tensor.tolist, "{}".format], ids=["list", "text"])
def test_experts_may_be_called_by_numbers_that_are_read_from_tensors(form):
    class Named(Mixture):
        def forward(self, x):
            chosen = self.gate(x).argmax(-1)
            counts = torch.bincount(chosen, minlength=EXPERTS)
            return [self.experts[int(form(number))](x) for number in torch.nonzero(counts)[:, 0]]

    network = joulecast.extract(Named(), (TOKENS, WIDTH), assume=UNIFORM)
    assert sum(e.count for e in network if e.operation.attributes.get("out_features") == 3 * WIDTH) == EXPERTS


@pytest.mark.parametrize("boxes", [5, 1000])
def test_selections_keep_the_stated_number_or_all(boxes):
    network = joulecast.extract(Selects(), (40, 8), assume={"boxes": boxes})
    shapes = {entry.operation.kind: entry.operation.input_shapes[0] for entry in network}
    assert shapes["relu"] == shapes["sigmoid"] == (min(boxes, 40), 8)
    assert str(boxes) in network.assumptions[0]


@pytest.mark.parametrize(
    ("assume", "error", "says"),
    [
        ({"expert": "uniform"}, UnknownNameError, "did you mean experts"),
        ({"experts": "zipf"}, InputError, "uniform"),
        ({"boxes": 0}, InputError, "boxes"),
        ({"box_side": 1.5}, InputError, "box_side"),
    ],
)
def test_impossible_assumptions_are_refused(assume, error, says):
    with pytest.raises(error, match=says):
        joulecast.extract(Mixture(), (TOKENS, WIDTH), assume=assume)


def test_the_library_of_attention_is_the_users_choice():
    """On a name, on a network that was extracted before and on a list, for whatever is asked."""
    cudnn, triton = {"attention": "cudnn"}, {"attention": "triton"}
    named = joulecast.extract("gpt2", (2, 512), precision="bf16", assume=cudnn)
    before = joulecast.extract("gpt2", (2, 512), precision="bf16")
    pairs = [(entry.operation, entry.count) for entry in before]
    for network in (named, *(joulecast.extract(each, assume=cudnn) for each in (before, pairs))):
        attention = [e.operation for e in network if e.operation.kind == "attention"]
        assert [operation.attributes["implementation"] for operation in attention] == ["cudnn"]
        assert network.assumptions == ("attention is computed by cudnn",)
        assert (network.flops, network.calls) == (before.flops, before.calls)
    with_triton = joulecast.predict(before, gpu="H100 SXM", assume=triton)
    (chosen,) = joulecast.best(before, gpus=["H100 SXM"], clocks=[1980], assume=triton)
    assert chosen.time_s == pytest.approx(with_triton.time_s)
    assert with_triton.time_s > joulecast.predict(named, gpu="H100 SXM").time_s
    assert "assumed: attention is computed by triton" in with_triton.notes
    with pytest.raises(InputError, match=r"(?s)given:   'cudn'.*'cudnn' or 'triton'"):
        joulecast.predict("gpt2", (2, 512), "A30", assume={"attention": "cudn"})
    with pytest.raises(InputError, match="a list of operations is complete"):
        joulecast.predict(before, gpu="A30", assume={**cudnn, **UNIFORM})


class Routed(Mixture):
    """A mixture whose router is converted to fp32 in each forward, as that of Switch Transformers is."""

    def forward(self, x):
        self.gate = self.gate.to(torch.float32)
        return super().forward(x.float()).to(x.dtype)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("made_in_inference", [False, True])
def test_routers_that_the_forward_converts(mode, device, made_in_inference):
    with torch.inference_mode(made_in_inference), torch.device(device):
        mixture = Routed().bfloat16()
        mixture.experts.float()
    before = [(id(tensor), tensor.dtype) for tensor in mixture.parameters()]
    first, again = (joulecast.extract(mixture, (TOKENS, WIDTH), mode=mode, assume=UNIFORM) for _ in range(2))
    with torch.inference_mode():
        within = joulecast.extract(mixture, (TOKENS, WIDTH), mode=mode, assume=UNIFORM)
    assert first == again == within
    routers = [entry for entry in first if entry.operation.attributes.get("out_features") == EXPERTS]
    assert [(entry.operation.precision, entry.count) for entry in routers] == [("fp32", 1)]
    assert [(id(tensor), tensor.dtype) for tensor in mixture.parameters()] == before


# What torchvision publishes of these models: billions of multiply-adds for an image, scaled to 800 x 800.
@pytest.mark.parametrize(
    ("name", "boxes", "published"),
    [("fasterrcnn_resnet50_fpn", 1000, 134.38), ("fcos_resnet50_fpn", 100, 128.21), ("ssd300_vgg16", 100, 34.86)],
)
def test_detectors_with_a_stated_number_of_boxes(name, boxes, published):
    network = joulecast.extract(name, (1, 3, 300, 300), assume={"boxes": boxes})
    assert network.flops == pytest.approx(2e9 * published, rel=0.01)
    assert joulecast.predict(network, None, "A30").time_s > 0


@pytest.mark.parametrize("name", ["ssd300_vgg16", "maskrcnn_resnet50_fpn"])
def test_training_of_detectors(name):
    """A backward has twice the products of the forward, except in the first layer and in frozen ones."""
    forward, both = (
        joulecast.extract(name, (2, 3, 320, 320), mode=mode, assume={"boxes": 20, "box_side": 80})
        for mode in ("inference", "training")
    )
    assert both.flops == pytest.approx(3 * forward.flops, rel=0.01)
    assert joulecast.predict(both, None, "A30", mode="training").time_s > 0
    # Feature maps are read by several heads, whose gradients are added up.
    maps = [e.operation.input_shapes[0] for e in both if e.operation.kind == "gradient_accumulation"]
    assert sum(len(shape) == 4 and shape[0] == 2 for shape in maps) > 3


@pytest.mark.parametrize("side", [60, 210])
def test_masks_and_key_points_have_boxes_of_the_stated_size(side):
    assume = {"boxes": 9, "box_side": side}
    network = joulecast.extract("maskrcnn_resnet50_fpn", (1, 3, 300, 300), assume=assume)
    # A mask has 28 x 28 pixels, and a border of one pixel around them.
    (resized,) = (e for e in network if e.operation.input_shapes[0] == (1, 1, 30, 30))
    assert (resized.operation.attributes["output_size"], resized.count) == (side, 9)
    assert ((side, side), 9) in [(e.operation.input_shapes[0], e.count) for e in network if e.operation.kind == "copy"]
    assert f"{side} x {side} pixels" in network.assumptions[1]
    network = joulecast.extract("keypointrcnn_resnet50_fpn", (1, 3, 300, 300), assume=assume)
    (resized,) = (e for e in network if e.operation.attributes.get("mode") == "cubic")
    assert (resized.operation.output_shape, resized.count) == ((17, 1, side, side), 9)
