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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from mlenergy import CODE, IMAGE, PROMPTS, REQUESTS, SEEN, STEADY, TEXT, Run, runs, unsteady

from joulecast.generation.generate import answer, server_of
from joulecast.generation.models import find_decoder
from joulecast.generation.prediction import GenerationPrediction
from joulecast.generation.serving import Lengths, Load
from joulecast.generation.towers import find_images

REPORT = Path(__file__).with_name("serving") / "ENERGY.md"
LEVEL = 0.9
IMAGES = "image-chat"
_QUANTITIES = ("time", "power", "energy")


@dataclass(frozen=True)
class Outcome:
    """A run with its prediction.

    Args:
        run: The run.
        logs: Quantity -> log ratio of predicted over measured.
        within: Quantity -> whether the measured value lies in the interval.
    """

    run: Run
    logs: dict[str, float]
    within: dict[str, bool]

    @property
    def batch_group(self) -> str:
        """The range that its batch lies in."""
        batch = self.run.number("avg_batch_size")
        return next((f"up to {most}" for most in (16, 64, 256) if batch <= most + 0.5), "over 256")


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


def predicted(run: Run, wait_s: float | None = None) -> GenerationPrediction:
    """What joulecast says about a run, of which it may be known how long each step waits for the host."""
    batch, mean = max(1, round(run.number("avg_batch_size"))), run.number("avg_output_len")
    window = Window.of(run, batch)
    others = ("sampling", "clock", "power_limit_w", "cache_precision", "calibration", "predictor")
    asked = {**run.asked, **dict.fromkeys(others), "host": None if wait_s is None else f"{1e3 * wait_s} ms"}
    prompt, output = Lengths.of("prompt_tokens", PROMPTS[run["task"]]), Lengths(mean, 0.0, mean)
    seen = None
    if run["task"] == IMAGES:
        seen = find_images(run["model"], find_decoder(run.model), [IMAGE])
        prompt = replace(prompt, mean=prompt.mean + seen.tokens, longest=prompt.longest + seen.tokens)
    server = server_of(asked, batch, prompt, output, None)
    # A request that is sent again finds its prompt in the prefix cache, which vLLM keeps in free memory.
    read = max(1, round(prompt.mean * (1 - window.repeated)))
    load = Load(batch, read, window.tokens, window.written + prompt.mean - read, prompt.deviation)
    served = replace(server.deployment, total_load=load, images=seen)
    return answer(replace(server, deployment=served), asked, prompt, output)


def outcomes(folder: Path, *, seen_only: bool = False) -> Iterator[tuple[Outcome, Outcome]]:
    """Compare the runs with their predictions, and with those for the seconds that each waited for its host."""
    for run in runs(folder, seen_only=seen_only, tasks=(*TEXT, IMAGES, CODE)):
        found = predicted(run)
        batch = max(1, round(run.number("avg_batch_size")))
        missing_s = batch / run.number("output_throughput_tokens_per_sec") - batch / found.tokens_per_s
        yield _outcome(run, found), _outcome(run, predicted(run, found.overhead_s + max(0.0, missing_s)))


def _outcome(run: Run, found: GenerationPrediction) -> Outcome:
    interval = found.interval(LEVEL)
    if interval is None:
        raise SystemExit(f"no errors of kernels are known for {found.gpu}")
    measured = {
        "time": 1 / run.number("output_throughput_tokens_per_sec"),
        "power": run.number("avg_power_watts"),
        "energy": run.number("energy_per_token_joules"),
    }
    value = {"time": 1 / found.tokens_per_s, "power": found.power_w, "energy": found.energy_per_token_j}
    low, high = (each / found.time_per_output_token_s for each in interval.time_per_output_token_s)
    bounds = {
        "time": (low * value["time"], high * value["time"]),
        "power": interval.power_w,
        "energy": interval.energy_per_token_j,
    }
    logs = {name: math.log(value[name] / measured[name]) for name in _QUANTITIES}
    within = {name: bounds[name][0] <= measured[name] <= bounds[name][1] for name in _QUANTITIES}
    return Outcome(run, logs, within)


def _cell(some: Sequence[Outcome], quantity: str) -> str:
    logs = np.array([each.logs[quantity] for each in some])
    errors = 100 * np.abs(np.expm1(logs))
    inside = np.mean([each.within[quantity] for each in some])
    return f"{errors.mean():.1f}, {np.median(errors):.1f}, {100 * np.expm1(logs.mean()):+.1f} %, {100 * inside:.0f} %"


