"""Casts between types, those of the gradients included: as many of each shape as PyTorch makes in both passes."""

from collections import Counter

import pytest
import torch
from modules import module
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import joulecast


class Casts(TorchDispatchMode):
    """Counts the casts of tensors that PyTorch makes, by shape."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        place = {torch.ops.aten._to_copy: 0, torch.ops.aten.copy_: 1}.get(func.overloadpacket)
        if place is not None and result.dtype != args[place].dtype and result.ndim:
            self.found[tuple(result.shape)] += 1
        return result


def mixed(function):
    """A model of an fp32 tensor and of one in bf16 that a layer makes of it."""
    return module(
        lambda self, x: (lambda h: function(self, h, self.low(h.bfloat16())))(self.first(x)),
        first=nn.Linear(8, 8),
        low=nn.Linear(8, 8).bfloat16(),
        third=nn.Linear(8, 8),
    )


def autocast(self, h, low):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return h + self.third(h) * self.third(low)


def into(low, into_fp32):
    into_fp32[:2] = low[:2]
    return into_fp32


MODELS = {
    "sum": lambda self, h, low: h + low,
    "product": lambda self, h, low: low * h,
    "quotient": lambda self, h, low: h / low,
    "twice": lambda self, h, low: torch.cat([h, low, low]),
    "choice": lambda self, h, low: torch.where(h > 0, h, low),
    "in place": lambda self, h, low: (h * 1.0).add_(low),
    "in place of the narrower": lambda self, h, low: (low * 1.0).add_(h),
    "broadcast": lambda self, h, low: h + low.mean(0) + self.low.bias,
    "learned": lambda self, h, low: low + self.third.bias,
    "number": lambda self, h, low: low * self.third.bias.sum(),
    "three": lambda self, h, low: torch.addcmul(h, low, low),
    "wider sum": lambda self, h, low: low.sum(0, dtype=torch.float32),
    "wider softmax": lambda self, h, low: low.softmax(-1, dtype=torch.float32),
    "double": lambda self, h, low: h.double() * low + h,
    "explicit": lambda self, h, low: low.float() + low,
    "into a slice": lambda self, h, low: into(low, torch.zeros(4, 8)),
    "detached": lambda self, h, low: h + low.detach(),
    "unused": lambda self, h, low: (h + low, h)[1],
    "data": lambda self, h, low: low * torch.ones(8),
    "norm": lambda self, h, low: F.batch_norm(low, None, None, self.third.weight[0], self.third.bias, True),
    "loss": lambda self, h, low: F.mse_loss(low, h),
    "complex": lambda self, h, low: torch.fft.fft(h) * low,
    "autocast": autocast,
    **{
        f"checkpoint, reentrant {reentrant}": lambda self, h, low, reentrant=reentrant: checkpoint(
            lambda a, b: a * b.tanh(), h, low, use_reentrant=reentrant
        )
        for reentrant in (False, True)
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_cast_as_pytorch_casts_them(name):
    model = mixed(MODELS[name])
    network = joulecast.extract(model, (4, 8), mode="training")
    copies = [entry for entry in network if entry.operation.kind == "copy"]
    found = Counter()
    for entry in copies:
        found[entry.operation.input_shapes[0]] += entry.count * (1 + entry.operation.has_backward)
    with Casts() as casts:
        result = model.train()(torch.randn(4, 8))
        torch.autograd.backward(result, torch.ones_like(result))
    assert found == casts.found


def test_a_cast_of_a_gradient_is_in_the_backward():
    network = joulecast.extract(mixed(MODELS["sum"]), (4, 8), mode="training")
    (entry,) = (entry for entry in network if entry.module_paths == ("(backward)",) and entry.operation.kind == "copy")
    assert (entry.operation.precision, entry.count, entry.operation.has_backward) == ("bf16", 1, False)
    prediction = joulecast.predict(network, gpu="A100 SXM4 40GB")
    (cost,) = (cost for cost in prediction.operations if cost.entry == entry)
    assert cost.forward_fraction == 0
