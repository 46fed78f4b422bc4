"""`joulecast simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..traffic.replay import ROUTERS
from ..units import duration, si
from .generate import Engine
from .options import AsJson, Asked, Plot, asking
from .printing import table, tell

if TYPE_CHECKING:
    from ..traffic import ServingSimulation


@asking("prompt", "output", "cache_precision", "clock", "host", "calibration", "predictor")
def simulate(
    asked: Asked,
    model: Annotated[str, typer.Argument(help="Name of a language model, or the path of its config.json.")],
    gpu: Annotated[str | None, typer.Argument(help='GPUs, such as "H100 SXM" or "4x H100 SXM".')] = None,
    gpu_option: Annotated[str | None, typer.Option("--gpu", help="The GPUs, in place of the argument.")] = None,
    rate: Annotated[float | None, typer.Option(help="Mean requests per second.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file with arrival_s, prompt_tokens and output_tokens.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests at a time: one begins when another ends.")] = None,
    seconds: Annotated[float | None, typer.Option("--duration", help="Seconds in which requests arrive.")] = None,
    burstiness: Annotated[float, typer.Option(help="Variation of the time between arrivals: 1 is Poisson.")] = 1.0,
    warmup: Annotated[float, typer.Option(help="Seconds at the beginning that are not counted.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of arrivals and lengths.")] = 0,
    router: Annotated[str, typer.Option(help=f"How replicas get requests: {' or '.join(ROUTERS)}.")] = "round_robin",
    max_sequences: Annotated[int, typer.Option(help="Sequences of a replica in a step.")] = 256,
    max_step_tokens: Annotated[int | None, typer.Option(help="Tokens of a step. Default: the engine's.")] = None,
    prefix_hit_rate: Annotated[float, typer.Option(help="Share of prompts that the prefix cache holds.")] = 0.0,
    precision: Annotated[str, typer.Option(help="Of the weights: bf16, fp16, fp8, nvfp4 or mxfp4.")] = "bf16",
    engine: Engine = "vllm",
    sampling: Annotated[str | None, typer.Option(help="greedy, temperature, or top_p.")] = None,
    tensor_parallel: Annotated[
        int | None,
        typer.Option(help="GPUs that share each layer; others are replicas. Default: all that the model divides over."),
    ] = None,
    expert_parallel: Annotated[int, typer.Option(help="GPUs that whole experts are shared out to.")] = 1,
    power_limit: Annotated[float | None, typer.Option(help="Power cap of a board in watts.")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all requests as CSV.")] = False,
) -> None:
    """Simulate a language model that serves requests as they arrive: latencies with their tails, power and energy."""
    from ..traffic.simulate import simulate_serving

    if (gpu is None) == (gpu_option is None):
        raise InputError(
            "a simulation needs the GPUs, once", given=f"{gpu} and {gpu_option}", allowed='such as "4x H100 SXM"'
        )
    if rate is not None and trace is not None:
        raise InputError(
            "requests arrive at a rate or as in a trace",
            given=f"--rate {rate:g} --trace {trace}",
            allowed="one of them",
        )
    if trace is not None:
        asked.update(prompt_tokens=None, output_tokens=None)
    found = simulate_serving(
        Path(model) if model.endswith(".json") else model,
        gpu or gpu_option,
        requests=rate if trace is None else trace,
        duration_s=seconds,
        seed=seed,
        concurrency=concurrency,
        burstiness=burstiness,
        warmup_s=warmup,
        router=router,
        max_sequences=max_sequences,
        max_step_tokens=max_step_tokens,
        prefix_hit_rate=prefix_hit_rate,
        precision=precision,
        engine=engine,
        sampling=sampling,
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        power_limit_w=power_limit,
        **asked,
    )
    tell(found, as_json, as_csv, lambda: _text(found), plot)


def _text(found: ServingSimulation) -> str:
    boards = f"{found.gpus}x {found.gpu} ({found.layout})" if found.gpus > 1 else found.gpu
    return "\n".join(
        [
            f"{found.model}, {found.precision}, by {found.engine} on {boards}",
            f"{found.counted:,} requests in {duration(found.duration_s - found.warmup_s)}, "
            f"{found.requests_per_s:.3g} requests/s and {found.tokens_per_s:,.0f} tokens/s were served",
            "",
            table(*found.latencies(), frozenset({1, 2, 3})),
            "",
            f"power {si(found.power_w, 'W')}, {si(found.energy_j, 'J')} in all, "
            f"{si(found.energy_per_token_j, 'J')} per token; "
            f"{100 * found.idle_share:.1f} % of the time without requests; {found.preemptions} preemptions",
            *(f"note: {note}" for note in found.notes),
        ]
    )
