"""Modules with several inputs, and what a forward decides by."""

import pytest
import torch
from modules import module
from torch import nn

import joulecast
from joulecast.errors import ExtractionError, InputError, UnknownNameError
from joulecast.extraction import network_of


def kinds(network) -> list[str]:
    return [entry.operation.kind for entry in network]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids, scale, *, shift=None):
        result = self.table(ids) * scale
        return result if shift is None else result + shift


IDS = torch.zeros((2, 3), dtype=torch.int64)


def test_several_inputs_by_position_and_by_name():
    by_position = network_of(Two(), [IDS, (2, 3, 4)])
    assert kinds(by_position) == ["embedding", "mul"]
    assert by_position.input_shape == ((2, 3), (2, 3, 4))
    by_name = network_of(Two(), {"ids": IDS, "scale": (1,), "shift": (2, 3, 4)}, mode="training")
    assert kinds(by_name)[:3] == ["embedding", "mul", "add"]
    assert by_name.input_shape == {"ids": (2, 3), "scale": (1,), "shift": (2, 3, 4)}


@pytest.mark.parametrize(
    ("inputs", "says", "hint"),
    [
        (IDS, "missing 1 required positional argument: 'scale'", ""),
        ([IDS, (2,), (2,)], "positional argument", ""),
        ({"ids": IDS, "scales": (2,)}, "unexpected keyword argument 'scales'", ""),
        ([(2, 3), (1,)], "torch.int64", ""),
        ([(2,), (3,), (4,), (5,)], "raised", "did you mean one input of 2x3x4x5? Spaces separate inputs"),
    ],
)
def test_wrong_inputs_say_what_to_do(inputs, says, hint):
    with pytest.raises(ExtractionError, match=says) as caught:
        network_of(Two(), inputs)
    assert caught.value.hint.startswith(hint)
    assert caught.value.hint != ""


def sequence(self, x):
    """As transformers do when they look for packed sequences."""
    positions = torch.arange(x.shape[1], device=x.device)
    mask = torch.zeros_like(x)
    mask[:, 0] = 1
    if (positions.diff() == 1).all() and int(mask.sum()) == x.shape[0]:
        x = torch.relu(x)
    return x[:, torch.nonzero(torch.eye(2, device=x.device))[:, 0]] * self.table[0, 0]


def indexing(self, x):
    order = torch.arange(5)
    first = self.table[order.flip(0)][(x > 0).long()]
    x = torch.relu(x) if order[1].item() == 1 else x
    return first[:, order[order > 2]] * 2


def masking(self, x):
    """By a mask that was computed here, with & and by assignment; it selects rows that a learned one replaces."""
    mask = torch.ones(len(x)) - 1
    mask[torch.arange(len(x)) == 2] = 5
    chosen = (mask > 4) & (mask < 6)
    x = torch.relu(x) if chosen.any() else x
    x[chosen] = self.table[0]
    return x * 2


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("forward", "length", "kind", "shapes"),
    [
        (sequence, 3, "mul", ((3, 2),)),
        (indexing, 3, "mul", ((3, 2, 3),)),
        (masking, 3, "masked_fill", ((3, 3), (3, 1))),
        (masking, 2, None, None),
    ],
)
def test_decisions_on_constants_are_made(forward, length, kind, shapes, mode):
    decides = module(forward, table=nn.Parameter(torch.zeros(5, 3)))
    network = network_of(decides, (length, 3), mode=mode)
    assert ("relu" in kinds(network)) == (kind is not None)
    assert kind is None or shapes in [e.operation.input_shapes for e in network if e.operation.kind == kind]


def test_constants_that_the_input_overwrites_are_not_known():
    def forward(self, x):
        mask = torch.zeros(4)
        mask[:2] = x
        return torch.relu(x) if mask.sum() > 0 else x

    with pytest.raises(ExtractionError, match="only the input has"):
        network_of(module(forward), (2,))


def test_constants_outside_parameters_work_in_training():
    plain = module(lambda self, x: self.layer(x) * self.scale, layer=nn.Linear(4, 4), scale=torch.ones(4))
    assert kinds(network_of(plain, (2, 4), mode="training")) == ["linear", "mul"]


