"""Tables of kernel times in one Parquet file: a row for each kernel, without power and at the default clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DatasetError, InputError
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...progress import tracked
from ...system.damage import refusing_damage
from ..measurement import Dataset, Measurement
from .reading import Columns, card_of, published, read_columns, refuse_unknown, rows_of, sampled

Row = Mapping[str, Any]

_ROWS = 60_000


@dataclass(frozen=True)
class KernelTable:
    """A table of kernel times, which include no launches, and how its rows become measurements.

    Args:
        campaign: Name of the source in published.toml, which has the name of the file and what cards say of it.
        columns: Columns of the file besides gpu and time_us.
        gpus: Name of a GPU in the file -> name in the catalogue.
        known: Other column -> values that it may have.
        even: Columns from whose values rows are sampled evenly.
        operation: Function from a row to its operation; or to the reason why the row is left out, which the card states
            unless it is empty.
        kernel: Function from a row to the name of its kernel.
        limits: Function from the name of a GPU in the file to the flaws of the data, before the number of rows.
        skip: Reason -> function from the columns to the rows that are left out for it before sampling.
        rest: What follows the number of rows in the card.
        engine: Program that called the kernels; empty for PyTorch alone.
    """

    campaign: str
    columns: tuple[str, ...]
    gpus: Mapping[str, str]
    even: tuple[str, ...]
    operation: Callable[[Row], Operation | str]
    kernel: Callable[[Row], str]
    limits: Callable[[str], tuple[str, ...]]
    known: Mapping[str, Collection[str]] = field(default_factory=dict)
    skip: Mapping[str, Callable[[Columns], npt.NDArray[np.bool_]]] = field(default_factory=dict)
    rest: str = ""
    engine: str = ""

    @property
    def method(self) -> str:
        """Name of the method by which all rows were measured."""
        return str(next(iter(published(self.campaign)["card"]["method"])))

    def read(self, folder: str | Path, *, rows: int | None = _ROWS) -> list[Dataset]:
        """One Dataset per GPU, of at most so many rows; None for all.

        Raises DatasetError: the file is missing or damaged, or has rows with words that are not known.
        """
        with refusing_damage("these files are damaged, or are not those of the source", Path(folder), DatasetError):
            return self._read(Path(folder) / published(self.campaign)["tables"][0], rows)

    def _read(self, path: Path, rows: int | None) -> list[Dataset]:
        columns = read_columns(path, ("gpu", *self.columns, "time_us"))
        *others, last = ("GPU", *self.known)
        left_out: dict[str, Counter[str]] = defaultdict(Counter)
        usable = np.ones(len(columns["gpu"]), dtype=bool)
        for reason, rows_to_skip in self.skip.items():
            mine = usable & rows_to_skip(columns)
            usable &= ~mine
            for gpu, count in Counter(columns["gpu"][mine]).items():
                left_out[gpu][reason] += count
        what = f"{', '.join(others)} or {last}" if others else last
        refuse_unknown(columns, path, what, usable, gpu=self.gpus, **self.known)
        taken = sampled(columns, usable, self.even, rows)
        found: dict[str, list[Measurement]] = defaultdict(list)
        for row in tracked(rows_of(columns, taken), "kernels", len(taken)):
            try:
                operation = self.operation(row)
            except InputError:
                operation = "sizes that do not fit each other"
            if isinstance(operation, Operation):
                found[row["gpu"]].append(self._measurement(operation, row))
            elif operation:
                left_out[row["gpu"]][operation] += 1
        totals = Counter(columns["gpu"])
        return [self._dataset(gpu, found[gpu], totals[gpu], left_out[gpu]) for gpu in sorted(found)]

    def _measurement(self, operation: Operation, row: Row) -> Measurement:
        time_s = row["time_us"] / 1e6
        return Measurement(
            operation,
            time_s,
            None,
            None,
            device_time_s=time_s,
            engine=self.engine,
            kernel=self.kernel(row),
            campaign=self.campaign,
            method=self.method,
            line=row["line"],
        )

    def _dataset(self, gpu: str, measurements: list[Measurement], total: int, left_out: Counter[str]) -> Dataset:
        card = card_of(
            self.campaign,
            self.gpus[gpu],
            without_host=(self.method,),
            sensor="none",
            limits=(
                "no power",
                *self.limits(gpu),
                f"{len(measurements)} of {total} rows are here{self.rest}",
                *(f"{count} rows left out: {reason}" for reason, count in sorted(left_out.items())),
            ),
        )
        return Dataset(card, tuple(measurements))


# Importer for the layers of github.com/microsoft/vidur (Agrawal et al., MLSys 2024): products of LLMs in fp16.
#
# Reads `layers.parquet`: medians of kernel times of the layers of seven language models on A100 and H100, by tokens and
# by the number of GPUs that a layer is divided over. Projections are PyTorch's linear layers, and the residual
# connection is PyTorch's addition. Other layers are left out: vidur's norms, rotary embeddings and activations are
# kernels that PyTorch does not call, and its embedding masks the rows that belong to other GPUs.
#
# The source does not state which A100 it is. It is taken for an A100 SXM4 80GB, because its products take as long as
# those of aiconfigurator2026 on that board: for 8192 x 8192 the median ratio over 35 numbers of tokens is 1.07, and
# 1.03 beyond 8192 tokens.
#
# Large products are left out: they ran for long, and the power cap held their clock down. On the A100 they take 1.04 to
# 1.10 times as long as in bursts (aiconfigurator2026) from 0.2 ms on, where shorter ones take 0.96 times as long.
#
# Times are rounded to whole or half microseconds. Additions that take 1 to 10 us are kept nonetheless: of many, the
# rounding averages out, and without the quick ones the others would say that all are slow.

_MOST_FLOPS = 5e10  # 0.16 ms at the peak of an A100.
_THROTTLED = f"products of over {_MOST_FLOPS:g} FLOPs, which the power cap slowed down"
_VIDUR_SIZES = ("tokens", "tensor_parallel", "hidden", "intermediate", "heads", "kv_heads")


def _linear(tokens: int, features: int, outputs: int) -> Operation:
    return Operation("linear", [(tokens, features)], {"out_features": outputs, "bias": False}, precision="fp16")


def _vidur_operation(row: Row) -> Operation | str:
    """The operation of a layer on one of the GPUs that share it, or why it is left out."""
    operation = _whole_operation(row)
    return _THROTTLED if operation.flops > _MOST_FLOPS else operation


def _whole_operation(row: Row) -> Operation:
    tokens, hidden, parallel = row["tokens"], row["hidden"], row["tensor_parallel"]
    inner = row["intermediate"] // parallel
    match row["layer"]:
        case "attn_pre_proj":
            head = hidden // row["heads"]
            return _linear(tokens, hidden, head * (row["heads"] + 2 * row["kv_heads"]) // parallel)
        case "attn_post_proj":
            return _linear(tokens, hidden // parallel, hidden)
        case "mlp_up_proj":
            # A gated layer computes its gate in the same product.
            return _linear(tokens, hidden, inner * (2 if row["gated"] else 1))
        case "mlp_down_proj":
            return _linear(tokens, inner, hidden)
        case _:
            return Operation("add", [(tokens, hidden)] * 2, precision="fp16")


_LAYERS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "add")


import_vidur2024 = KernelTable(
    campaign="vidur2024",
    columns=("model", "layer", *_VIDUR_SIZES, "gated"),
    gpus={"A100 (SXM or PCIe 80GB, not said)": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"},
    even=("gpu", "layer"),
    operation=_vidur_operation,
    kernel=lambda row: f"{row['layer']} of {row['model']}",
    limits=lambda gpu: (f"which {gpu.split()[0]} is not said; taken for the SXM board by its rates",),
    skip={
        "norms, rotary embeddings, activations and embeddings, whose kernels are not PyTorch's": lambda columns: (
            ~np.isin(columns["layer"], _LAYERS)
        ),
    },
).read


# Importer for the layers of github.com/casys-kaist/LLMServingSim: products and attention in bf16 on an RTX 4090.
#
# Reads `layers.parquet`: times of the layers of a language model as vLLM runs them, by tokens, and of its attention by
# the number of new and of cached tokens. Projections are PyTorch's linear layers. Batches that both start prompts and
# continue others are one kernel for several operations, and are left out; so are vLLM's own norms, rotary embeddings,
# activations and embeddings, which PyTorch does not call.

# Hidden size, size of the MLP, heads of queries and of keys, and size of a head, by the models' config.json.
_MODELS = {"meta-llama/Llama-3.1-8B": (4096, 14336, 32, 8, 128)}
_PRODUCTS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


def _layer_operation(row: Row) -> Operation | str:
    """The operation of a row; empty for those that are left out."""
    hidden, inner, heads, kept, head = _MODELS[row["model"]]
    inner, heads, kept = inner // row["tp"], heads // row["tp"], kept // row["tp"]
    if row["layer"] in _PRODUCTS:
        sizes = {
            "qkv_proj": (hidden, (heads + 2 * kept) * head),
            "o_proj": (heads * head, hidden),
            "gate_up_proj": (hidden, 2 * inner),
            "down_proj": (inner, hidden),
        }
        features, outputs = sizes[row["layer"]]
        shape = (int(row["tokens"]), features)
        return Operation("linear", [shape], {"out_features": outputs, "bias": False}, precision="bf16")
    if row["table"] != "attention" or (row["n_decode"] > 0) == (row["prefill_chunk"] > 0):
        return ""
    if row["n_decode"] > 0:
        batch, tokens, keys = row["n_decode"], 1, row["kv_decode"]
    else:
        batch, tokens, keys = 1, row["prefill_chunk"], row["kv_prefill"] + row["prefill_chunk"]
    cache = (int(batch), kept, int(keys), head)
    attributes = {"causal": bool(tokens > 1), "implementation": "vllm"}
    return Operation("attention", [(int(batch), heads, int(tokens), head), cache, cache], attributes, precision="bf16")


import_llmservingsim2026 = KernelTable(
    campaign="llmservingsim2026",
    columns=("model", "tp", "table", "layer", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "tokens"),
    gpus={"RTX4090": "NVIDIA GeForce RTX 4090"},
    known={"model": _MODELS},
    even=("gpu",),
    operation=_layer_operation,
    kernel=lambda row: f"{row['layer'] or 'attention'} of {row['model']}",
    limits=lambda gpu: ("the clock was not recorded",),
    rest=": batches of prompts and decoding together, and vLLM's own norms, rotary embeddings, activations and "
    "embeddings are left out",
).read


# Importer for the convolutions of github.com/ROCm/MIOpen: its table of tuned solvers, on MI210 and MI250X.
#
# Reads `convolutions.parquet`. Each row is one kernel of a convolution's forward (F) or of one of its gradients, of its
# input (B) or its weights (W), timed by MIOpen's tuning without a launch. Found in the data:
#
# - Sides. For F, c x h x w is the input and k x out_h x out_w the output, as the shape rule gives it in 99.86 % of the
#   rows; for B and W it is the other way round, in 99.7 %. Rows that fit neither were padded unevenly and are left out.
# - Times. Times of 0 were too short for the clock. Some rows beat the data sheet by 2 to 140 times, because the time
#   belongs to another convolution. Rows that are faster than even Winograd's F(2 x 2, 3 x 3) explains, which needs 2.25
#   times fewer multiplications, are left out as well.

_GPUS = {"AMD Instinct MI210": "AMD Instinct MI210", "AMD Instinct MI250X GCD": "AMD Instinct MI250X"}
_DIRECTIONS = {"F": "forward", "B": "input_gradient", "W": "weight_gradient"}
_MOVES = ("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
_CONVOLUTION_SIZES = ("c", "h", "w", "r", "s", "k", "out_h", "out_w", "n", "groups", *_MOVES)
_WINOGRAD = 2.25
_TOLERANCE = 1.03
_IMPOSSIBLE = "times that the data sheet does not allow"


def _convolution(row: Row) -> Operation | str:
    """The convolution of a row. Raises InputError: its sizes do not fit each other."""
    one, other = (row["n"], row["c"], row["h"], row["w"]), (row["n"], row["k"], row["out_h"], row["out_w"])
    given, made = (one, other) if row["direction"] == "F" else (other, one)
    attributes = {
        "out_channels": made[1],
        "kernel_size": (row["r"], row["s"]),
        "stride": (row["stride_h"], row["stride_w"]),
        "padding": (row["pad_h"], row["pad_w"]),
        "dilation": (row["dilation_h"], row["dilation_w"]),
        "groups": row["groups"],
        "bias": False,
        "direction": _DIRECTIONS[row["direction"]],
    }
    operation = Operation("conv2d", [given], attributes, precision=row["precision"])
    if operation.output_shape != made:
        raise InputError("the output of this convolution has other sizes", given=made, allowed=operation.output_shape)
    fewer = _WINOGRAD if (row["r"], row["s"]) == (3, 3) else 1.0
    least_s = operation.flops / fewer / find_gpu(_GPUS[row["gpu"]]).peak_flops[operation.precision]
    return _IMPOSSIBLE if row["time_us"] / 1e6 * _TOLERANCE < least_s else operation


import_miopen2024 = KernelTable(
    campaign="miopen2024",
    columns=("precision", "direction", "solver", *_CONVOLUTION_SIZES),
    gpus=_GPUS,
    known={"precision": ("fp32", "fp16", "bf16"), "direction": _DIRECTIONS},
    even=("gpu", "precision", "direction"),
    operation=_convolution,
    kernel=lambda row: str(row["solver"]),
    engine="MIOpen",
    limits=lambda gpu: (
        "the quickest of all solvers after tuning: PyTorch gets it where torch.backends.cudnn.benchmark is set",
    ),
    skip={"times of 0, too short for the clock": lambda columns: ~(columns["time_us"] > 0)},
).read
