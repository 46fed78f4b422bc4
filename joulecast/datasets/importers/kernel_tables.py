"""Tables of kernel times, a row for each kernel; three sources that are one such table, at the default clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...hardware import find_gpu, gpus
from ...operations.operation import Operation
from ...progress import tracked
from ..measurement import Dataset, Measurement
from .reading import (
    Columns,
    Folder,
    card_of,
    groups,
    importer,
    published,
    read_columns,
    refuse_unknown,
    rows_of,
    thinned,
)

Row = Mapping[str, Any]


@dataclass
class Found:
    """What tables hold of a GPU: measurements, and how many rows of each table were left out or are of limited use.

    Counts are by name of the table, and by the reason.
    """

    measurements: list[Measurement] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    without_power: Counter[tuple[str, str]] = field(default_factory=Counter)
    unusable: Counter[tuple[str, str]] = field(default_factory=Counter)
    power_limits_w: set[float] = field(default_factory=set)

    def limits(self, rest: str = "") -> Iterator[str]:
        """These counts in sentences for a card; `rest` follows the number of rows that are here."""
        here = Counter(m.campaign.partition("/")[2] for m in self.measurements)
        begin = {name: f"{name}: " if name else "" for name in self.rows}
        yield from (f"{begin[name]}{here[name]} of {total} rows are here{rest}" for name, total in self.rows.items())
        said = {"left out:": self.left_out, "without": self.without_power, "are marked unusable:": self.unusable}
        for why, counts in said.items():
            yield from (f"{begin[name]}{n} rows {why} {reason}" for (name, reason), n in sorted(counts.items()))


Judge = Callable[[Columns, npt.NDArray[np.int64], Sequence[Operation]], Mapping[str, Sequence[Any]]]


@dataclass(frozen=True)
class KernelTable:
    """A table of kernel times, which include no launches, and how its rows become measurements.

    Args:
        words, sizes: Columns with texts and with numbers that describe what was measured, besides gpu; time_us has the
            times.
        even: Columns from whose values rows are sampled evenly.
        operation: Function from a row to its operation; or to the reason why the row is left out, which the card states
            unless it is empty.
        kernel, engine: Functions from a row to the name of its kernel, and to the program that called it.
        known: Other column -> values that it may have, or a function from all its values to those.
        gpus: Name of a GPU in the file -> name in the catalogue; None where these are the same.
        skip: Reason -> function from the columns to the rows that are left out for it before sampling.
        judge: Function from the columns, the places of the rows that were sampled and their operations to what else is
            known of these rows: field of a measurement -> values; "left_out" -> reasons, empty for what stays.
        has_power: Whether it has power_w and power_limit_w, the cap.
    """

    sizes: tuple[str, ...]
    operation: Callable[[Row], Operation | str]
    words: tuple[str, ...] = ()
    even: tuple[str, ...] = ("gpu",)
    kernel: Callable[[Row], str] = lambda row: str(row["kernel"])
    engine: Callable[[Row], str] = lambda row: ""
    known: Mapping[str, Collection[str] | Callable[[set[str]], Collection[str]]] = field(default_factory=dict)
    gpus: Mapping[str, str] | None = None
    skip: Mapping[str, Callable[[Columns], npt.NDArray[np.bool_]]] = field(default_factory=dict)
    judge: Judge = lambda columns, taken, operations: {}
    has_power: bool = False

    def read(self, path: Path, source: str, found: Mapping[str, Found], rows: int | None, name: str = "") -> None:
        """Add at most so many rows, None for all, to what was found of each GPU; `name` tells tables of a source apart.

        Raises DatasetError: the file is missing or damaged, or has rows with words that are not known.
        """
        power = ("power_w", "power_limit_w") if self.has_power else ()
        columns = read_columns(path, ("gpu", *self.words, *self.sizes, "time_us", *power))
        usable = np.ones(len(columns["gpu"]), dtype=bool)
        for gpu, count in Counter(columns["gpu"]).items():
            found[gpu].rows[name] += count
        for reason, chosen in self.skip.items():
            skipped = usable & chosen(columns)
            usable &= ~skipped
            for gpu, count in Counter(columns["gpu"][skipped]).items():
                found[gpu].left_out[name, reason] += count
        known = {word: of(set(columns[word])) if callable(of) else of for word, of in self.known.items()}
        *others, last = ("GPU", *self.known)
        what = f"{', '.join(others)} or {last}" if others else last
        refuse_unknown(columns, path, what, usable, gpu=self.gpus or gpus(), **known)
        places = np.flatnonzero(usable)
        taken = places[thinned(groups(columns[each][places] for each in self.even), rows)]
        method = next(iter(published(source)["card"]["method"]))
        kept, operations = [], []
        for row in tracked(rows_of(columns, taken), "kernels", len(taken)):
            try:
                operation = self.operation(row)
            except InputError:
                operation = "sizes that do not fit each other"
            if isinstance(operation, Operation):
                kept.append(row)
                operations.append(operation)
            elif operation:
                found[row["gpu"]].left_out[name, operation] += 1
        judged = self.judge(columns, np.array([row["line"] - 1 for row in kept], dtype=int), operations)
        for place, (row, operation) in enumerate(zip(kept, operations, strict=True)):
            more, mine = {each: values[place] for each, values in judged.items()}, found[row["gpu"]]
            if reason := more.pop("left_out", ""):
                mine.left_out[name, reason] += 1
                continue
            if not more.get("usable", True):
                mine.unusable[name, more["remark"]] += 1
            elif not more.get("power_usable", True):
                mine.without_power[name, more["remark"]] += 1
            time_s, power_w = row["time_us"] / 1e6, row.get("power_w", np.nan)
            power_w = None if np.isnan(power_w) else power_w
            if power_w is not None:
                mine.power_limits_w.add(row["power_limit_w"])
            mine.measurements.append(
                Measurement(
                    operation,
                    time_s,
                    power_w,
                    None if power_w is None else power_w * time_s,
                    device_time_s=time_s,
                    engine=self.engine(row),
                    kernel=self.kernel(row),
                    campaign=f"{source}/{name}" if name else source,
                    method=method,
                    line=row["line"],
                    **more,
                )
            )

    def importer(
        self, source: str, limits: Callable[[str], tuple[str, ...]], most_rows: int | None = 60_000, rest: str = ""
    ) -> Callable[..., list[Dataset]]:
        """The importer of a source that is this one table: a function of its folder and `rows`.

        Args:
            source: Its name in published.toml, which has the name of the file and what cards say of it.
            limits: Function from the name of a GPU in the file to the flaws of the data, before the number of rows.
            most_rows: Rows that are read unless the caller says otherwise.
            rest: What follows the number of rows in the card.
        """

        @importer
        def read(folder: Folder, *, rows: int | None = most_rows) -> list[Dataset]:
            found: dict[str, Found] = defaultdict(Found)
            self.read(Path(folder) / published(source)["tables"][0], source, found, rows)
            return [
                Dataset(
                    card_of(
                        source,
                        (self.gpus or {}).get(gpu, gpu),
                        without_host=(next(iter(published(source)["card"]["method"])),),
                        sensor="none",
                        limits=("no power", *limits(gpu), *mine.limits(rest)),
                    ),
                    tuple(mine.measurements),
                )
                for gpu, mine in sorted(found.items())
                if mine.measurements
            ]

        return read


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


def _linear(tokens: int, features: int, outputs: int, precision: str) -> Operation:
    return Operation("linear", [(tokens, features)], {"out_features": outputs, "bias": False}, precision=precision)


_LAYERS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "add")


def _vidur_operation(row: Row) -> Operation | str:
    """The operation of a layer on one of the GPUs that share it, or why it is left out."""
    tokens, hidden, parallel = row["tokens"], row["hidden"], row["tensor_parallel"]
    if row["layer"] == "add":
        operation = Operation("add", [(tokens, hidden)] * 2, precision="fp16")
    else:
        inner, head = row["intermediate"] // parallel, hidden // row["heads"]
        features, outputs = {
            "attn_pre_proj": (hidden, head * (row["heads"] + 2 * row["kv_heads"]) // parallel),
            "attn_post_proj": (hidden // parallel, hidden),
            # A gated layer computes its gate in the same product.
            "mlp_up_proj": (hidden, inner * (2 if row["gated"] else 1)),
            "mlp_down_proj": (inner, hidden),
        }[row["layer"]]
        operation = _linear(tokens, features, outputs, "fp16")
    return _THROTTLED if operation.flops > _MOST_FLOPS else operation


import_vidur2024 = KernelTable(
    words=("model", "layer"),
    sizes=(*_VIDUR_SIZES, "gated"),
    gpus={"A100 (SXM or PCIe 80GB, not said)": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"},
    even=("gpu", "layer"),
    operation=_vidur_operation,
    kernel=lambda row: f"{row['layer']} of {row['model']}",
    skip={
        "norms, rotary embeddings, activations and embeddings, whose kernels are not PyTorch's": lambda columns: (
            ~np.isin(columns["layer"], _LAYERS)
        ),
    },
).importer("vidur2024", lambda gpu: (f"which {gpu.split()[0]} is not said; taken for the SXM board by its rates",))


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
        features, outputs = {
            "qkv_proj": (hidden, (heads + 2 * kept) * head),
            "o_proj": (heads * head, hidden),
            "gate_up_proj": (hidden, 2 * inner),
            "down_proj": (inner, hidden),
        }[row["layer"]]
        return _linear(int(row["tokens"]), features, outputs, "bf16")
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
    words=("model", "table", "layer"),
    sizes=("tp", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "tokens"),
    gpus={"RTX4090": "NVIDIA GeForce RTX 4090"},
    known={"model": _MODELS},
    operation=_layer_operation,
    kernel=lambda row: f"{row['layer'] or 'attention'} of {row['model']}",
).importer(
    "llmservingsim2026",
    lambda gpu: ("the clock was not recorded",),
    rest=": batches of prompts and decoding together, and vLLM's own norms, rotary embeddings, activations and "
    "embeddings are left out",
)


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
    words=("precision", "direction", "solver"),
    sizes=_CONVOLUTION_SIZES,
    gpus=_GPUS,
    known={"precision": ("fp32", "fp16", "bf16"), "direction": _DIRECTIONS},
    even=("gpu", "precision", "direction"),
    operation=_convolution,
    kernel=lambda row: str(row["solver"]),
    engine=lambda row: "MIOpen",
    skip={"times of 0, too short for the clock": lambda columns: ~(columns["time_us"] > 0)},
).importer(
    "miopen2024",
    lambda gpu: (
        "the quickest of all solvers after tuning: PyTorch gets it where torch.backends.cudnn.benchmark is set",
    ),
)
