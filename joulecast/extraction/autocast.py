"""Autocast as on a GPU: in which type each operator runs, and in which regions of the forward.

PyTorch casts only tensors on the device of the autocast region, and it disables regions for CUDA on machines without a
GPU. Meta tensors are on neither device, so this module follows the regions and makes the casts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from .known_values import tensors_in
from .models import replaced

# torch/include/ATen/autocast_mode.h of 2.13: AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE
# and AT_FORALL_PROMOTE. Every other operator runs in the type of its inputs.
LOWER_PRECISION: frozenset[str] = frozenset(
    """
    _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution prelu
    addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    scaled_dot_product_attention _scaled_dot_product_flash_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    _thnn_fused_lstm_cell _thnn_fused_gru_cell
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
FULL_PRECISION: frozenset[str] = frozenset(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
    native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity dist pdist cdist renorm
    logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
    upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    """.split()  # noqa: SIM905
)
FULL_PRECISION_RESULT: frozenset[str] = frozenset(
    "prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum".split()  # noqa: SIM905
)
WIDEST_PRECISION: frozenset[str] = frozenset(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()  # noqa: SIM905
)
# cuDNN's and MIOpen's recurrent layers run in fp16 in regions of bf16, too (aten/src/ATen/cudnn/AutocastRNN.cpp).
FP16: frozenset[str] = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_ALL = LOWER_PRECISION | FULL_PRECISION | FULL_PRECISION_RESULT | WIDEST_PRECISION | FP16


class Autocast:
    """The autocast regions that a forward has entered, and the casts that they cause."""

    def __init__(self) -> None:
        enabled = next((d for d in ("cuda", "cpu") if torch.is_autocast_enabled(d)), None)
        # The type of each region, and whether it keeps casts of parameters; None for one that is switched off.
        self._regions: list[tuple[torch.dtype, bool] | None] = [
            (torch.get_autocast_dtype(enabled), torch.is_autocast_cache_enabled()) if enabled else None
        ]
        self._cached: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the regions that a forward enters and leaves, for any device: predictions are for a GPU."""

        def init(
            _: Any, this: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
        ) -> None:
            this.device, this._enabled, this._cache_enabled = device_type, enabled, cache_enabled is not False
            this.fast_dtype = dtype or torch.get_autocast_dtype("cpu" if device_type == "cpu" else "cuda")

        def enter(_: Any, this: Any) -> Any:
            self._regions.append((this.fast_dtype, this._cache_enabled) if this._enabled else None)
            return this

        def leave(*_: Any) -> None:
            self._regions.pop()
            if len(self._regions) == 1:
                self._cached.clear()

        with ExitStack() as stack:
            for name, function in (("__init__", init), ("__enter__", enter), ("__exit__", leave)):
                stack.enter_context(replaced(torch.autocast, name, function))
            yield

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Follow the parts of an operator: those of one that autocast has cast itself are not cast again."""
        self._regions.append(None if name in _ALL else self._regions[-1])
        try:
            yield
        finally:
            self._regions.pop()

    def cast(
        self,
        name: str,
        args: Any,
        kwargs: dict[str, Any],
        convert: Callable[[torch.Tensor, torch.dtype], torch.Tensor],
        is_cached: Callable[[torch.Tensor], bool],
    ) -> tuple[Any, dict[str, Any]]:
        """Cast the arguments of an operator such as "linear" as the current region does.

        Operators in place, such as "add_", run in the type of their inputs.

        `is_cached` tells whether `convert`'s cast of a tensor is kept until the outermost region ends, as PyTorch does
        for parameters that need a gradient, unless a region has cache_enabled=False.
        """
        if self._regions[-1] is None:
            return args, kwargs
        lower, keeps = self._regions[-1]
        if name in FULL_PRECISION_RESULT:
            first = args[0] if args else None
            half = isinstance(first, torch.Tensor) and first.dtype in (torch.float16, torch.bfloat16)
            asked = kwargs.get("dtype") or any(isinstance(value, torch.dtype) for value in args)
            return args, {**kwargs, "dtype": torch.float32} if half and not asked else kwargs
        wanted = _wanted(name, lower, (*args, *kwargs.values()))
        if wanted is None:
            return args, kwargs

        def cast(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(map(cast, value))
            # Like PyTorch, leave double precision as it is.
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype == torch.float64:
                return value
            if value.dtype == wanted:
                return value
            if not keeps or not is_cached(value):
                return convert(value, wanted)
            key = (id(value), wanted)
            if key not in self._cached:
                self._cached[key] = (value, convert(value, wanted))
            return self._cached[key][1]

        return cast(args), {key: cast(value) for key, value in kwargs.items()}


def _wanted(name: str, lower: torch.dtype, values: Iterable[Any]) -> torch.dtype | None:
    """The type to which an operator's arguments are cast in a region of a type; None if they stay as they are."""
    if name in LOWER_PRECISION:
        return lower
    if name in FP16:
        return torch.float16
    if name in FULL_PRECISION:
        return torch.float32
    if name in WIDEST_PRECISION:
        return torch.float32 if any(tensor.dtype == torch.float32 for tensor in tensors_in(*values)) else lower
    return None
