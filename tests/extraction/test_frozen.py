"""Frozen parameters: gradients as far down as anything is learned, against what autograd computes."""

from collections.abc import Callable

import pytest
import torch
from modules import counted_flops, module
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

import joulecast
from joulecast import Operation
from joulecast.errors import InputError
from joulecast.extraction.models.torchvision_models import build
from joulecast.operations.kinds import KINDS
from joulecast.operations.network import Network
from joulecast.predictors.networks.memory import memory_need


def frozen(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs).requires_grad_(False)


def low_rank() -> nn.Module:
    """A frozen linear layer with a learned product of two thin matrices beside it (Hu et al., LoRA, 2021)."""
    down, up = nn.Linear(32, 2, bias=False), nn.Linear(2, 32, bias=False)
    return module(lambda self, x: self.base(x) + self.up(self.down(x)), base=frozen(32, 32), down=down, up=up)


def block() -> nn.Module:
    def forward(self, x):
        inside = self.norm(x)
        x = x + self.out(torch.tanh(self.query(inside) * self.key(inside)) + self.value(inside))
        return x + self.narrow(F.gelu(self.wide(x)))

    parts = {"norm": nn.LayerNorm(32).requires_grad_(False), "query": low_rank(), "value": low_rank()}
    layers = {"key": frozen(32, 32), "out": frozen(32, 32), "wide": frozen(32, 64), "narrow": frozen(64, 32)}
    return module(forward, **parts, **layers)


def adapted() -> nn.Module:
    return nn.Sequential(frozen(16, 32), nn.ReLU(), block(), block())


def learning(*names: str) -> nn.Module:
    """ResNet-18 in which only these children are learned."""
    model = build("resnet18")
    for name, child in model.named_children():
        child.requires_grad_(name in names)
    return model


def biases() -> nn.Module:
    """A model whose biases alone are learned (Ben Zaken et al., BitFit, 2022)."""
    whole = module(lambda self, x: torch.addmm(self.bias, self.layers(x), self.matrix), layers=nn.Sequential())
    whole.layers = nn.Sequential(
        nn.Conv1d(4, 8, 3), nn.ReLU(), nn.ConvTranspose1d(8, 4, 3), nn.Flatten(), nn.Linear(64, 32), nn.Linear(32, 16)
    )
    whole.matrix, whole.bias = nn.Parameter(torch.zeros(16, 8)), nn.Parameter(torch.zeros(8))
    for name, parameter in whole.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return whole


def product_flops(network: Network) -> int:
    families = ("convolution", "matmul", "attention")
    return sum(e.count * e.operation.executed_flops for e in network if e.operation.row.family in families)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (adapted, (8, 16)),
        (lambda: learning("fc"), (2, 3, 64, 64)),
        (lambda: learning("layer4", "fc"), (2, 3, 64, 64)),
        (lambda: learning("conv1"), (2, 3, 64, 64)),
        (lambda: learning("bn1"), (2, 3, 64, 64)),
        (biases, (2, 4, 16)),
    ],
    ids=["low rank", "head", "last stage", "first layer", "one norm", "biases"],
)
def test_products_are_those_that_autograd_computes(make, shape):
    network = joulecast.extract(make(), shape, mode="training")
    assert product_flops(network) == counted_flops(make(), shape)


def test_each_operation_says_which_gradients_it_computes():
    network = joulecast.extract(adapted(), (8, 16), mode="training", optimizer="adamw")
    by_path = {(path, e.operation.kind): e.operation for e in network for path in e.module_paths}
    found = {path: op.gradients for (path, kind), op in by_path.items() if kind in ("linear", "layer_norm", "relu")}
    # Nothing is learned before the first thin matrices, so they compute no gradient of their input.
    expected = dict.fromkeys(("0", "1", "2.norm", "2.key", "2.query.base"), "none")
    expected |= {"2.query.down": "parameters", "2.query.up": "all", "3.value.down": "all"}
    expected |= dict.fromkeys(("2.wide", "3.norm", "3.key"), "inputs")
    assert {path: found[path] for path in expected} == expected
    assert by_path["(optimizer)", "adamw_step"].input_shapes == ((2 * 2 * (32 * 2 + 2 * 32),),)
    assert Network.from_dict(network.to_dict()) == network
    assert "gradients" not in str(joulecast.extract(nn.Linear(4, 4), (2, 4), mode="training").to_dict())
    forward = joulecast.extract(adapted(), (8, 16))
    assert product_flops(network.replace(mode="inference")) == product_flops(forward)