def _table(title: str, found: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[str]:
    lines = [f"| {title} | runs | {' | '.join(_QUANTITIES)} |", "| --- | --- | --- | --- | --- |"]
    for name in sorted(set(map(key, found))):
        some = [each for each in found if key(each) == name]
        lines.append(f"| {name} | {len(some)} | {' | '.join(_cell(some, each) for each in _QUANTITIES)} |")
    return [*lines, f"| all | {len(found)} | {' | '.join(_cell(found, each) for each in _QUANTITIES)} |", ""]


def report(pairs: Sequence[tuple[Outcome, Outcome]]) -> str:
    """The page."""
    found, given = ([pair[place] for pair in pairs if pair[0].run["task"] in TEXT] for place in (0, 1))
    seeing, told = ([pair[place] for pair in pairs if pair[0].run["task"] == IMAGES] for place in (0, 1))
    every = [each.run for each in found]
    steady = [each for each in found if not unsteady(each.run, every)]
    others = [each for each in found if unsteady(each.run, every)]
    waiting = [each for each in given if unsteady(each.run, every)]
    lines = [
        "# Joules of served models, against ML.ENERGY's runs",
        "",
        "Made by `python benchmarks/serving_energy.py`; do not edit. vLLM 0.11.1 with asynchronous scheduling, chats",
        "and gpqa. Cells: mean and median absolute error in %, bias (geometric mean), share within the 90 % interval.",
        "",
        "All requests were sent at once; the caches hold what a simulation of the measured window says, and",
        "prompts that were sent before, as many are with over 256 sequences, are taken to be in the prefix cache.",
        "Constants of sampling were fitted to Llama 3.1 8B, Qwen3 14B and GPT-OSS 20B, those of energy to all",
        "models but Nemotron; one that is left out is 9 % off in joules in the mean, where its time is right.",
        "",
        "## Runs with a steady host",
        "",
        "Kernels make steps that only decode as long as each other. Where below 3 % of steps read a prompt, the 95th",
        f"percentile of the times between tokens is at most {STEADY} times the median on all H100 and on 2 to 8 B200,",
        "but for one model with many sequences. On one B200 it is 1.31 to 3.5 times: steps of these runs waited for",
        "their host. No prediction has a part in this choice.",
        "",
    ]
    lines += _table("GPU", steady, lambda each: each.run.gpu)
    lines += _table("GPU and model", steady, lambda each: f"{each.run.gpu}, {each.run.model}")
    lines += _table("GPU and task", steady, lambda each: f"{each.run.gpu}, {each.run['task']}")
    lines += _table("GPU and batch", steady, lambda each: f"{each.run.gpu}, {each.batch_group}")
    lines += ["## Runs that waited for their host", "", "As predicted, with a usual host:", ""]
    lines += _table("GPU and model", others, lambda each: f"{each.run.gpu}, {each.run.model}")
    lines += [
        'Given how long they waited, as with `host="25 ms"`: what a step took longer than predicted, boards draw',
        "static power. The time is right where a run was slower, so power and joules say whether waiting costs what",
        "it should.",
        "",
        *_table("GPU and model", waiting, lambda each: f"{each.run.gpu}, {each.run.model}"),
        "## All runs",
        "",
        *_table("GPU", found, lambda each: each.run.gpu),
        "The seconds that a slow host adds (HOST_S) were chosen by the shares of the models that were looked at:",
        "",
        *_table("models", found, lambda each: "looked at" if each.run.model in SEEN else "held back"),
    ]
    lines += [
        "## Chats about images",
        "",
        "Their prompts are not published. One guess holds for all: an image of 832 x 832 pixels, which is 678 tokens",
        "for Qwen3-VL and 260 for Gemma, and 120 +- 200 tokens of text. No constant was fitted to these runs. On H100:",
        "",
        *_table("model", [each for each in seeing if each.run.gpu == "H100"], lambda each: each.run["model"]),
        "On B200, where all but Gemma waited for their host, as predicted with a usual one:",
        "",
        *_table("model", [each for each in seeing if each.run.gpu == "B200"], lambda each: each.run["model"]),
        "Given how long:",
        "",
        *_table("model", [each for each in told if each.run.gpu == "B200"], lambda each: each.run["model"]),
    ]
    code = [found for found, _ in pairs if found.run["task"] == CODE and found.run.requests == REQUESTS[CODE]]
    lines += [
        "## Code completion",
        "",
        "Prompts of 2000 +- 2000 tokens were chosen by the 480B in bf16, whose GPUs share all layers. Those in fp8 ran",
        "in data parallelism, in lockstep and padded to the busiest rank; nothing was set by them. Joules of FLOPs of",
        "experts in 16 bits were set by that in bf16; the 30B was not looked at before. Left out are runs that sent",
        "a prompt again.",
        "",
        *_table("GPU and model", code, lambda each: f"{each.run['gpus']} {each.run.gpu}, {each.run['model']}"),
    ]
    worst = max(found, key=lambda each: abs(each.logs["energy"]))
    lines += [
        f"Worst joules: {worst.run['model']}, {worst.run['task']}, batch {worst.run.number('avg_batch_size'):.0f} on "
        f"{worst.run['gpus']} {worst.run.gpu}, {100 * math.expm1(worst.logs['energy']):+.0f} %.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mlenergy2026"))
    parser.add_argument("--seen", action="store_true", help="only the models that constants were fitted to; no report")
    parser.add_argument("--each", action="store_true", help="print each run")
    arguments = parser.parse_args()
    found = list(outcomes(arguments.data, seen_only=arguments.seen))
    if arguments.each:
        for each, _ in found:
            logs = ", ".join(f"{name} {100 * math.expm1(log):+.0f} %" for name, log in each.logs.items())
            run = each.run
            print(run["task"], run.gpu, run["gpus"], run.model, run["avg_batch_size"], logs)
    if arguments.seen:
        print(
            "\n".join(
                _table("GPU and model", [each for each, _ in found], lambda each: f"{each.run.gpu}, {each.run.model}")
            )
        )
    else:
        REPORT.write_text(report(found), encoding="utf-8")


if __name__ == "__main__":
    main()
