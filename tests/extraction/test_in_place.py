"""Backwards that PyTorch refuses are refused, and no others: each model is trained on a CPU as well."""

import pytest
import torch
from modules import module
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

import joulecast
from joulecast.errors import ExtractionError


def without_gradient(function, *given):
    with torch.no_grad():
        return function(*given)


def changed(x, use):
    """What an operator makes of a tensor that changes afterwards."""
    made = use(x)
    x.add_(1)
    return made


def assigned(x, place, value):
    x[place] = value
    return x


def row_by_row(h, function):
    rows = torch.zeros(4, 8)
    for place in range(4):
        rows[place] = function(rows, h)[place]
    return rows


# Each is a function of a module with three layers, of which one is frozen, of what the first layer makes, and of data.
MODELS = {
    "leaf": lambda self, h, x: (self.other.weight.add_(1), h)[1],
    "part of a leaf": lambda self, h, x: (assigned(self.other.weight, 0, 1.0), h)[1],
    "leaf without gradients": lambda self, h, x: (without_gradient(self.other.weight.add_, 1), self.other(h))[1],
    "leaf after its use": lambda self, h, x: (self.other(h), without_gradient(self.other.weight.add_, 1))[0],
    "detached leaf": lambda self, h, x: (self.other.weight.detach().add_(1), h)[1],
    "frozen leaf": lambda self, h, x: h + self.frozen.bias.add_(h.sum(0)),
    "buffer": lambda self, h, x: h - self.frozen.bias.mul_(0.9).add_(h.detach().mean(0)),
    "buffer after its use": lambda self, h, x: (h * self.frozen.bias, self.frozen.bias.mul_(0.9))[0],
    "residual to an activation": lambda self, h, x: torch.relu(h).add_(self.other(h)),
    "residual to a layer": lambda self, h, x: self.other(torch.relu(h)).add_(h),
    "activation in place": lambda self, h, x: F.relu(self.other(h), inplace=True) + 1,
    "activations in place": lambda self, h, x: self.other(h).relu_().add_(1),
    "dropout in place": lambda self, h, x: F.dropout(torch.relu(h), 0.5, True, True),
    "sigmoid": lambda self, h, x: h.sigmoid().mul_(x),
    "part of a result": lambda self, h, x: assigned(h.exp(), 0, 1.0),
    "result without gradients": lambda self, h, x: (lambda y: (without_gradient(y.add_, 1), y)[1])(h.exp()),
    "overwritten result": lambda self, h, x: h.exp().zero_(),
    "overwritten and unused": lambda self, h, x: (h.exp().add_(1), h)[1],
    "softmax": lambda self, h, x: h.softmax(-1).add_(1),
    "before softmax": lambda self, h, x: h.masked_fill_(x > 0, 0).softmax(-1),
    "silu": lambda self, h, x: changed(h * 1, F.silu),
    "after silu": lambda self, h, x: F.silu(h).add_(1),
    "silu in place": lambda self, h, x: F.silu(h * 1, inplace=True).add_(1),
    "leaky relu in place": lambda self, h, x: F.leaky_relu(h, inplace=True).add_(1),
    "factor": lambda self, h, x: changed(h * 1, lambda a: a * self.other(h)),
    "factor of data": lambda self, h, x: changed(h * 1, lambda a: a * x),
    "number": lambda self, h, x: (h * 2).add_(1),
    "squared in place": lambda self, h, x: (lambda a: a.mul_(a))(h * 1),
    "multiplied in place": lambda self, h, x: (h * 1).mul_(self.other.bias).add_(1),
    "divisor": lambda self, h, x: changed(x * 1, lambda a: h / a),
    "dividend": lambda self, h, x: changed(h * 1, lambda a: a / x),
    "into a layer": lambda self, h, x: changed(h * 1, self.other),
    "into a frozen layer": lambda self, h, x: changed(h * 1, self.frozen),
    "product": lambda self, h, x: changed(h * 1, lambda a: a @ a.t()),
    "convolution": lambda self, h, x: changed(h * 1, lambda a: F.conv1d(a[None], self.other.weight[:, :4, None])),
    "norm": lambda self, h, x: changed(h * 1, lambda a: F.layer_norm(a, (8,))),
    "after a norm": lambda self, h, x: F.layer_norm(h, (8,)).add_(1),
    "batch norm": lambda self, h, x: changed(h * 1, lambda a: F.batch_norm(a, None, None, training=True)),
    "pooling": lambda self, h, x: changed(h * 1, lambda a: F.max_pool2d(a[None], 2)),
    "choice": lambda self, h, x: changed(h * 1, lambda a: torch.where(x > 0, a, 0)),
    "joined": lambda self, h, x: changed(h * 1, lambda a: torch.cat([a, a])),
    "chunk": lambda self, h, x: (h * 1).chunk(2, -1)[0].add_(1),
    "row": lambda self, h, x: (h * 1).unbind(0)[0].mul_(2),
    "part of a chunk": lambda self, h, x: (h * 1).split(2)[0][0].mul_(2),
    "chunk without gradients": lambda self, h, x: (lambda y: (without_gradient(y.chunk(2)[0].add_, 1), y)[1])(h * 1),
    "slice": lambda self, h, x: (h * 1)[:, :4].add_(1),
    "rows": lambda self, h, x: row_by_row(h, lambda rows, h: h.exp()),
    "rows that are read": lambda self, h, x: row_by_row(h, lambda rows, h: rows * h),
    "checkpoint": lambda self, h, x: checkpoint(lambda a: a.exp().add_(1), h, use_reentrant=False),
    "detached": lambda self, h, x: h.detach(),
    "in no_grad": lambda self, h, x: without_gradient(self.other, h),
    "indices": lambda self, h, x: h.argmax(-1),
    "indices and values": lambda self, h, x: (h.argmax(-1), h),
}


def made(name):
    return module(
        lambda self, x: MODELS[name](self, self.first(x), x),
        first=nn.Linear(8, 8),
        other=nn.Linear(8, 8),
        frozen=nn.Linear(8, 8).requires_grad_(False),
    ).train()


def is_refused_by_pytorch(model):
    try:
        result = model(torch.randn(4, 8))
        sum(each.float().sum() for each in (result if isinstance(result, tuple) else [result])).backward()
    except RuntimeError as error:
        return any(sign in str(error) for sign in ("inplace", "in-place", "does not require grad"))
    return False


@pytest.mark.parametrize("name", MODELS)
def test_a_backward_is_refused_where_pytorch_refuses_it(name):
    if is_refused_by_pytorch(made(name)):
        with pytest.raises(ExtractionError, match=r"backward(?s:.*)given:(?s:.*)allowed:(?s:.*)next:"):
            joulecast.extract(made(name), (4, 8), mode="training")
    else:
        joulecast.extract(made(name), (4, 8), mode="training")
    joulecast.extract(made(name), (4, 8))  # in inference there is no backward


def test_what_is_refused_names_the_operator_and_its_module():
    inner = module(lambda self, x: torch.sigmoid(x).mul_(2))
    with pytest.raises(ExtractionError, match=r"what the backward of sigmoid needs") as caught:
        joulecast.extract(nn.Sequential(nn.Linear(8, 8), inner), (4, 8), mode="training")
    assert caught.value.given == "mul_ in 1"
    with pytest.raises(ExtractionError) as caught:
        joulecast.extract(nn.Linear(8, 8).requires_grad_(False), (4, 8), mode="training")
    assert caught.value.given == "0 of 2 parameters require one"
    assert joulecast.extract(nn.ReLU(), (4, 8), mode="training")  # a part of a model, whose input needs a gradient