def test_frozen_layers_are_not_equal_to_learned_ones():
    layers = [
        Operation("linear", [(64, 32)], {"out_features": 16, "gradients": gradients}, mode="training")
        for gradients in ("all", "inputs", "none")
    ]
    assert len(set(layers)) == len({each.digest for each in layers}) == 3
    assert layers[0] == Operation("linear", [(64, 32)], {"out_features": 16}, mode="training")
    assert [each.flops // layers[0].forward_flops for each in layers] == [3, 2, 1]
    assert [Operation.from_dict(each.to_dict()) for each in layers] == layers
    with pytest.raises(InputError, match="only training computes gradients"):
        Operation("linear", [(64, 32)], {"out_features": 16, "gradients": "none"})
    with pytest.raises(InputError, match="out of its range"):
        Operation("relu", [(64, 32)], {"gradients": "inputs"}, mode="training")


@pytest.mark.parametrize("gpu", ["A30", "H100 SXM", "T4"])
@pytest.mark.parametrize(
    ("kind", "attributes", "shape"),
    [
        ("linear", {"out_features": 4096}, (4096, 4096)),
        ("conv2d", {"out_channels": 256, "kernel_size": 3, "padding": 1}, (32, 256, 28, 28)),
        ("layer_norm", {}, (8192, 1024)),
        ("gelu", {}, (8192, 4096)),
    ],
)
def test_fewer_gradients_never_cost_more(gpu, kind, attributes, shape):
    """Between a forward and training with all gradients; products at thirds of the latter, by arithmetic."""
    names = [each for each in ("all", "inputs", "parameters", "none") if each in KINDS[kind].gradients]
    operations = [Operation(kind, [shape], {**attributes, "gradients": each}, mode="training") for each in names]
    found = joulecast.predict_operations(operations, gpu)
    share, energy_share = (
        found.device_time_s / found.device_time_s[0],
        found.dynamic_energy_j / found.dynamic_energy_j[0],
    )
    assert max(*share, *energy_share) <= 1.0001
    assert share[-1] == min(share)
    if kind in ("linear", "conv2d"):
        # More than two thirds where the backward's one product would be quicker than the forward.
        assert ((share[1:3] > 0.6666) & (share[1:3] < 0.75)).all()
    if gpu != "A30" and kind != "layer_norm":  # which computes statistics in training, and reads its input once more
        forward = joulecast.predict_operations([operations[-1].replace(mode="inference")], gpu)
        assert found.device_time_s[-1] == pytest.approx(forward.device_time_s[0])


def test_eight_layers_of_which_seven_are_frozen():
    with torch.device("meta"):
        whole, part = (nn.Sequential(*(nn.Linear(8192, 8192, bias=False) for _ in range(8))) for _ in range(2))
    part[:7].requires_grad_(False)
    options = {"mode": "training", "precision": "bf16", "optimizer": "adamw"}
    layer_bytes = 8192 * 8192 * 2
    # Weights, and the gradient and two moments of those that are learned.
    for model, held in ((part, 8 + 3), (whole, 4 * 8)):
        network = joulecast.extract(model, (4096, 8192), **options)
        assert memory_need(network).weights_bytes == held * layer_bytes
    before, after = (joulecast.predict(each, (4096, 8192), "H100 SXM", **options) for each in (whole, part))
    # Nine products of 23, and an eighth of the optimizer's step.
    for name in ("time_s", "energy_j", "memory_bytes"):
        assert getattr(after, name) < 0.5 * getattr(before, name)
    nodes = [*after.tree().root.walk()]
    assert {node.name for node in after.tree().root.children} == {"forward", "backward", "optimizer", "other"}
    assert {node.path for node in nodes if node.phase == "backward" and node.level == "module"} == {"7"}


class Checkpointed(nn.Module):
    """Blocks whose forward the backward runs again, in one of the ways of torch.utils.checkpoint; None for none."""

    def __init__(self, reentrant: bool | None, *, block: Callable[[], nn.Module] = block, learned: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.reentrant = reentrant
        if learned:
            self.requires_grad_(True)

    def forward(self, x):
        x = self.first(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            layer = nn.Sequential(block, norm)
            x = layer(x) if self.reentrant is None else checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


def narrow() -> nn.Module:
    """Ends with a product and a sum, of which nothing is recomputed where recomputing stops early."""
    wide, back = nn.Linear(32, 128), nn.Linear(128, 32)
    return module(lambda self, x: x + self.narrow(F.gelu(self.wide(x))), wide=wide, narrow=back)


def stopping(reentrant: bool | None) -> nn.Module:
    made = Checkpointed(reentrant, block=narrow)
    made.norms = nn.ModuleList(nn.Identity() for _ in range(3))
    return made


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "make",
    [Checkpointed, stopping, lambda reentrant: Checkpointed(reentrant, learned=False)],
    ids=["all", "early", "lora"],
)
def test_checkpoints_recompute_what_autograd_recomputes(make, reentrant):
    network = joulecast.extract(make(reentrant), (8, 32), mode="training")
    plain = joulecast.extract(make(None), (8, 32), mode="training")
    # Where everything is learned, composition knows that the first layer computes no gradient of the model's input.
    (first,) = (e.operation for e in plain if "first" in e.module_paths)
    omitted = first.forward_flops if first.gradients == "all" else 0
    assert product_flops(network) - omitted == counted_flops(make(reentrant), (8, 32))
    assert product_flops(plain) - omitted == counted_flops(make(None), (8, 32))
    assert product_flops(network) > product_flops(plain)
    # In inference, nothing is recomputed.
    assert joulecast.extract(make(reentrant), (8, 32)).entries == joulecast.extract(make(None), (8, 32)).entries
    assert network.replace(mode="inference").flops == plain.replace(mode="inference").flops


def test_checkpoints_take_longer_in_the_backward():
    plain, again = (joulecast.extract(stopping(each), (4096, 32), mode="training") for each in (None, False))
    for gpu in ("A30", "H100 SXM"):
        before, after = (joulecast.predict(each, gpu=gpu) for each in (plain, again))
        assert before.device_time_s < after.device_time_s < 4 / 3 * before.device_time_s
        assert before.energy_j < after.energy_j
        backward = [
            sum(n.total.time_s for n in p.tree().root.children if n.name == "backward") for p in (before, after)
        ]
        assert backward[1] - backward[0] == pytest.approx(after.device_time_s - before.device_time_s, rel=1e-2)
