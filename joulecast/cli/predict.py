"""What one way to run something costs: `joulecast predict`, `run`, `generate`, `simulate` and `image`."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..units import si
from .options import Asked
from .printing import Shown, table


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
        levels = prediction.by_memory_level()
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
        parts = prediction.tree() if tree else None
        shown.tell(parts or prediction, lambda: parts.to_text(depth) if parts else prediction.described(shown.top))


def run(asked: Asked, shown: Shown) -> None:
    """Predict a whole training run: hours, kilowatt-hours at the plug, price and carbon."""
    from ..runs.predict import predict_run

    shown.tell(predict_run(**{**asked, "optimizer": asked["optimizer"] or "adamw"}))


def generate(asked: Asked, shown: Shown, tree: bool = False, depth: int = 5) -> None:
    """Predict seconds, watts and joules per token of an engine that writes text with a language model."""
    from ..generation.generate import predict_generation

    found = predict_generation(**asked)
    parts = found.decode.tree().summarized() if tree else None
    shown.tell(parts or found, lambda: parts.to_text(depth) if parts else found.described())


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
    shown.tell(simulate_serving(**{**asked, "gpu": gpu or other}))


def image(asked: Asked, shown: Shown) -> None:
    """Predict seconds, watts and joules for each image or video that a diffusion pipeline makes."""
    from ..generation.images.predict import predict_image

    shown.tell(predict_image(**asked))
