"""`joulecast best-serving`: the GPUs that hold limits of latency at a rate of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..traffic.best import OBJECTIVES
from ..traffic.choices import VERSIONS
from ..units import si
from .generate import Engine
from .options import PRICES, AsJson, Asked, asking
from .printing import reason_lines, table, tell
from .reading import positive_integers


@asking("prompt", "output", "gpus", "clocks", "cache_precision", "power_limit", *PRICES)
def best_serving(
    asked: Asked,
    model: Annotated[str, typer.Argument(help="Name of a language model, or the path of its config.json.")],
    rate: Annotated[
        float | None, typer.Option(help="Mean requests per second. Default: as many as the power is for.")
    ] = None,
    p99_first_token: Annotated[float | None, typer.Option(help="Most seconds to the first token, at P99.")] = None,
    p99_per_token: Annotated[float | None, typer.Option(help="Most seconds for each further token, at P99.")] = None,
    max_total_power: Annotated[float | None, typer.Option(help="Most mean watts of all boards together.")] = None,
    max_gpus: Annotated[int, typer.Option(help="Most GPUs.")] = 64,
    objective: Annotated[str, typer.Option(help=f"What to minimize: {', '.join(OBJECTIVES)}.")] = "energy",
    counts: Annotated[str, typer.Option(help="Numbers of GPUs that may share each layer.")] = "1,2,4,8",
    max_sequences: Annotated[str, typer.Option(help="Limits of sequences in a step, to choose from.")] = "64,256",
    precision: Annotated[str, typer.Option(help="Of the weights: bf16, fp16, fp8, nvfp4 or mxfp4.")] = "bf16",
    engine: Engine = "vllm",
    burstiness: Annotated[float, typer.Option(help="Variation of the time between arrivals: 1 is Poisson.")] = 1.0,
    prefix_hit_rate: Annotated[float, typer.Option(help="Share of prompts that the prefix cache holds.")] = 0.0,
    top: Annotated[int, typer.Option(min=0, help="Number of choices to show; 0 for all.")] = 10,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all choices as CSV.")] = False,
) -> None:
    """Choose how many GPUs serve requests within limits of P99 latency, and print the commands that start them."""
    from ..traffic.best import best_serving as best_of

    clocks = asked.pop("clocks")
    found = best_of(
        Path(model) if model.endswith(".json") else model,
        rate_per_s=rate,
        p99_ttft_s=p99_first_token,
        p99_tpot_s=p99_per_token,
        max_total_power_w=max_total_power,
        max_gpus=max_gpus,
        objective=objective,
        counts=positive_integers(counts, "numbers of GPUs"),
        clocks=(None,) if clocks is None else clocks,
        max_sequences=positive_integers(max_sequences, "numbers of sequences"),
        precision=precision,
        engine=engine,
        burstiness=burstiness,
        prefix_hit_rate=prefix_hit_rate,
        **asked,
    )
    header = [
        "GPUs of a replica",
        "replicas",
        "clock",
        "sequences",
        "requests/s",
        "of at most",
        "first token",
        "per token",
    ]
    rows = [
        [
            *(each.replica, str(each.replicas), f"{each.clock_mhz:g}", str(each.max_sequences)),
            *(f"{each.rate_per_s:.3g}", f"{each.highest_rate_per_s:.3g}"),
            *(
                si(each.ttft_p99_s, "s"),
                si(each.tpot_p99_s, "s"),
                si(each.energy_per_token_j, "J"),
                si(each.power_w, "W"),
            ),
        ]
        for each in (found[:top] if top else found)
    ]
    shown = table([*header, "energy", "power"], rows, frozenset(range(1, 10)))
    commands = (line for name in VERSIONS for line in ["", f"{name} {VERSIONS[name]}:", found[0].command(name)])
    text = "\n".join(
        [
            shown,
            *reason_lines(found.left_out.items()),
            "",
            "to start a replica of the first:",
            *commands,
        ]
    )
    tell(found, as_json, as_csv, lambda: text)
