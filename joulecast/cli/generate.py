"""`joulecast generate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..generation.engines import ENGINES
from ..units import si
from .options import REQUIRED, AsJson, Asked, Option, Plot, argument, asking, option
from .printing import LEVEL, tell, totals

if TYPE_CHECKING:
    from ..generation.prediction import GenerationPrediction


SERVED: Mapping[str, Option] = {
    "model": Option(
        argument("Name of a language model, or the path of its config.json."),
        default=REQUIRED,
        read=lambda text: Path(text) if text.endswith(".json") else text,
    ),
    "precision": Option(
        option(str, help="Of the weights: bf16, fp16, fp8, nvfp4, mxfp4 or int4 (AWQ, GPTQ)."), default="bf16"
    ),
    "engine": Option(option(str, help=f"The engine that serves it: {', '.join(ENGINES)}."), default="vllm"),
}
"""Options of all commands about a language model that is served."""
LAYOUT: Mapping[str, Option] = {
    "sampling": Option(
        option(str | None, help="greedy, temperature, or top_p (also for top-k). Default: the engine's way.")
    ),
    "tensor_parallel": Option(
        option(
            int | None,
            help="GPUs that share each layer; others are replicas. Default: all that the model divides over.",
        )
    ),
    "expert_parallel": Option(option(int, help="GPUs that whole experts are shared out to."), default=1),
}
"""Options of commands that are told how it is served."""


@asking(
    *("prompt", "output", "cache_precision", "clock", "host", "calibration", "predictor", "power_limit"),
    **SERVED,
    gpu=Option(
        option(str, help='GPU, such as "H100 SXM"; "2x H100 SXM" are two that share the model.'), default=REQUIRED
    ),
    batch=Option(option(int, help="Sequences at a time, on all GPUs together."), default=1),
    batching=Option(option(str | None, help="continuous or static. Default: what the engine does.")),
    **LAYOUT,
)
def generate(
    asked: Asked,
    tree: Annotated[bool, typer.Option("--tree", help="Show the energy of modules in a step of decoding.")] = False,
    depth: Annotated[int, typer.Option(min=0, help="Levels of the tree to show; 0 for all.")] = 5,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
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
