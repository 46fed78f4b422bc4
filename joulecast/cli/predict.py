"""What one way to run something costs: `joulecast predict`, `run`, `generate`, `simulate` and `image`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..operations.inputs import titled
from ..operations.operation_list import operation_text
from ..units import duration, number, si
from .options import Asked
from .printing import LEVEL, Column, Shown, Unit, kilograms, kwh, listing, money, quantity, table, totals, word

if TYPE_CHECKING:
    from ..generation.images.predict import ImagePrediction
    from ..generation.prediction import GenerationPrediction
    from ..predictors.networks.prediction import Prediction
    from ..runs import Run
    from ..traffic import ServingSimulation


def predict(
    asked: Asked,
    shown: Shown,
    gpu: str = "",
    tree: bool = False,
    depth: int = 3,
    by_memory_level: bool = False,
    ncu: Path | None = None,
) -> None:
    """Predict time, power and energy of one iteration of a model on a GPU."""
    from ..api import predict as predict_network

    prediction = predict_network(gpu=gpu or None, **asked)
    if by_memory_level or ncu is not None:
        levels = prediction.by_memory_level(gpu)
        traffic = ""
        if ncu is not None:
            from ..hardware.ncu import read_counters

            rows = [
                [level, si(predicted, "B"), si(counted, "B"), f"{predicted / counted:.2f}" if counted else "-"]
                for level, (predicted, counted) in levels.compare_traffic(read_counters(ncu)).items()
            ]
            header = ["traffic", "predicted", "counted", "predicted / counted"]
            traffic = f"\n\n{table(header, rows, frozenset({1, 2, 3}))}"
        shown.tell(levels, lambda: f"{levels}{traffic}")
    else:
        text = (lambda: prediction.tree().to_text(depth)) if tree else (lambda: _prediction_text(prediction, shown.top))
        shown.tell(prediction, text, drawn=prediction.tree() if tree else prediction)


def _prediction_text(prediction: Prediction, top: int) -> str:
    interval = prediction.interval(LEVEL) if prediction.supports(LEVEL) else None
    quantities: list[tuple[str, str, Unit]] = [
        ("time", "time_s", "s"),
        ("power", "power_w", "W"),
        ("energy", "energy_j", "J"),
        ("energy-delay product", "edp_js", "Js"),
        ("throughput", "samples_per_s", lambda value: f"{number(value, 4)} samples/s"),
        ("memory needed", "memory_bytes", "B"),
    ]
    clock, held, throttled = prediction.clock_mhz, prediction.held_clock_mhz, ""
    if clock is not None and held is not None and held <= 0.99 * clock:
        throttled = f" (held to {held:.0f} MHz by its cap of {prediction.power_limit_w:g} W)"
    device, host = si(prediction.device_time_s, "s"), si(prediction.host_time_s, "s")
    bound = "host" if prediction.host_time_s > prediction.device_time_s else "device"
    composed = f"bound by the {bound}: device {device}, host {host}"
    if prediction.composition == "serial":  # on a CPU
        composed = f"operations {device}, between them {host}"
    parts = [
        f"{prediction.title}{throttled}",
        "",
        totals(prediction, interval, quantities, "per iteration"),
        *(["", str(prediction.coverage)] if prediction.uncovered else []),
        "",
        f"{composed}; predictor {prediction.predictor}, composition {prediction.composition}",
        "",
        _cost_table(prediction, top),
    ]
    if prediction.uncovered:
        listed = "\n".join(f"  {uncovered}" for uncovered in prediction.uncovered)
        parts += ["", f"not covered, and not in the totals:\n{listed}"]
    notes = [note for note in prediction.notes if note != str(prediction.coverage)]
    parts += ["", *(f"note: {note}" for note in notes)] if notes else []
    return "\n".join(parts)


def _cost_table(prediction: Prediction, top: int) -> str:
    from ..predictors.networks.costs import by_cost

    def share(of: Any) -> float:
        """Joules, or seconds where no energy is known."""
        cost: float | None = of.device_time_s if of.energy_j is None else of.energy_j
        return cost or 0.0

    costs = [cost for cost in by_cost(prediction.operations) if cost.source != "missing"]
    shown, rest = costs[: top or None], costs[top or len(costs) :]
    whole = share(prediction)
    columns = [
        Column("operation", lambda cost: operation_text(cost.operation), right=False),
        Column("calls", lambda cost: str(cost.count)),
        quantity("device time", "device_time_s", "s"),
        quantity("power", "power_w", "W"),
        quantity("energy", "energy_j", "J"),
        Column("share", lambda cost: f"{100 * share(cost) / whole:.1f} %"),
        word("bound by", "bound_by"),
        word("source", "source"),
    ]
    text = listing(shown, columns)
    if rest:
        unit, others = "s" if prediction.energy_j is None else "J", sum(map(share, rest))
        text += f"\nand {len(rest)} more operations: {si(others, unit)}, {100 * others / whole:.1f} %"
    return text


def run(asked: Asked, shown: Shown) -> None:
    """Predict a whole training run: hours, kilowatt-hours at the plug, price and carbon."""
    from ..runs.predict import predict_run

    found = predict_run(**{**asked, "optimizer": asked["optimizer"] or "adamw"})
    shown.tell(found, lambda: _run_text(found))


def _run_text(found: Run) -> str:
    interval = found.interval(LEVEL) if found.supports(LEVEL) else None
    quantities = (
        ("time", "time_s", duration),
        ("energy of the boards", "energy_j", kwh),
        ("energy at the plug", "wall_energy_j", kwh),
        ("cost", "cost", money),
        ("carbon", "carbon_kg", kilograms),
    )
    rate = "" if found.tokens_per_s is None else f", {found.tokens_per_s:,.0f} tokens/s"
    parts = [
        [part.name, duration(part.time_s), f"{100 * part.time_s / found.time_s:.1f} %", si(part.energy_j, "J")]
        for part in found.parts
    ]
    return "\n".join(
        [
            f"{titled(found.model, found.input_shape)}, {found.precision}, on {found.layout.gpus}x {found.gpu}",
            f"{found.steps:,} steps of {si(found.step_s, 's')}, {number(found.samples_per_s)} samples/s{rate}",
            "",
            totals(found, interval, quantities),
            "",
            table(["part", "time", "share", "boards"], parts, frozenset({1, 2, 3})),
            "",
            f"memory needed on each GPU: {si(found.memory_bytes, 'B')}",
            *(f"note: {note}" for note in found.notes),
        ]
    )


def generate(asked: Asked, shown: Shown, tree: bool = False, depth: int = 5) -> None:
    """Predict seconds, watts and joules per token of an engine that writes text with a language model."""
    from ..generation.generate import predict_generation

    found = predict_generation(**asked)
    shown.tell(found, lambda: found.decode.tree().summarized().to_text(depth) if tree else _generation_text(found))


def _generation_text(found: GenerationPrediction) -> str:
    quantities = (
        ("time to first token", "time_to_first_token_s", "s"),
        ("time per output token", "time_per_output_token_s", "s"),
        ("power", "power_w", "W"),
        ("energy per token", "energy_per_token_j", "J"),
        ("time per request", "latency_s", "s"),
        ("energy per request", "energy_per_request_j", "J"),
        ("tokens per second", "tokens_per_s", lambda value: f"{value:,.0f}"),
    )
    memory, images = found.memory, []
    if (read := found.reading_images) is not None:
        tokens = f"images: {found.image_tokens} tokens of each prompt"
        images = [f"{tokens}, read in {si(read.time_s, 's')} at {si(read.power_w, 'W')}"]
    return "\n".join(
        [
            f"{found.model}, {found.precision}, {found.tokens}, batch {found.batch} "
            f"({found.batching}), by {found.engine} on {found.boards}",
            "",
            totals(found, found.interval(LEVEL), quantities),
            "",
            f"memory of a GPU: {si(memory.weights_bytes, 'B')} of weights, {si(memory.cache_bytes, 'B')} of cache, "
            f"{si(memory.activations_bytes, 'B')} besides; {si(memory.usable_bytes, 'B')} to use, for a batch of up to "
            f"{found.largest_batch}",
            *images,
            f"a step that only decodes: {si(found.decode.time_s, 's')}, {si(found.decode.power_w, 'W')}; "
            f"one that reads prompts only: {si(found.prefill.time_s, 's')}, {si(found.prefill.power_w, 'W')}; "
            f"waiting for the engine: {si(found.overhead_s, 's')} a step",
            "",
            *(f"note: {note}" for note in found.notes),
        ]
    )


def simulate(asked: Asked, shown: Shown) -> None:
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
    shown.tell(found, lambda: _simulation_text(found))


def _simulation_text(found: ServingSimulation) -> str:
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


def image(asked: Asked, shown: Shown) -> None:
    """Predict seconds, watts and joules for each image or video that a diffusion pipeline makes."""
    from ..generation.images.predict import predict_image

    found = predict_image(**asked)
    shown.tell(found, lambda: _image_text(found))


def _image_text(found: ImagePrediction) -> str:
    parts = [
        (name, str(times), part.time_s, part.power_w, found.gpus * times * part.known_energy_j / found.batch)
        for name, times, part in found.parts
    ]
    whole = (f"per {found.made}", "", found.time_per_image_s, found.power_w, found.energy_per_image_j)
    rows = [
        [name, times, si(time_s, "s"), si(power_w, "W"), si(energy_j, "J")]
        for name, times, time_s, power_w, energy_j in (*parts, whole)
    ]
    head = (
        f"{found.model}, {found.size}, batch {found.batch}, {found.precision}, on {found.gpus}x {found.gpu}; "
        f"{si(found.weights_bytes, 'B')} of weights\n"
    )
    costs = table(["part", "times", "each", "power", f"joules per {found.made}"], rows, frozenset({1, 2, 3, 4}))
    return "\n".join([head, costs, *(f"note: {note}" for note in found.notes)])
