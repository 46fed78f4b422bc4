"""Products of which one operand needs no gradient, and parts without a backward, against what autograd computes."""

import pytest
import torch
from modules import counted_flops, module
from torch import nn
from torch.nn import functional as F  # noqa: N812

import joulecast
from joulecast import Operation
from joulecast.predictors.networks.parts import gradient_fractions


def linear(inputs: int = 16, outputs: int = 16, *, learned: bool = True) -> nn.Module:
    return nn.Linear(inputs, outputs).requires_grad_(learned)


def between(middle, **parts):
    """A layer before something and one after it."""
    return lambda: module(
        lambda self, x: self.after(middle(self, self.before(x))), before=linear(), after=linear(), **parts
    )


def constant(*shape: int) -> nn.Module:
    """A module that holds a buffer."""
    made = nn.Module()
    made.register_buffer("value", torch.randn(*shape))
    return made


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def attention(*frozen: str) -> nn.Module:
    def forward(self, x):
        scores = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) / 4, -1)
        return self.out(scores @ self.value(x))

    return module(forward, **{name: linear(learned=name not in frozen) for name in ("query", "key", "value", "out")})


def two_towers() -> nn.Module:
    parts = {name: nn.Sequential(linear(8), nn.ReLU(), linear()) for name in ("left", "right")}
    return module(lambda self, x: self.left(x[..., :8]) * self.right(x[..., 8:]), **parts)


def diffusion() -> nn.Module:
    """A convolution of an image, and layers of a time step, which is data as well."""

    def forward(self, x):
        time = x[:, 0, 0, :1] * self.frequencies.value
        shift = self.last(F.silu(self.first(torch.cat((time.sin(), time.cos()), -1))))
        return self.out(F.silu(self.image(x) + shift[:, :, None, None]))

    layers = {"image": nn.Conv2d(3, 8, 3, padding=1), "out": nn.Conv2d(8, 3, 3, padding=1)}
    return module(forward, frequencies=constant(1, 8), first=linear(16, 32), last=linear(32, 8), **layers)


