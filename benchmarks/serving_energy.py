"""How good predictions of served energy are: against ML.ENERGY's runs of vLLM 0.11.1 on H100 and B200.

    python benchmarks/serving_energy.py [--data ../shared/data/mlenergy2026] [--each] [--seen]

Compares seconds per token, power and joules per token of chats and of long answers, for all models that are known by
name, with the requests that mlenergy.py describes; what ran in the measured window follows from them. Constants of
sampling were fitted to the models that are shown (`--seen` reads no others), those of energy to all but Nemotron
(joulecast/generation/run_energy.py says how far a model is off that was left out).
Writes benchmarks/serving/ENERGY.md. Takes half a minute.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from compared import LEGEND, LEVEL, Compared, table, write
from mlenergy import PROMPTS, REQUESTS, Run, runs

from joulecast.generation.generate import answer, server_of
from joulecast.generation.prediction import GenerationPrediction
from joulecast.generation.serving import Lengths, Load

REPORT = Path(__file__).with_name("serving") / "ENERGY.md"
HOST_BOUND = 1.8
"""A run that takes longer than predicted by this factor waited for its host: its power shows it, too."""

_QUANTITIES = ("time", "power", "energy")


def waits(each: Compared) -> bool:
    """Whether a run waited for its host."""
    return -each.logs["time"] > math.log(HOST_BOUND)


def batch_group(run: Run) -> str:
    """The range that its batch lies in."""
    batch = run.number("avg_batch_size")
    return next((f"up to {most:3d}" for most in (16, 64, 256) if batch <= most + 0.5), "over 256")


@dataclass(frozen=True)
class Window:
    """What ran while a run was measured.

    All requests are sent at once. Energy and tokens are counted from the first token of the last sequence of the first
    batch to the moment at which as few requests are left as the batch has. Of large batches, the sequences are young.

    Args:
        written: Mean number of tokens that a running sequence has written.
        tokens: Tokens that are written for each prompt that is read.
        repeated: Share of these prompts that were sent before, and are in the prefix cache.
    """

    written: float
    tokens: float
    repeated: float

    @classmethod
    def of(cls, run: Run, batch: int) -> Window:
        """Draw the requests of a run, and serve them one step after the other; the same for every call."""
        random, requests = np.random.default_rng(0), run.requests
        areas = ages = prompts = 0.0
        for _ in range(max(1, min(8, 40_000 // requests))):
            outputs = run.outputs(requests, random)
            running = [(float(tokens), 0.0) for tokens in outputs[:batch]]
            heapq.heapify(running)
            waiting = iter(outputs[batch:])
            spans = []
            for _ in range(max(1, requests - batch - 1)):
                end, start = heapq.heappop(running)
                spans.append(end - start)
                heapq.heappush(running, (end + float(next(waiting, math.inf)), end))
            spans += [end - start for _, start in running]
            areas += sum(span**2 / 2 for span in spans)
            ages += sum(spans)
            prompts += len(spans) - batch
        # The requests before are in the first batch, or sent for the first time.
        first = max(batch, REQUESTS[run["task"]])
        return cls(areas / ages, ages / prompts, max(0, requests - first) / max(1, requests - batch))


def predicted(run: Run) -> GenerationPrediction:
    """What joulecast says about a run."""
    batch, mean = max(1, round(run.number("avg_batch_size"))), run.number("avg_output_len")
    window = Window.of(run, batch)
    others = ("sampling", "clock", "power_limit_w", "cache_precision", "host", "calibration", "predictor")
    asked = {**run.asked, **dict.fromkeys(others)}
    prompt, output = Lengths.of("prompt_tokens", PROMPTS[run["task"]]), Lengths(mean, 0.0, mean)
    server = server_of(asked, batch, prompt, output, None)
    # A request that is sent again finds its prompt in the prefix cache, which vLLM keeps in free memory.
    read = max(1, round(prompt.mean * (1 - window.repeated)))
    load = Load(batch, read, window.tokens, window.written + prompt.mean - read)
    return answer(replace(server, deployment=replace(server.deployment, total_load=load)), asked, prompt, output)


def outcomes(folder: Path, *, seen_only: bool = False) -> Iterator[Compared]:
    """Compare the runs with their predictions."""
    for run in runs(folder, seen_only=seen_only):
        found = predicted(run)
        interval = found.interval(LEVEL)
        if interval is None:
            raise SystemExit(f"no errors of kernels are known for {found.gpu}")
        token_s = 1 / found.tokens_per_s
        low, high = (token_s * end / found.time_per_output_token_s for end in interval.time_per_output_token_s)
        values = {
            "time": (token_s, 1 / run.number("output_throughput_tokens_per_sec")),
            "power": (found.power_w, run.number("avg_power_watts")),
            "energy": (found.energy_per_token_j, run.number("energy_per_token_joules")),
        }
        bounds = {"time": (low, high), "power": interval.power_w, "energy": interval.energy_per_token_j}
        yield Compared.of(run, values, bounds)


def report(found: Sequence[Compared]) -> list[str]:
    """The lines of the page."""
    waiting = sum(map(waits, found))
    rest = [each for each in found if not waits(each)]
    worst = max(found, key=lambda each: abs(each.logs["energy"]))
    batch = f"batch {worst.run.number('avg_batch_size'):.0f} on {worst.run['gpus']} {worst.run.gpu}"
    return [
        "vLLM 0.11.1 with asynchronous scheduling, chats and gpqa.",
        LEGEND,
        "",
        "All requests were sent at once; the caches hold what a simulation of the measured window says, and",
        "prompts that were sent before, as many are with over 256 sequences, are taken to be in the prefix cache.",
        "Where the time is right, so is the power: on B200, models of one GPU waited for their host in part.",
        "Constants of sampling were fitted to Llama 3.1 8B, Qwen3 14B and GPT-OSS 20B, those of energy to all",
        "models but Nemotron; one that is left out is 9 % off in joules in the mean, where its time is right.",
        f"{waiting} runs took more than {HOST_BOUND} times as long as predicted: they waited for their host.",
        "",
        "## Without runs that waited for their host",
        "",
        *table("GPU", rest, lambda each: each.run.gpu, _QUANTITIES),
        *table("GPU and model", rest, _gpu_and_model, _QUANTITIES),
        *table("GPU and task", rest, lambda each: f"{each.run.gpu}, {each.run['task']}", _QUANTITIES),
        *table("GPU and batch", rest, lambda each: f"{each.run.gpu}, {batch_group(each.run)}", _QUANTITIES),
        "## All runs",
        "",
        *table("GPU", found, lambda each: each.run.gpu, _QUANTITIES),
        f"Worst joules: {worst.run['model']}, {worst.run['task']}, {batch}, {worst.error('energy')}.",
    ]


def _gpu_and_model(each: Compared) -> str:
    return f"{each.run.gpu}, {each.run.model}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mlenergy2026"))
    parser.add_argument("--seen", action="store_true", help="only the models that constants were fitted to; no report")
    parser.add_argument("--each", action="store_true", help="print each run")
    arguments = parser.parse_args()
    found = list(outcomes(arguments.data, seen_only=arguments.seen))
    for each in found if arguments.each else ():
        errors = ", ".join(f"{name} {each.error(name)}" for name in each.logs)
        run = each.run
        print(run["task"], run.gpu, run["gpus"], run.model, run["avg_batch_size"], errors)
    if arguments.seen:
        print(*table("GPU and model", found, _gpu_and_model, _QUANTITIES), sep="\n")
    else:
        write(REPORT, "Joules of served models, against ML.ENERGY's runs", "serving_energy.py", report(found))


if __name__ == "__main__":
    main()
