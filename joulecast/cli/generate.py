"""`joulecast generate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..units import si
from .options import Asked
from .printing import LEVEL, tell, totals

if TYPE_CHECKING:
    from ..generation.prediction import GenerationPrediction


"""Options of all commands about a language model that is served."""
"""Options of commands that are told how it is served."""


def generate(asked: Asked, tree: bool = False, depth: int = 5, as_json: bool = False, plot: Path | None = None) -> None:
    """Predict seconds, watts and joules per token of an engine that writes text with a language model."""
    from ..generation.generate import predict_generation

    prediction = predict_generation(**asked)
    steps = prediction.decode
    text = (lambda: steps.tree().summarized().to_text(depth)) if tree else (lambda: _text(prediction))
    tell(prediction, as_json, False, text, plot)


def _text(found: GenerationPrediction) -> str:
    interval = found.interval(LEVEL)
    quantities = (
        ("time to first token", "time_to_first_token_s", "s"),
        ("time per output token", "time_per_output_token_s", "s"),
        ("power", "power_w", "W"),
        ("energy per token", "energy_per_token_j", "J"),
        ("time per request", "latency_s", "s"),
        ("energy per request", "energy_per_request_j", "J"),
        ("tokens per second", "tokens_per_s", lambda value: f"{value:,.0f}"),
    )
    boards = found.boards
    memory = found.memory
    parts = [
        f"{found.model}, {found.precision}, {found.tokens}, batch {found.batch} "
        f"({found.batching}), by {found.engine} on {boards}",
        "",
        totals(found, interval, quantities),
        "",
        f"memory of a GPU: {si(memory.weights_bytes, 'B')} of weights, {si(memory.cache_bytes, 'B')} of cache, "
        f"{si(memory.activations_bytes, 'B')} besides; {si(memory.usable_bytes, 'B')} to use, for a batch of up to "
        f"{found.largest_batch}",
        f"a step that only decodes: {si(found.decode.time_s, 's')}, {si(found.decode.power_w, 'W')}; one that reads "
        f"prompts only: {si(found.prefill.time_s, 's')}, {si(found.prefill.power_w, 'W')}; waiting for the engine: "
        f"{si(found.overhead_s, 's')} a step",
        "",
        *(f"note: {note}" for note in found.notes),
    ]
    return "\n".join(parts)
