"""How good predictions of served language models are: against runs that others published.

    python benchmarks/serving.py [--first] [--each] [--data ../shared/data/llminferencebench2024]

benchmarks/serving/runs.csv holds the runs, with where each comes from. benchmarks/serving/notes.md says which of them
were looked at when the physics of engines was adjusted (`--first` reads no others), and which were held back.

Writes benchmarks/serving/REPORT.md: the errors of time, power and energy by source, engine, GPU and batch, and how many
of the published values lie in the 90 % intervals; and the errors of time of all runs of LLM-Inference-Bench. Takes half
a minute.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from joulecast import predict_generation
from joulecast.errors import JoulecastError
from joulecast.generation.prediction import GenerationPrediction

HERE = Path(__file__).with_name("serving")
LEVEL = 0.9
_MOST_SEQUENCES = 2048  # What trtllm-bench runs at most, unless it is told otherwise.
_QUANTITIES = ("time", "power", "energy")
_MODELS = {
    "meta-llama/Llama-2-7b-hf": "llama2_7b",
    "meta-llama/Llama-2-70b-hf": "llama2_70b",
    "mistralai/Mistral-7B-v0.1": "mistral_7b_v0_1",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral_8x7b",
}
_ENGINES = {"vLLM": "vllm", "TensorRT-LLM": "tensorrt_llm"}


@dataclass(frozen=True)
class Run:
    """One published run.

    Args:
        row: Its row of the file, by column.
    """

    row: dict[str, str]

    @property
    def is_first(self) -> bool:
        """Whether it may be looked at when physics is adjusted."""
        return self.row["half"] == "first"

    @property
    def batch_group(self) -> str:
        """The range that its batch lies in."""
        if not self.row["batch"]:
            return "as many as fit"
        batch = int(self.row["batch"])
        return "1 to 8" if batch <= 8 else "16 to 50" if batch <= 50 else "over 50"

    def predicted(self) -> GenerationPrediction:
        """What joulecast says about it."""
        if self.row["batch"]:
            return self._predicted(int(self.row["batch"]))
        return self._predicted(min(self._predicted(1).largest_batch, _MOST_SEQUENCES))

    def _predicted(self, batch: int) -> GenerationPrediction:
        gpus = int(self.row["gpus"])
        return predict_generation(
            self.row["model"],
            self.row["gpu"],
            batch=batch,
            prompt_tokens=int(self.row["prompt"]),
            output_tokens=int(self.row["output"]),
            precision=self.row["precision"],
            cache_precision=self.row["cache"] or None,
            engine=self.row["engine"],
            batching=self.row["batching"],
            tensor_parallel=gpus,
            # vLLM of 2024 did not read generation_config.json.
            sampling="temperature" if self.row["source"] == "llm-inference-bench" else None,
        )


@dataclass(frozen=True)
class Outcome:
    """A run with its prediction: log ratios of predicted over published values, and whether these lie in the interval.

    Args:
        run: The run.
        logs: Quantity -> log ratio, for the quantities that were published.
        within: Quantity -> whether the published value lies in the interval.
    """

    run: Run
    logs: dict[str, float]
    within: dict[str, bool]


def outcome(run: Run) -> Outcome:
    """Compare a run with its prediction."""
    found = run.predicted()
    interval = found.interval(LEVEL)
    if interval is None:
        raise SystemExit(f"no errors of kernels are known for {found.gpu}")
    low_s, high_s = interval.time_per_output_token_s
    # An interval of the time per token holds, relative to it, for a batch's latency and the throughput as well.
    slower, quicker = high_s / found.time_per_output_token_s, low_s / found.time_per_output_token_s
    row = run.row
    if row["latency_s"]:
        log = np.log(found.batch * found.output_tokens / found.tokens_per_s / float(row["latency_s"]))
    elif row["tokens_per_s"]:
        log = np.log(float(row["tokens_per_s"]) / found.tokens_per_s)
    else:
        log = np.log(1e3 * found.time_per_output_token_s / float(row["token_ms"]))
    logs = {"time": float(log)}
    within = {"time": bool(quicker <= np.exp(-log) <= slower)}
    if row["power_w"]:
        watts = float(row["power_w"])
        logs["power"] = float(np.log(found.power_w / watts))
        within["power"] = interval.power_w[0] <= watts <= interval.power_w[1]
        logs["energy"] = logs["time"] + logs["power"]
        joules = found.energy_per_token_j / np.exp(logs["energy"])
        within["energy"] = bool(interval.energy_per_token_j[0] <= joules <= interval.energy_per_token_j[1])
    return Outcome(run, logs, within)


def _cell(some: Sequence[Outcome], quantity: str) -> str:
    logs = np.array([each.logs[quantity] for each in some if quantity in each.logs])
    if not len(logs):
        return ""
    errors = 100 * np.abs(np.expm1(logs))
    inside = np.mean([each.within[quantity] for each in some if quantity in each.within])
    return f"{errors.mean():.1f} %, {100 * np.expm1(logs.mean()):+.1f} %, {100 * inside:.0f} %"


def _table(title: str, found: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[str]:
    lines = [f"| {title} | runs | {' | '.join(_QUANTITIES)} |", "| --- | --- | --- | --- | --- |"]
    for name in dict.fromkeys(map(key, found)):
        some = [each for each in found if key(each) == name]
        lines.append(f"| {name} | {len(some)} | {' | '.join(_cell(some, q) for q in _QUANTITIES)} |")
    lines.append(f"| all | {len(found)} | {' | '.join(_cell(found, q) for q in _QUANTITIES)} |")
    return [*lines, ""]


def whole_bench(folder: Path) -> list[Outcome]:
    """All runs of LLM-Inference-Bench that fit, of engines and models that are known, without suspect ones."""
    with (folder / "runs.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not row["suspect"]]
    found = []
    for row in rows:
        if row["model"] not in _MODELS or row["engine"] not in _ENGINES:
            continue
        known = {
            **dict.fromkeys(("cache", "tokens_per_s", "token_ms", "power_w"), ""),
            **row,
            "source": "llm-inference-bench",
            "engine": _ENGINES[row["engine"]],
            "gpu": "H100 SXM" if "H100" in row["gpu"] else "A100 SXM4 40GB",
            "model": _MODELS[row["model"]],
            "precision": "bf16",
            "batching": "static",
            "prompt": row["input"],
        }
        try:
            found.append(outcome(Run(known)))
        except JoulecastError:  # It does not fit into the memory.
            continue
    return found


def _bench_section(found: Sequence[Outcome]) -> list[str]:
    def name(each: Outcome) -> str:
        row = each.run.row
        return f"{row['engine']}, {row['gpus']} {row['gpu']}, {row['model']}"

    return [
        "## All runs of LLM-Inference-Bench",
        "",
        f"{len(found)} runs with 1 to 64 sequences of 128 to 2048 tokens in and out. Nothing was adjusted to them but",
        "what is said above. Mixtral in TensorRT-LLM takes less time than reading all of its experts takes: all of its",
        "sequences must have chosen the same ones.",
        "",
        *_table("engine, GPUs and model", found, name),
    ]


def report(found: Sequence[Outcome]) -> str:
    """The page."""
    lines = [
        "# Served language models, against published runs",
        "",
        f"Made by `python benchmarks/serving.py`; do not edit. {len(found)} runs, listed in `runs.csv`.",
        "",
        (HERE / "notes.md").read_text(encoding="utf-8").strip(),
        "",
    ]
    for title, first in (("Runs that were looked at", True), ("Runs held back", False)):
        half = [each for each in found if each.run.is_first == first]
        if not half:
            continue
        lines += [f"## {title}", "", "Mean absolute error, bias (geometric mean), share within the 90 % interval.", ""]
        lines += _table("source", half, lambda each: each.run.row["source"])
        lines += _table("engine and GPU", half, lambda each: f"{each.run.row['engine']}, {each.run.row['gpu']}")
        lines += _table("batch", half, lambda each: each.run.batch_group)
    return "\n".join(lines)


def runs() -> list[Run]:
    """All runs, in the order of the file."""
    text = (HERE / "runs.csv").read_text(encoding="utf-8").splitlines()
    return [Run(row) for row in csv.DictReader(line for line in text if not line.startswith("#"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", action="store_true", help="only the runs that may be looked at; writes no report")
    parser.add_argument("--each", action="store_true", help="print each run")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/llminferencebench2024"))
    arguments = parser.parse_args()
    found = [outcome(run) for run in runs() if run.is_first or not arguments.first]
    if arguments.each:
        for each in found:
            row = each.run.row
            logs = ", ".join(f"{name} {100 * np.expm1(log):+.0f} %" for name, log in each.logs.items())
            print(*(row[name] for name in ("source", "engine", "gpu", "model", "batch", "prompt", "output")), logs)
    if arguments.first:
        print(
            "\n".join(_table("engine and GPU", found, lambda each: f"{each.run.row['engine']}, {each.run.row['gpu']}"))
        )
    else:
        page = [report(found), *_bench_section(whole_bench(arguments.data))]
        (HERE / "REPORT.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