class Product(torch.autograd.Function):
    """A product that says itself how it is differentiated."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.reshape(-1, x.shape[-1]).t() @ gradient.reshape(-1, gradient.shape[-1])


def without_gradients() -> nn.Module:
    def forward(self, x):
        with torch.no_grad():
            weight = self.weight(x)
        return self.after(self.before(x) * weight)

    return module(forward, before=linear(), weight=linear(), after=linear())


MODULES = {
    "buffer on the left": between(lambda self, x: self.buffer.value @ x, buffer=constant(8, 8)),
    "buffer on the right": between(lambda self, x: x @ self.buffer.value, buffer=constant(16, 16)),
    "table of positions": between(
        lambda self, x: torch.einsum("bld,lrd->blr", x, self.buffer.value), buffer=constant(8, 16, 16)
    ),
    "learned table": between(lambda self, x: torch.einsum("bld,lrd->blr", x, self.table), table=parameter(8, 16, 16)),
    "batch of buffers": between(
        lambda self, x: torch.baddbmm(self.bias, x, self.buffer.value), buffer=constant(4, 16, 16), bias=parameter(16)
    ),
    "data by a matrix": lambda: module(lambda self, x: x @ self.weight, weight=parameter(16, 24)),
    "a matrix by data": lambda: module(lambda self, x: self.weight @ x, weight=parameter(24, 8)),
    "data in addmm": lambda: module(
        lambda self, x: torch.addmm(self.bias, x.flatten(0, 1), self.weight),
        bias=parameter(24), weight=parameter(16, 24),
    ),
    "data by themselves": lambda: module(lambda self, x: self.layer(x @ x.transpose(1, 2)), layer=linear(8)),
    "graph": lambda: module(
        lambda self, x: self.edges.value @ self.last(torch.relu(self.edges.value @ self.first(x))),
        edges=constant(8, 8), first=linear(), last=linear(),
    ),
    "graph of data": lambda: module(
        lambda self, x: self.last(self.edges.value @ torch.relu(self.first(self.edges.value @ x))),
        edges=constant(8, 8), first=linear(), last=linear(),
    ),
    "attention": attention,
    "frozen queries": lambda: attention("query"),
    "frozen keys": lambda: attention("key"),
    "frozen scores": lambda: attention("query", "key"),
    "two towers": two_towers,
    "frozen in the middle": lambda: nn.Sequential(linear(), nn.ReLU(), linear(learned=False), nn.GELU(), linear()),
    "custom function": between(lambda self, x: Product.apply(x, self.weight), weight=parameter(16, 16)),
    "without gradients": without_gradients,
    "detached": between(lambda self, x: self.layer(x.detach() * 2) + x, layer=linear()),
    "a target": between(lambda self, x: x - self.layer(x).detach(), layer=linear()),
    "not used": between(lambda self, x: (x, self.layer(x))[0], layer=linear()),
    "written, detached": between(lambda self, x: self.layer(x.relu_().detach()[..., :8]), layer=linear(8)),
    "filters of data": lambda: module(
        lambda self, x: F.conv1d(x, self.filters(x.mean((0, 2))).view(8, 8, 3)), filters=linear(8, 192)
    ),
}  # fmt: skip


def products(network) -> float:
    families, shares = ("convolution", "matmul", "attention"), gradient_fractions(network)
    pairs = zip(network, shares, strict=True)
    return sum(share * e.count * e.operation.flops for e, share in pairs if e.operation.row.family in families)


@pytest.mark.parametrize(
    ("make", "shape"),
    [*((make, (4, 8, 16)) for make in MODULES.values()), (diffusion, (2, 3, 16, 16))],
    ids=[*MODULES, "diffusion"],
)
def test_products_are_those_that_autograd_computes(make, shape):
    assert products(joulecast.extract(make(), shape, mode="training")) == pytest.approx(counted_flops(make(), shape))


@pytest.mark.parametrize("kind", ["matmul", "mul", "add", "cdist", "complex_mul"])
@pytest.mark.parametrize("shapes", [((4, 8, 16), (4, 16, 16)), ((4, 16, 16), (16, 16))])
def test_one_gradient_is_work_between_none_and_both(kind, shapes):
    if kind not in ("matmul", "cdist"):
        shapes = ((4, 8, 16, 2), (4, 8, 16, 2)) if len(shapes[1]) == 3 else ((4, 16, 8, 2), (8, 2))
    by_gradients = {
        each: Operation(kind, shapes, {"gradients": each}, mode="training")
        for each in ("none", "first", "second", "all")
    }
    none, first, second, both = by_gradients.values()
    for one in (first, second):
        for amount in ("flops", "bytes_read", "bytes_written"):
            assert getattr(none, amount) <= getattr(one, amount) <= getattr(both, amount)
    # The backward of both is that of each of them.
    assert first.flops + second.flops - none.flops == both.flops
    written = [each.bytes_written for each in by_gradients.values()]
    assert written[1] + written[2] - written[0] == written[3]


def test_the_gradient_of_a_factor_reads_the_other_one():
    """[M, K] x [K, N] in fp32: the forward and dA = dC B^T, by hand."""
    m, k, n = 8, 32, 128
    one = Operation("matmul", [(m, k), (k, n)], {"gradients": "first"}, mode="training")
    assert one.flops == 2 * (2 * m * k * n)
    assert one.bytes_read == 4 * ((m * k + k * n) + (m * n + k * n))
    assert one.bytes_written == 4 * (m * n + m * k)
    other = Operation("matmul", [(m, k), (k, n)], {"gradients": "second"}, mode="training")
    assert other.bytes_read == 4 * ((m * k + k * n) + (m * n + m * k))
    assert other.bytes_written == 4 * (m * n + k * n)


def test_rotated_queries_compute_no_gradient_of_angles():
    """Rotary embeddings multiply by buffers that are broadcast over heads: no sum over these runs."""

    def forward(self, x):
        return self.out(x.view(2, 8, 4, 4) * self.angles.value).mean()

    learned, buffers = (
        joulecast.extract(
            module(lambda self, x: forward(self, self.layer(x)), layer=linear(), out=linear(4), angles=angles),
            (2, 8, 16),
            mode="training",
        )
        for angles in (nn.ParameterDict({"value": parameter(1, 8, 1, 4)}), constant(1, 8, 1, 4))
    )
    (whole,), (one,) = ([e.operation for e in net if e.operation.kind == "mul"] for net in (learned, buffers))
    assert (whole.gradients, one.gradients) == ("all", "first")
    tensor, angles = 4 * 2 * 8 * 16, 4 * 8 * 4
    # Both products, and the sum over heads and batch, without that of the angles: it reads the gradient and what was
    # multiplied, writes their product, and reads it again.
    assert whole.bytes_read - one.bytes_read == tensor + tensor + tensor
    assert whole.bytes_written - one.bytes_written == tensor + angles
    times = [joulecast.predict(net, gpu="A100 SXM4 80GB").device_time_s for net in (learned, buffers)]
    assert times[1] <= times[0]


@pytest.mark.parametrize("gpu", ["A30", "H100 SXM", "T4"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_one_gradient_of_a_product_costs_two_thirds(gpu, precision):
    shapes = [(16, 2048, 1024), (16, 1024, 2048)]
    if gpu == "T4" and precision == "bf16":
        precision = "fp16"
    whole, *others = (
        Operation("matmul", shapes, {"gradients": each}, precision=precision, mode="training")
        for each in ("all", "first", "second")
    )
    found = joulecast.predict_operations([whole, *others], gpu)
    for cost in (found.device_time_s, found.dynamic_energy_j):
        assert cost[1:] / cost[0] == pytest.approx([2 / 3, 2 / 3], rel=0.1)
