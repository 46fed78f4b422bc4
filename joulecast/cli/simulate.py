"""`joulecast simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..units import duration, si
from .options import Asked
from .printing import table, tell

if TYPE_CHECKING:
    from ..traffic import ServingSimulation

"""Options of speculative decoding."""


def simulate(asked: Asked, plot: Path | None = None, as_json: bool = False, as_csv: bool = False) -> None:
    """Simulate a language model that serves requests as they arrive: latencies with their tails, power and energy."""
    from ..traffic.simulate import simulate_serving

    gpu, other, rate, trace = asked["gpu"], asked.pop("gpu_option"), asked["requests"], asked.pop("trace")
    if (gpu is None) == (other is None):
        raise InputError(
            "a simulation needs the GPUs, once",
            given="none" if gpu is None else f"{gpu} --gpu {other}",
            allowed='such as "4x H100 SXM", as the second argument or after --gpu',
        )
    if rate is not None and trace is not None:
        raise InputError(
            "requests arrive at a rate or as in a trace",
            given=f"--rate {rate:g} --trace {trace}",
            allowed="one of them",
        )
    if trace is not None:
        asked.update(prompt_tokens=None, output_tokens=None, requests=trace)
    found = simulate_serving(**{**asked, "gpu": gpu or other})
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
