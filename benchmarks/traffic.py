"""How good simulated serving is: against queues with known answers, conservation, and ML.ENERGY's published runs.

    python benchmarks/traffic.py [--data ../shared/data] [--shown] [--each]

Runs of ML.ENERGY are replayed as they were made (mlenergy.py): all requests at once, and what is counted lies in the
same part of the run. `--shown` reads the models that were looked at while the simulator was written and no others.
Writes benchmarks/TRAFFIC.md; takes a quarter of an hour of CPU.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
import traffic_mlperf
import traffic_steps
from mlenergy import HYBRID, PROMPTS, REQUESTS, SEEN, Run, runs, unsteady

from joulecast import simulate_serving
from joulecast.errors import InputError, JoulecastError
from joulecast.traffic.requests import Drawn
from joulecast.traffic.scheduler import Cache, Limits, Replica, Request

REPORT = Path(__file__).with_name("TRAFFIC.md")
GOALS = {"P50": 15, "P90": 20, "P99": 25, "throughput": 10, "energy": 12}
"""Mean absolute errors in % that the simulator should stay within, on models that were left out."""

_EACH = 4
"""Every so many published runs are replayed with intervals, which takes three times as long."""

_LEVEL = 0.9


class EqualSteps:
    """Steps that all take the same time."""

    idle_w = 0.0

    def __init__(self, step_s: float) -> None:
        """Steps of some seconds."""
        self.cost = step_s, 0.0

    def decode(self, sequences: int, context: float) -> tuple[float, float]:
        """See `PredictedSteps`."""
        return self.cost

    def mixed(self, *sizes: float) -> tuple[float, float]:
        """See `PredictedSteps`."""
        return self.cost


def waits(arrivals: np.ndarray, outputs: np.ndarray, step_s: float, servers: int) -> np.ndarray:
    """Seconds that each request waits in the simulated scheduler; an output of n tokens takes n steps."""
    replica = Replica(EqualSteps(step_s), Cache(1e12), Limits(servers, 10_000))
    requests = [Request(*each) for each in zip(arrivals.tolist(), itertools.repeat(1), outputs.tolist())]
    for request in requests:
        replica.advance(request.arrival_s)
        replica.add(request)
    replica.advance(math.inf)
    return np.array([each.first_token_s for each in requests]) - arrivals - step_s


def equal_services(load: float) -> Callable[[float], float]:
    """M/D/1: probability that the wait is no longer than t services (Erlang)."""

    def at(t: float) -> float:
        terms = [math.exp(load * (t - k)) * (load * (k - t)) ** k / math.factorial(k) for k in range(math.floor(t) + 1)]
        return (1 - load) * math.fsum(terms)

    return at


def exponential_services(load: float, servers: int) -> Callable[[float], float]:
    """M/M/c: probability that the wait is no longer than t services (Erlang's C)."""
    offered = load * servers
    last = offered**servers / math.factorial(servers) / (1 - load)
    waiting = last / (math.fsum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return lambda t: 1 - waiting * math.exp(-servers * (1 - load) * t)


def quantile_of(reached: Callable[[float], float], quantile: float) -> float:
    """The wait at which a distribution reaches a quantile."""
    low, high = 0.0, 1.0
    while reached(high) < quantile:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < quantile else (low, middle)
    return high


def one_by_one(arrivals: np.ndarray, services: np.ndarray, servers: int) -> np.ndarray:
    """Waits of the same requests by Kiefer and Wolfowitz' recursion: each takes the server that is free first."""
    free, waited = [0.0] * servers, []
    for arrival_s, service_s in zip(arrivals.tolist(), services.tolist(), strict=True):
        begin_s = max(arrival_s, heappop(free))
        waited.append(begin_s - arrival_s)
        heappush(free, begin_s + service_s)
    return np.array(waited)


def queues(count: int) -> Iterator[list[str]]:
    """Rows: a queue, a quantile of the wait by its formula, by recursion, and simulated, and errors in %."""
    for servers, load, equal in ((1, 0.5, True), (1, 0.8, True), (1, 0.7, False), (4, 0.7, False), (16, 0.9, False)):
        random, step_s = np.random.default_rng(1), 1.0 if equal else 1e-3
        arrivals = np.cumsum(random.exponential(1 / load / servers, count))
        # Geometric lengths are exponential ones in whole steps; a request waits for the end of a step besides.
        outputs = np.ones(count, dtype=int) if equal else random.geometric(step_s, count)
        exact = equal_services(load) if equal else exponential_services(load, servers)
        drawn, simulated = one_by_one(arrivals, outputs * step_s, servers), waits(arrivals, outputs, step_s, servers)
        for quantile in (0.9, 0.99):
            values = quantile_of(exact, quantile), np.quantile(drawn, quantile), np.quantile(simulated, quantile)
            errors = f"{100 * (values[2] / values[0] - 1):+.2f}", f"{100 * (values[2] / values[1] - 1):+.2f}"
            name = f"M/{'D' if equal else 'M'}/{servers}, load {load:g}"
            yield [name, f"P{100 * quantile:g}", *(f"{each:.4g}" for each in values), *errors]


def replay(run: Run, level: float | None) -> tuple[Any, Any]:
    """A published run, simulated from its first request to its last, and its part in which joules were counted."""
    random = np.random.default_rng(0)
    different = REQUESTS[run["task"]]
    same = np.arange(run.requests) % different
    prompts = Drawn("prompt_tokens", PROMPTS[run["task"]], np.random.SeedSequence(0)).take(different)[same]
    trace = {
        "arrival_s": np.zeros(run.requests),
        "prompt_tokens": prompts,
        "output_tokens": np.maximum(1, np.round(run.outputs(run.requests, random))),
        # Requests that are sent again find what the memory still has of their prompts.
        "prefix": same,
        "prefix_tokens": prompts,
    }
    whole = simulate_serving(
        requests=trace, max_sequences=run.most, max_step_tokens=8192, seed=0, level=level, **run.asked
    )
    began_s = np.sort(whole.requests["first_token_s"])[run.most - 1]
    ended_s = np.sort(whole.requests["end_s"])[run.requests - run.most - 2]
    if ended_s <= began_s:
        raise InputError("the memory never holds all sequences of this run at a time", given=f"{run.most} sequences")
    return whole, replace(whole, warmup_s=float(began_s), duration_s=float(ended_s))


_AT = {"P50": ("itl_s", 0.5), "P90": ("itl_s", 0.9), "P99": ("itl_s", 0.99)}
_MEANS = {"throughput": "tokens_per_s", "energy": "energy_per_token_j"}
_MEASURED = {
    "P50": ("median_itl_ms", 1e-3),
    "P90": ("p90_itl_ms", 1e-3),
    "P99": ("p99_itl_ms", 1e-3),
    "throughput": ("output_throughput_tokens_per_sec", 1.0),
    "energy": ("energy_per_token_joules", 1.0),
}


def compared(folder: Path, shown_only: bool) -> Iterator[tuple[Run, dict[str, float], float, dict[str, bool]]]:
    """Published runs, logarithms of simulated over measured, simulated over mean sequences, what intervals hold."""
    for place, run in enumerate(runs(folder, seen_only=shown_only)):
        try:
            whole, counted = replay(run, None if place % _EACH else _LEVEL)
        except JoulecastError as error:
            print("left out:", run["model"], run["gpus"], run.gpu, run.most, error.what)
            continue
        said = {name: whole.itl_s(at) for name, (_, at) in _AT.items()}
        said |= {name: getattr(counted, of) for name, of in _MEANS.items()}
        measured = {name: scale * run.number(column) for name, (column, scale) in _MEASURED.items()}
        logs = {name: math.log(said[name] / measured[name]) for name in GOALS}
        held = {}
        for name in GOALS if whole.intervals else ():
            key, own = (
                (f"itl_s p{name[1:]}", said[name]) if name in _AT else (_MEANS[name], getattr(whole, _MEANS[name]))
            )
            low, high = (end * said[name] / own for end in whole.intervals[key])
            held[name] = bool(low <= measured[name] <= high)
        running = counted.timeline(max(counted.duration_s - counted.warmup_s, 1e-3) / 100)
        some = (running.time_s >= counted.warmup_s) & (running.time_s < counted.duration_s)
        yield run, logs, float(running.decoding[some].mean()) / run.number("avg_batch_size"), held


def summary(logs: Sequence[dict[str, float]]) -> list[str]:
    """For each quantity the mean and median absolute error and the bias in %."""
    cells = [str(len(logs))]
    for name in GOALS:
        off = np.array([each[name] for each in logs])
        errors = 100 * abs(np.expm1(off))
        cells.append(f"{errors.mean():.1f}, {np.median(errors):.1f}, {100 * math.expm1(off.mean()):+.1f}")
    return cells


def hour(folder: Path) -> Iterator[list[str]]:
    """Rows: Azure's hour of requests on GPUs, and whether nothing was lost."""
    import pyarrow.parquet as parquet

    whole = parquet.read_table(folder / "requests.parquet").to_pydict()
    names = {name: next(each for each in whole if name in each.lower()) for name in ("arrival", "input", "output")}
    for service, gpu in (("conversation", "2x H100 SXM"), ("code", "2x H100 SXM"), ("conversation", "4x L40S")):
        some = [place for place, name in enumerate(whole["service"]) if service in name.lower()]
        columns = {name: np.array([whole[column][place] for place in some]) for name, column in names.items()}
        trace = {
            "arrival_s": columns["arrival"] - columns["arrival"].min(),
            "prompt_tokens": np.maximum(columns["input"], 1),
            "output_tokens": np.maximum(columns["output"], 1),
        }
        begun = time.process_time()
        simulated = simulate_serving("llama3_1_8b", gpu, requests=trace, tensor_parallel=1, router="least_loaded")
        taken_s = time.process_time() - begun
        whole_j = math.fsum(float(log["energy_j"].sum()) for log in simulated.logs)
        idle_j = math.fsum(float(log["energy_j"][log["steps"] == 0].sum()) for log in simulated.logs)
        lost_j = whole_j - idle_j - float(simulated.requests["energy_j"].sum())
        written = sum(float((log["steps"] * log["decoding"] + log["completed"]).sum()) for log in simulated.logs)
        fullest = (
            max(float(log["cached"].max()) for log in simulated.logs) * len(simulated.logs) / simulated.cache_tokens
        )
        yield [
            service,
            gpu,
            f"{simulated.counted:,}",
            f"{1e3 * simulated.ttft_s(0.5):.0f}, {1e3 * simulated.ttft_s(0.99):.0f}",
            f"{1e3 * simulated.tpot_s(0.5):.1f}, {1e3 * simulated.tpot_s(0.99):.1f}",
            f"{simulated.power_w:.0f}",
            f"{simulated.energy_per_token_j:.3f}",
            f"{100 * simulated.idle_share:.0f}",
            f"{written - float(simulated.requests['output_tokens'].sum()):.0f}",
            f"{abs(lost_j) / whole_j:.0e}",
            f"{100 * fullest:.0f}",
            f"{taken_s:.1f}",
        ]


def speed() -> str:
    """A sentence about how long a million requests take."""
    options = {"prompt_tokens": 500, "output_tokens": (300, 200), "tensor_parallel": 1}
    simulate_serving("qwen3_8b", "8x H100 SXM", requests=100, duration_s=1, **options)
    begun = time.process_time()
    simulated = simulate_serving("qwen3_8b", "8x H100 SXM", requests=200, duration_s=5000, **options)
    taken_s = time.process_time() - begun
    return (
        f"{simulated.counted:,} requests (200 per second on 8 replicas of Qwen3 8B) took {taken_s:.0f} s of one core."
    )


def write(folder: Path, replays: str, waited: int, held: dict[str, list[bool]]) -> None:
    """Write the report."""
    shares = ", ".join(f"{name} {100 * float(np.mean(each)):.0f}" for name, each in held.items())
    servers = list(traffic_mlperf.rows(folder / "mlperfinference2025/power.csv"))
    ratios, offline = (100 * abs(np.array(values) - 1) for values in list(zip(*servers, strict=True))[1:])
    goals = ", ".join(f"{name} {goal}" for name, goal in GOALS.items())
    text = f"""# Simulated serving

Made by `python benchmarks/traffic.py`; do not edit.

## Queues with known answers

The scheduler with steps of equal length is a queue. Waits are in services, of 1,000,000 requests. "Recursion" is the
exact wait of the same requests (Kiefer and Wolfowitz), from which the simulation may differ only by the wait for the
end of a step, a thousandth of a service in M/M/c. The formula is for endless time, and P99 of half a million requests
varies around it with the seed, by recursion, too: by 2 % in M/M/1 and M/M/4 and 6 % in M/M/16 (standard deviation of 16
seeds).

{
        table(
            [
                "queue",
                "quantile",
                "formula",
                "recursion",
                "simulated",
                "off the formula in %",
                "off the recursion in %",
            ],
            list(queues(1_000_000)),
        )
    }

## Steps from tables against whole predictions

Absolute errors in %, mean and P95, of {traffic_steps.COUNT} drawn steps each ("other": engine, clock in MHz, cap in W).

{table(traffic_steps.HEADER, list(traffic_steps.rows()))}

## An hour of a cloud's requests (azure2023), Llama 3.1 8B in bf16

No latency or energy was published. Nothing may get lost: output tokens in and out, joules of requests and idle boards
against those of the boards, and never more than the memory holds.

{
        table(
            [
                "service",
                "GPUs",
                "requests",
                "first token P50, P99 (ms)",
                "per token P50, P99 (ms)",
                "W",
                "J per token",
                "idle %",
                "tokens lost",
                "joules lost (share)",
                "memory used at most %",
                "seconds of CPU",
            ],
            list(hour(folder / "azure2023")),
        )
    }

{speed()}

## ML.ENERGY's runs of vLLM 0.11.1

All requests are sent at once, and `max_num_seqs` of them run at a time; throughput and joules are those of the part
that ML.ENERGY counts, P50, P90 and P99 between the tokens of a request those of the whole run. Cells: mean and
median absolute error, and bias, in %. Goals for models held back (mean): {goals}. "Shown" are the models that were
looked at, by which the lengths of prompts of chats were chosen, which are not published: 300 +- 600 tokens (of 200
+- 400, 300 +- 1200, 400 +- 800 and 400 +- 1600, by P90, P95 and P99 of their 19 runs on H100; joules took no part).
"Hybrid" is Nemotron-Nano 9B, whose scans of prompts are assumed and slow on B200. "Held back" are all others. The
steps' constants were fitted before, see serving/ENERGY.md: of time to the shown models, of energy to all but
Nemotron.

{replays}

{waited} runs whose latencies show that their steps waited for the host, most of them on one B200, are left out: no
simulation without that host's speed can know for how long, see serving/ENERGY.md.

Intervals of {100 * _LEVEL:.0f} % of every fourth run of the models held back ({len(held["P50"])}) hold, in %: {shares}.

## MLPerf's Server beside Offline

BERT-large in fp16 by TensorRT, of mlperfinference2025: throughput with random arrivals and 130 ms at P99, divided by
that without either. Submitters state the rate that they aimed at, not the highest. Nothing was fitted. Mean and median
error of
{len(servers)} ratios: {ratios.mean():.1f} and {np.median(ratios):.1f} % (goal: 15); of Offline itself {
        offline.mean():.1f} %.

{table(["version", "submitter", "GPU", "measured", "simulated", "off in %"], [cells for cells, _, _ in servers])}
"""
    REPORT.write_text(text, encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Compare, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--shown", action="store_true", help="only the models that were looked at")
    parser.add_argument("--each", action="store_true", help="print each run")
    asked = parser.parse_args()
    groups: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    waited, held, every = 0, defaultdict(list), list(runs(asked.data / "mlenergy2026"))
    for run, logs, running, inside in compared(asked.data / "mlenergy2026", asked.shown):
        model, gpu = run.model, run.gpu
        if asked.each:
            errors = "  ".join(f"{name} {100 * math.expm1(each):+6.1f}" for name, each in logs.items())
            print(
                f"{model:16} {run['gpus']}x {gpu} {run['task']:13} {run.most:>5} x{running:.2f}  {errors}", flush=True
            )
        if unsteady(run, every):
            waited += 1
            continue
        half = "shown" if model in SEEN else "hybrid" if model == HYBRID else "held back"
        for name, each in inside.items() if half == "held back" else ():
            held[name].append(each)
        for group in ((gpu, half), ("both", half)):
            groups[group].append(logs)
    rows = [[*name, *summary(logs)] for name, logs in sorted(groups.items())]
    replays = table(["GPU", "models", "runs", *GOALS], rows)
    print(replays, f"\n{waited} runs waited for their host")
    if asked.shown:
        return
    write(asked.data, replays, waited, held)


if __name__ == "__main__":
    main()