def test_custom_operators():
    with torch.library._scoped_library("joulecast_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("unknown(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CPU")
        torch.library.register_fake("joulecast_test::twice", torch.empty_like, lib=library)

        custom = module(lambda self, x: torch.ops.joulecast_test.twice(x))
        inner = module(lambda self, x: torch.ops.joulecast_test.unknown(x))
        unknown = module(lambda self, x: self.inner(torch.relu(x)), inner=inner)
        x = (2, 3)
        (dropped,) = network_of(nn.Sequential(nn.ReLU(), custom), x).dropped
        assert dropped.name == "joulecast_test.twice"
        assert kinds(network_of(custom, x, operators={"joulecast_test.twice": "mul"})) == ["mul"]
        own = {"joulecast_test.twice": lambda bound: ("softmax", [tuple(bound["x"].shape)], {"dim": 0})}
        assert network_of(custom, x, operators=own).entries[0].operation.attributes["dim"] == 0
        with pytest.raises(UnknownNameError, match="did you mean"):
            network_of(custom, x, operators={"joulecast_test.twice": "mult"})
        with pytest.raises(ExtractionError, match=r"Made\.inner .*joulecast_test\.unknown"):
            network_of(unknown, x)


def test_empty_tensors_cost_nothing():
    empty = module(lambda self, x: torch.relu(x) + torch.relu(x[:0]).sum())
    assert [e.operation.input_shapes[0] for e in network_of(empty, (3, 2)) if e.operation.kind == "relu"] == [(3, 2)]


# Elements that pass the memory interface per parameter, by the passes of _multi_tensor_sgd and _multi_tensor_adam:
# SGD reads parameter and gradient and writes the parameter; Adam is lerp 2 + 1, mul 1 + 1, addcmul 2 + 1, sqrt, div and
# add 1 + 1 each, addcdiv 3 + 1; AdamW shrinks the parameter first, 1 + 1. Fused, each tensor passes once.
@pytest.mark.parametrize(("optimizer", "passes"), [("sgd", 3), ("adam", 18), ("adamw", 20), ("adamw_fused", 7)])
def test_the_step_of_an_optimizer(optimizer, passes):
    layers = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 5).bfloat16(), nn.Linear(5, 1))
    layers[0].bias.requires_grad_(False)
    layers[2].weight = nn.Parameter(torch.ones(1, 5))
    through = module(
        lambda self, x: self.again(layers[2](layers[1](layers[0](x).bfloat16()).float()).expand(-1, 5)),
        layers=layers,
        again=layers[2],
    )
    without = network_of(through, (2, 4), mode="training")
    network = network_of(through, (2, 4), mode="training", optimizer=optimizer)
    steps = {e.operation.precision: e.operation for e in network if e.operation.kind == f"{optimizer}_step"}
    # The frozen bias of the first layer is left out, and the layer that is used twice counts once.
    assert {precision: op.input_shapes for precision, op in steps.items()} == {
        "fp32": ((4 * 5 + 5 + 1,),),
        "bf16": ((5 * 5 + 5,),),
    }
    fp32 = steps["fp32"]
    assert fp32.bytes_read + fp32.bytes_written == passes * 4 * 26
    assert without.entries == network.entries[: len(without)]


def test_options_that_a_module_cannot_have_are_refused():
    with pytest.raises(InputError, match="only transformers"):
        joulecast.extract(nn.ReLU(), (2,), cache_length=3)
    with pytest.raises(InputError, match="in training"):
        joulecast.extract(nn.Linear(2, 2), (2, 2), optimizer="sgd")
    with pytest.raises(UnknownNameError) as found:
        joulecast.extract(nn.Linear(2, 2), (2, 2), mode="training", optimizer="adamm")
    assert found.value.given == "'adamm'"
    assert found.value.allowed == "adam, adam_fused, adamw, adamw_fused, sgd, sgd_fused"
    assert "did you mean adam" in found.value.hint


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_shared_modules_and_parameters_are_left_as_they_were(mode):
    first, tied = nn.Linear(4, 4), nn.Linear(4, 4)
    tied.weight = first.weight
    shared = module(lambda self, x: self.tied(self.again(self.first(x))), first=first, tied=tied, again=first)
    before = {name: (id(p), p.clone()) for name, p in shared.named_parameters(remove_duplicate=False)}
    linear, *_ = network_of(shared, (2, 4), mode=mode)
    assert linear.count == 3
    after = dict(shared.named_parameters(remove_duplicate=False))
    assert {name: id(p) for name, p in after.items()} == {name: number for name, (number, _) in before.items()}
    assert all(torch.equal(p, before[name][1]) for name, p in after.items())


def test_tensors_that_a_forward_stores_in_the_module_are_removed():
    def forward(self, x):
        self.seen = self.seen.clone().add_(1)
        self.last = x
        return self.layer(x) * self.seen[0]

    keeps = module(forward, layer=nn.Linear(2, 2), seen=torch.zeros(3))
    seen = keeps.seen
    network_of(keeps, (1, 2), mode="training")
    assert keeps.seen is seen
    assert seen.tolist() == [0, 0, 0]
    assert not hasattr(keeps, "last")
