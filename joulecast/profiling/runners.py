"""How to run an operation in PyTorch: one row per kind.

A runner makes a module or function that performs the operation, for any number of distinct instances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (everybody calls it so)

from ..errors import InputError
from ..operations.operation import Operation
from . import functions
from .functions import draw_inputs

Run = Callable[..., torch.Tensor]
Runner = Callable[[Operation], Run]

DTYPES: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


_MODES = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}  # of grid_sample


def _arguments(operation: Operation) -> dict[str, Any]:
    """The attributes that PyTorch's module takes. Attributes that refine a kind must have their defaults."""
    rows = operation.row.attributes
    return {name: value for name, value in operation.attributes.items() if not rows[name].refinement}


def runner(operation: Operation) -> Run:
    """Find the function that makes a runnable module or function for an operation.

    Raises InputError: the operation is not a single call of PyTorch: an engine's kernel, a quantized product, one
    gradient of a convolution, attention with a window, or a collective.
    """
    rows = operation.row.attributes
    others = [
        f"{name}={value!r}"
        for name, value in operation.attributes.items()
        if rows[name].refinement and value != rows[name].default
    ]
    if operation.kind not in RUNNERS or operation.precision not in DTYPES or others:
        raise InputError(
            "this operation cannot be run here",
            given=", ".join([operation.kind, operation.precision, *others]),
            allowed=f"calls of PyTorch in {', '.join(DTYPES)}",
            hint="import measurements of it: `joulecast datasets import`",
        )
    return RUNNERS[operation.kind](operation)


def _over(module: type[nn.Module], dim: int) -> Runner:
    """A runner for a module that takes the size of its input along a dimension, and the kind's attributes."""
    return lambda operation: module(operation.input_shapes[0][dim], **_arguments(operation))


def _normalized(module: type[nn.Module]) -> Runner:
    return lambda o: module(o.attributes["normalized_shape"], elementwise_affine=o.attributes["affine"])


def _attention(operation: Operation) -> Run:
    queries, keys, _ = operation.input_shapes
    # Several heads of queries share one of keys; PyTorch takes this argument from 2.5 on.
    shared: dict[str, Any] = {"enable_gqa": True} if queries[-3:-2] > keys[-3:-2] else {}
    return partial(F.scaled_dot_product_attention, is_causal=operation.attributes["causal"], **shared)


def _batch_norm(operation: Operation) -> Run:
    by_rank = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    shape = operation.input_shapes[0]
    return by_rank[len(shape)](shape[1], affine=operation.attributes["affine"])


def _module(module: type[nn.Module]) -> Runner:
    """A runner for a module whose arguments are the kind's attributes."""
    return lambda operation: module(**_arguments(operation))


def _plain(function: Run) -> Runner:
    """A runner for a function of tensors, without attributes."""
    return lambda operation: function


def _binary(function: Run) -> Runner:
    """A runner for a function of two tensors, or of a tensor and a number."""
    return lambda operation: function if len(operation.input_shapes) == 2 else lambda x: function(x, 1.5)


