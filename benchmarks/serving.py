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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compared import LEGEND, LEVEL, Compared, rows_of, table, write

from joulecast import predict_generation
from joulecast.errors import JoulecastError
from joulecast.generation.prediction import GenerationPrediction

HERE = Path(__file__).with_name("serving")
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


def outcome(run: Run) -> Compared:
    """Compare a run with its prediction."""
    predicted = run.predicted()
    interval = predicted.interval(LEVEL)
    if interval is None:
        raise SystemExit(f"no errors of kernels are known for {predicted.gpu}")
    row, token_s = run.row, predicted.time_per_output_token_s
    if row["latency_s"]:
        time = predicted.batch * predicted.output_tokens / predicted.tokens_per_s, float(row["latency_s"])
    elif row["tokens_per_s"]:
        time = 1 / predicted.tokens_per_s, 1 / float(row["tokens_per_s"])
    else:
        time = token_s, 1e-3 * float(row["token_ms"])
    # An interval of the time per token holds, relative to it, for a batch's latency and the throughput as well.
    low, high = (end / token_s * time[0] for end in interval.time_per_output_token_s)
    values, intervals = {"time": time}, {"time": (low, high)}
    if row["power_w"]:
        watts = float(row["power_w"])
        slower = time[0] / time[1]
        joules = predicted.energy_per_token_j / (slower * predicted.power_w / watts)
        values |= {"power": (predicted.power_w, watts), "energy": (predicted.energy_per_token_j, joules)}
        intervals |= {"power": interval.power_w, "energy": interval.energy_per_token_j}
    return Compared.of(run, values, intervals)


def whole_bench(folder: Path) -> list[Compared]:
    """All runs of LLM-Inference-Bench that fit, of engines and models that are known, without suspect ones."""
    compared = []
    for row in rows_of(folder / "runs.csv"):
        if row["model"] not in _MODELS or row["engine"] not in _ENGINES:
            continue
        served = {
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
            compared.append(outcome(Run(served)))
        except JoulecastError:  # It does not fit into the memory.
            continue
    return compared


def _bench_section(some: Sequence[Compared]) -> list[str]:
    def name(each: Compared) -> str:
        row = each.run.row
        return f"{row['engine']}, {row['gpus']} {row['gpu']}, {row['model']}"

    return [
        "## All runs of LLM-Inference-Bench",
        "",
        f"{len(some)} runs with 1 to 64 sequences of 128 to 2048 tokens in and out. Nothing was adjusted to them but",
        "what is said above. Mixtral in TensorRT-LLM takes less time than reading all of its experts takes: all of its",
        "sequences must have chosen the same ones.",
        "",
        *table("engine, GPUs and model", some, name),
    ]


def report(compared: Sequence[Compared]) -> list[str]:
    """The lines of the page."""
    lines = [
        f"{len(compared)} runs, listed in `runs.csv`.",
        "",
        (HERE / "notes.md").read_text(encoding="utf-8").strip(),
        "",
    ]
    for title, first in (("Runs that were looked at", True), ("Runs held back", False)):
        half = [each for each in compared if each.run.is_first == first]
        if not half:
            continue
        lines += [f"## {title}", "", LEGEND, ""]
        lines += table("source", half, lambda each: each.run.row["source"], _QUANTITIES)
        lines += table("engine and GPU", half, _engine_and_gpu, _QUANTITIES)
        lines += table("batch", half, lambda each: each.run.batch_group, _QUANTITIES)
    return lines


def _engine_and_gpu(each: Compared) -> str:
    return f"{each.run.row['engine']}, {each.run.row['gpu']}"


def runs() -> list[Run]:
    """All runs, in the order of the file."""
    return [Run(row) for row in rows_of(HERE / "runs.csv")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", action="store_true", help="only the runs that may be looked at; writes no report")
    parser.add_argument("--each", action="store_true", help="print each run")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/llminferencebench2024"))
    arguments = parser.parse_args()
    compared = [outcome(run) for run in runs() if run.is_first or not arguments.first]
    for each in compared if arguments.each else ():
        errors = ", ".join(f"{name} {each.error(name)}" for name in each.logs)
        columns = ("source", "engine", "gpu", "model", "batch", "prompt", "output")
        print(*(each.run.row[name] for name in columns), errors)
    if arguments.first:
        print(*table("engine and GPU", compared, _engine_and_gpu, _QUANTITIES), sep="\n")
    else:
        lines = [*report(compared), *_bench_section(whole_bench(arguments.data))]
        write(HERE / "REPORT.md", "Served language models, against published runs", "serving.py", lines)


if __name__ == "__main__":
    main()