def _stochastic_depth(operation: Operation) -> Run:
    # The same as torchvision's function; collecting does not need torchvision.
    class StochasticDepth(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            p = operation.attributes["p"]
            if not self.training or not p:
                return x
            rows = x.shape[0] if operation.attributes["mode"] == "row" else 1
            noise = torch.empty([rows] + [1] * (x.ndim - 1), dtype=x.dtype, device=x.device)
            return x * noise.bernoulli_(1 - p).div_(1 - p)

    return StochasticDepth()


def _optimizer_step(optimizer: type[torch.optim.Optimizer], way: str = "foreach") -> Runner:
    """A step of an optimizer, with foreach or fused, over one parameter whose gradient is the operation's input."""

    def run(operation: Operation) -> Run:
        made: list[tuple[nn.Parameter, torch.optim.Optimizer]] = []

        def step(gradient: torch.Tensor) -> torch.Tensor:
            if not made:
                with torch.inference_mode(False):
                    parameter = nn.Parameter(torch.zeros_like(gradient))
                made.append((parameter, optimizer([parameter], **{way: True})))  # type: ignore[arg-type]
            parameter, chosen = made[0]
            parameter.grad = gradient
            chosen.step()
            return parameter.detach()

        return step

    return run


_NAMED_ALIKE = "ReLU ReLU6 ELU GELU SiLU Mish Softplus Sigmoid Tanh Hardtanh Hardsigmoid Hardswish Softmax Dropout"
_POOLS = {"max": "MaxPool", "avg": "AvgPool", "adaptive_avg": "AdaptiveAvgPool"}
_FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "abs", "neg", "sin", "cos")
_OPTIMIZERS = ("SGD", "Adam", "AdamW")
RUNNERS: Mapping[str, Runner] = {
    **{f"conv{n}d": _over(getattr(nn, f"Conv{n}d"), 1) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _over(getattr(nn, f"ConvTranspose{n}d"), 1) for n in (1, 2, 3)},
    **{name.lower(): _module(getattr(nn, name)) for name in _NAMED_ALIKE.split()},
    **{f"{kind}_pool{n}d": _module(getattr(nn, f"{name}{n}d")) for kind, name in _POOLS.items() for n in (2, 3)},
    **{name: _plain(getattr(torch, name)) for name in _FUNCTIONS},
    **{name: _binary(getattr(torch, name)) for name in ("add", "sub", "mul", "div", "pow")},
    **{name: functions.reduced(getattr(torch, name)) for name in ("mean", "sum", "var", "logsumexp")},
    **{name.lower(): functions.recurrent(getattr(nn, name)) for name in ("LSTM", "GRU", "RNN")},
    **{f"{name.lower()}_step": _optimizer_step(getattr(torch.optim, name)) for name in _OPTIMIZERS},
    **{f"{name.lower()}_fused_step": _optimizer_step(getattr(torch.optim, name), "fused") for name in _OPTIMIZERS},
    "linear": _over(nn.Linear, -1),
    "matmul": _plain(torch.matmul),
    "attention": _attention,
    "batch_norm": _batch_norm,
    "group_norm": lambda o: nn.GroupNorm(
        o.attributes["num_groups"], o.input_shapes[0][1], affine=o.attributes["affine"]
    ),
    "layer_norm": _normalized(nn.LayerNorm),
    "rms_norm": _normalized(nn.RMSNorm),
    "leaky_relu": _module(nn.LeakyReLU),
    "prelu": lambda operation: nn.PReLU(),
    "clamp": _plain(lambda x: torch.clamp(x, -0.5, 0.5)),
    "gradient_accumulation": _plain(lambda x: torch.add(x, x)),
    "save_input": _plain(torch.clone),
    "stochastic_depth": _stochastic_depth,
    "norm": functions.reduced(torch.linalg.vector_norm),
    "cat": lambda o: lambda *tensors: torch.cat(tensors, o.attributes["dim"]),
    "copy": _plain(torch.clone),
    "embedding": lambda o: nn.Embedding(o.attributes["num_embeddings"], o.attributes["embedding_dim"]),
    "grouped_linear": functions.GroupedLinear,
    "cdist": lambda o: partial(torch.cdist, p=o.attributes["p"]),
    "cumsum": lambda o: partial(torch.cumsum, dim=o.attributes["dim"]),
    # Numbers stand for the tensors that an operation does not have.
    "where": _plain(lambda mask, *values: torch.where(mask, *(*values, 0.0, 1.0)[:2])),  # type: ignore[arg-type]
    "masked_fill": _plain(lambda x, mask: functions.changeable(x).masked_fill_(mask, 0.5)),
    "compare": lambda o: torch.gt if len(o.input_shapes) == 2 else lambda x: torch.gt(x, 0),
    "complex_mul": _plain(lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b))),
    "random": _plain(torch.randn_like),
    "adaptive_max_pool2d": _module(nn.AdaptiveMaxPool2d),
    "max": functions.reduced(torch.amax),
    "argmax": functions.reduced(functions.one_dimension_at_a_time(torch.argmax)),
    "prod": functions.reduced(functions.one_dimension_at_a_time(torch.prod)),
    "gather": lambda o: lambda x, index: torch.gather(x, o.attributes["dim"], index),
    # Indices of several dimensions are flattened.
    "index_select": lambda o: (
        lambda x, index: x.index_select(o.attributes["dim"], index.flatten()).view(o.output_shape)
    ),
    "scatter": functions.scatter,
    "embedding_bag": functions.embedding_bag,
    "one_hot": lambda o: partial(F.one_hot, num_classes=o.attributes["num_classes"]),
    "sort": lambda o: lambda x: torch.sort(x, dim=o.attributes["dim"])[0],
    "topk": lambda o: lambda x: torch.topk(x, o.attributes["k"], o.attributes["dim"])[0],
    "interpolate": functions.interpolate,
    "roi_align": functions.roi_align,
    "grid_sample": lambda o: partial(F.grid_sample, mode=_MODES[o.attributes["mode"]], align_corners=False),
    "fft": functions.fourier,
}
"""Operation kind -> how to run it. A test checks that every kind that one GPU can run by itself has a row."""


class Instance:
    """Something to run with inputs and a random output gradient of its own: an operation, or a whole model.

    Inputs and gradients are standard normal, because regular data draws less power.

    Args:
        run: The function or module, on its device and in its type.
        training: Whether to run the backward as well, after which gradients are cleared.
    """

    def __init__(self, run: Run, inputs: Sequence[torch.Tensor], training: bool, generator: torch.Generator) -> None:
        self._run, self._inputs, self._training, self._generator = run, inputs, training, generator
        parameters = run.parameters() if isinstance(run, nn.Module) else ()
        self._leaves = [t for t in (*inputs, *parameters) if t.requires_grad]
        self._gradients: list[torch.Tensor] = []

    @classmethod
    def of_operation(cls, operation: Operation, device: torch.device, generator: torch.Generator) -> Self:
        """An operation, forward in eval and inference mode, or forward and backward in train mode."""
        run, dtype, training = runner(operation), DTYPES[operation.precision], operation.mode == "training"
        if isinstance(run, nn.Module):
            run = run.to(device=device, dtype=dtype).train(training)
        inputs = draw_inputs(operation, device, dtype, generator)
        return cls(run, inputs, training and operation.row.has_gradient, generator)

    @classmethod
    def of_network(cls, model: Any, shape: tuple[int, ...], mode: str, generator: torch.Generator) -> Self:
        """A model as a whole, which is shared by the instances of a block.

        A model that takes token ids has the attributes `input_dtype` and `vocabulary`, the number of different tokens.
        """
        parameter = next(model.parameters())
        how: dict[str, Any] = {"generator": generator, "device": parameter.device}
        if getattr(model, "input_dtype", None) == "int64":
            drawn = torch.randint(0, model.vocabulary, shape, **how)
        else:
            drawn = torch.randn(shape, dtype=parameter.dtype, **how)
        return cls(model.train(mode == "training"), [drawn], mode == "training", generator)

    def __call__(self) -> None:
        """Run it once."""
        output = self._run(*self._inputs)
        if not self._training:
            return
        # Some models return auxiliary outputs together with the main one.
        outputs = [output] if isinstance(output, torch.Tensor) else [t for t in output if t is not None]
        if not self._gradients:  # They are drawn in the first run, which is not timed.
            how: dict[str, Any] = {"generator": self._generator}
            self._gradients = [torch.randn(t.shape, dtype=t.dtype, device=t.device, **how) for t in outputs]
        if outputs[0].requires_grad:
            torch.autograd.backward(outputs, self._gradients)
        for leaf in self._leaves:
            leaf.grad = None

    def output(self) -> Any:
        """The output of a forward pass."""
        return self._run(*self._inputs)
