"""predict_image: time, power and energy of images, from text encoders, denoising steps and decoding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ...errors import InputError, named, unknown_name
from ...extraction.models.spelling import known_as, known_names
from ...hardware import GPU
from ...hardware.host import Host, find_host
from ...operations.attributes import ELEMENT_BYTES
from ...operations.inputs import require_positive_integer
from ...operations.network import Network
from ...predictors.board.profile import Calibrated, find_profile
from ...predictors.networks.composition import Execution
from ...predictors.networks.memory import MemoryNeed, memory_need, shortage
from ...predictors.networks.prediction import Prediction
from ...predictors.networks.predictor import at_clock
from ...predictors.physics.variants import refuse_precisions
from ...rendering.answers import Answer, Table
from ...rendering.described import Description, Grid
from ...rendering.pictures import Bar, Picture, bars
from ...units import si
from ...zoo import find_predictor
from ..intervals import Listed, normal_quantile
from ..parallel import counted_name_notes, find_gpus
from .layers import parameters_of
from .pipelines import PIPELINES, spelled_pipeline
from .sequence_parallel import DividedNetwork, Split

_PRECISIONS = ("bf16", "fp16", "fp32")
_SIGMAS = {1: (0.084, 0.097, 0.062), 2: (0.101, 0.089, 0.093), 4: (0.089, 0.066, 0.096), 8: (0.130, 0.094, 0.123)}
"""Number of GPUs -> standard deviations of the logarithms of published over predicted time, power and energy: of 491
runs of 6 pipelines on H100 and B200, each pipeline counted alike. Those of five pipelines hold 91, 89 and 86 % of the
runs of the sixth (benchmarks/IMAGES.md)."""


@dataclass(frozen=True)
class ImageInterval(Listed):
    """The interval of each quantity, as (low, high).

    Args:
        time_per_image_s: Interval of the seconds per image.
        power_w: Interval of the mean power of all boards together in watts.
        energy_per_image_j: Interval of the joules per image.
        basis: What the intervals are based on, in words.
    """

    time_per_image_s: tuple[float, float]
    power_w: tuple[float, float]
    energy_per_image_j: tuple[float, float]
    basis: str = "errors of published runs of other pipelines on one to eight GPUs"


@dataclass(frozen=True, repr=False)
class ImagePrediction(Answer):
    """Time, power and energy of a pipeline that generates images or videos.

    Args:
        model: Name of the pipeline.
        gpu: Full name of the GPU.
        gpus: Number of GPUs that share each image or video.
        batch: Number of images or videos that are generated together.
        frames: Frames of a video; None for images.
        height, width: Height and width of an image in pixels.
        steps: Number of steps of the denoiser.
        precision: Precision of all parts.
        time_per_batch_s: Seconds from the prompts to the pixels of all images.
        time_per_image_s: Seconds of the batch divided by its images.
        power_w: Mean power of all boards together in watts.
        energy_per_image_j: Joules of all boards per image.
        weights_bytes: Bytes of the weights of all parts.
        text: Prediction of each text encoder, which runs once for the batch.
        denoise: Prediction of one forward of the denoiser.
        decode: Prediction of the decoder of the autoencoder, which runs once for all images, or for each video.
        denoise_calls: Number of forwards of the denoiser: one for each step, or two where the prompt and the empty
            prompt are computed one after the other.
        decode_calls: Number of forwards of the decoder.
        notes: Warnings about this prediction.
    """

    model: str
    gpu: str
    gpus: int
    batch: int
    frames: int | None
    height: int
    width: int
    steps: int
    precision: str
    time_per_batch_s: float
    time_per_image_s: float
    power_w: float
    energy_per_image_j: float
    weights_bytes: int
    text: tuple[Prediction, ...] = field(repr=False)
    denoise: Prediction = field(repr=False)
    decode: Prediction = field(repr=False)
    denoise_calls: int = 1
    decode_calls: int = 1
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        boards = self.gpu if self.gpus == 1 else f"{self.gpus}x {self.gpu}"
        return (
            f"{self.model}, {self.size}, {self.steps} steps, batch {self.batch}, {self.precision}, on "
            f"{boards}: {si(self.time_per_image_s, 's')} and {si(self.energy_per_image_j, 'J')} per {self.made}, "
            f"{si(self.power_w, 'W')}"
        )

    @property
    def made(self) -> str:
        """The kind of output: "image" or "video"."""
        return "image" if self.frames is None else "video"

    @property
    def parts(self) -> list[tuple[str, int, Prediction]]:
        """Each part: its name, the number of its forwards, and the prediction of one forward on one GPU."""
        text = ((each.network, 1, each) for each in self.text)
        return [*text, ("denoiser", self.denoise_calls, self.denoise), ("decoder", self.decode_calls, self.decode)]

    def _table(self) -> Table:
        """The parts: their forwards, and seconds, watts and joules of one forward on one GPU."""
        rows = [(name, times, each.time_s, each.power_w, each.energy_j) for name, times, each in self.parts]
        return Table(("part", "times", "time_s", "power_w", "energy_j"), rows)

    def _joules(self, times: int, part: Prediction) -> float:
        """Joules of all boards for each image, of a part with so many forwards."""
        return self.gpus * times * part.known_energy_j / self.batch

    def described(self) -> Description:
        """What a terminal and a notebook show: seconds, watts and joules of each part."""
        parts = [
            (name, str(times), part.time_s, self.gpus * part.known_power_w, self._joules(times, part))
            for name, times, part in self.parts
        ]
        whole = (f"per {self.made}", "", self.time_per_image_s, self.power_w, self.energy_per_image_j)
        rows = [
            [name, times, si(time_s, "s"), si(power_w, "W"), si(energy_j, "J")]
            for name, times, time_s, power_w, energy_j in (*parts, whole)
        ]
        title = (
            f"{self.model}, {self.size}, batch {self.batch}, {self.precision}, on {self.gpus}x {self.gpu}; "
            f"{si(self.weights_bytes, 'B')} of weights"
        )
        header = ["part", "times", "each", "power", f"joules per {self.made}"]
        return Description(title, [Grid(header, rows, {1, 2, 3, 4})], self.notes)

    def _picture(self) -> Picture:
        joules = [(name, self._joules(times, part)) for name, times, part in self.parts]
        items = [Bar(name, value, si(value, "J")) for name, value in joules]
        return Picture(bars(items, f"Energy per {self.made}: {self.model} on {self.gpus}x {self.gpu}"))

    def interval(self, level: float = 0.9) -> ImageInterval:
        """Intervals of time, power and energy of an image or video, from errors of published runs.

        Args:
            level: The share of runs, above 0 and below 1.

        Raises:
            InputError: The level is not between 0 and 1.
        """
        widths = [math.exp(normal_quantile(level) * sigma) for sigma in _SIGMAS[self.gpus]]
        values = self.time_per_image_s, self.power_w, self.energy_per_image_j
        time_s, (low_w, high_w), energy_j = ((each / w, each * w) for each, w in zip(values, widths, strict=True))
        most_w = self.gpus * (self.denoise.power_limit_w or math.inf)
        power_w = max(low_w, self.gpus * self.denoise.idle_power_w), min(high_w, max(most_w, self.power_w))
        return ImageInterval(level, time_s, power_w, energy_j)

    @property
    def size(self) -> str:
        """Width and height, and the frames of a video, in words."""
        pixels = f"{self.width} x {self.height}"
        return pixels if self.frames is None else f"{pixels}, {self.frames} frames"

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain lists and dictionaries; quantities in SI units."""
        parts = {"text", "denoise", "decode", "notes"}
        return {
            **{each.name: getattr(self, each.name) for each in fields(self) if each.name not in parts},
            "text": [each.to_dict(details=False) for each in self.text],
            "denoise": self.denoise.to_dict(details=False),
            "decode": self.decode.to_dict(details=False),
            "interval": self.interval().to_dict(),
            "notes": list(self.notes),
        }


def predict_image(
    model: str,
    gpu: str | GPU | None,
    *,
    batch: int = 1,
    frames: int | None = None,
    height: int | None = None,
    width: int | None = None,
    steps: int | None = None,
    precision: str = "bf16",
    gpus: int | None = None,
    ulysses: int | None = None,
    ring: int | None = None,
    clock: float | None = None,
    power_limit_w: float | None = None,
    execution: str = "eager",
    host: str | float | Path | Host | None = None,
    calibration: Calibrated | None = None,
    predictor: str | Path | None = None,
) -> ImagePrediction:
    """Predict time, power and energy of images or videos that a diffusion pipeline generates, as `diffusers` runs it.

    A video counts as one image: seconds and joules per image are those of a whole video.

    Args:
        model: sdxl, sd_1_5, sd3_5_large, sd3_5_medium, flux_1_dev, flux_1_schnell, pixart_sigma, hunyuan_dit,
            sana_1_6b, sana_1_5_1_6b or sana_1_5_4_8b; for videos wan_2_1_1_3b, wan_2_1_14b, cogvideox_2b,
            cogvideox_5b, cogvideox1_5_5b or hunyuan_video.
        gpu: Name or alias from the catalogue, or the path of a TOML file that describes a GPU; "2x H100 SXM" are two.
        batch: Number of images or videos that are generated together.
        frames: Frames of a video; None for the pipeline's default.
        height: Height in pixels; None for the pipeline's default: 1024 for most images, 480 for videos.
        width: Width in pixels; None for the pipeline's default: 1024 for most images, 832 or 720 for videos.
        steps: Number of steps of the denoiser; None for the pipeline's default.
        precision: Precision of all parts: bf16, fp16 or fp32.
        gpus: Number of GPUs that share the tokens of each image or video: 1, 2, 4 or 8; one for sdxl and
            sd_1_5. None for the number in `gpu`.
        ulysses: Number of GPUs that exchange tokens for attention heads; None for as many as can.
        ring: Number of groups of such GPUs that pass keys and values on; None for gpus / ulysses.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap in watts; None for the board's default.
        execution: "eager", "graph" or "compiled"; see `joulecast.predict`.
        host: The machine that launches operations; see `joulecast.predict`.
        calibration: What was measured on the board; see `joulecast.predict`.
        predictor: A zoo name, the folder of an entry, or models:/NAME@ALIAS; None for the GPU's default.

    Returns:
        Seconds, watts and joules per image, with a step of the denoiser and the other parts.

    Raises:
        UnknownNameError: No such pipeline, GPU, execution, precision or predictor.
        InputError: Sizes that cannot be; or the GPU lacks the memory, the precision, the clock or the cap.
        ZooError, UncoveredError: See `joulecast.predict`.

    Examples:
        >>> image = predict_image("sd3_5_medium", "H100 SXM")
        >>> image.steps
        28
    """
    model = spelled_pipeline(model)
    command = "models image` lists them" if known_as(model) not in known_names() else f"predict {model}` predicts it"
    pipeline = named("image pipeline", model, PIPELINES, hint=f"`joulecast {command}")
    number, board = find_gpus(gpu)
    if gpus is not None and number not in (1, gpus):
        raise InputError(
            "the GPUs have two numbers",
            given=f"gpu={gpu!r}, gpus={gpus!r:.60}",
            allowed="one number, in gpu or as gpus",
            hint=f"leave gpus out for all {number}, or give gpu={board.aliases[0]!r}",
        )
    if precision not in _PRECISIONS:
        raise unknown_name("precision of a pipeline", precision, _PRECISIONS)
    split = Split.of(number if gpus is None else gpus, ulysses, ring, pipeline.heads, board)
    count = pipeline.steps if steps is None else steps
    frames = pipeline.frames if frames is None else frames
    height = pipeline.height if height is None else height
    width = pipeline.width if width is None else width
    _refuse_sizes(model, {"batch": batch, "steps": count}, {"height": height, "width": width}, frames)
    networks = pipeline.networks(batch, frames, height, width, precision, split)
    weights = _refuse_shortage(model, networks, board, precision)
    found = find_predictor(board, "inference", predictor).under(
        Execution.of(execution, find_host(host), find_profile(calibration))
    )
    predictions = []
    for network in networks:
        refuse_precisions(board, network.operations)
        prepared = DividedNetwork(found, network, board.checked_power_limit_w(power_limit_w))
        predictions.append(at_clock(prepared, clock).prediction())
    *text, denoise, decode = predictions
    calls = [*(1 for _ in text), count * pipeline.forwards, 1 if frames is None else batch]
    time_s = sum(number * each.time_s for number, each in zip(calls, predictions, strict=True))
    # Each GPU reads the prompt and decodes; the others would only wait.
    energy_j = split.gpus * sum(number * each.known_energy_j for number, each in zip(calls, predictions, strict=True))
    return ImagePrediction(
        model=model,
        gpu=board.name,
        gpus=split.gpus,
        batch=batch,
        frames=frames,
        height=height,
        width=width,
        steps=count,
        precision=precision,
        time_per_batch_s=time_s,
        time_per_image_s=time_s / batch,
        power_w=energy_j / time_s,
        energy_per_image_j=energy_j / batch,
        weights_bytes=weights,
        text=tuple(text),
        denoise=denoise,
        decode=decode,
        denoise_calls=calls[-2],
        decode_calls=calls[-1],
        notes=(
            *counted_name_notes(gpu),
            "predicted from the operations of diffusers 0.35.2, without those of the scheduler",
            *denoise.notes,
        ),
    )


def _refuse_sizes(model: str, counts: Mapping[str, Any], sides: Mapping[str, Any], frames: Any) -> None:
    pipeline = PIPELINES[model]
    if frames is not None and pipeline.frames is None:
        videos = [name for name, each in PIPELINES.items() if each.frames is not None]
        raise InputError(
            f"{model} generates images, which have no frames",
            given=frames,
            allowed=", ".join(videos),
            hint="leave frames out, or give one of these",
        )
    for name, value in {**counts, **sides, "frames": 1 if frames is None else frames}.items():
        require_positive_integer(name, value)
    for name, value in sides.items():
        if value % pipeline.multiple:
            raise InputError(
                f"the {name} of an image has to be a multiple of the size of its patches",
                given=value,
                allowed=f"multiples of {pipeline.multiple}",
                hint=f"give {max(1, round(value / pipeline.multiple)) * pipeline.multiple}",
            )
    scale = pipeline.frame_scale
    if frames is not None and (frames - 1) % scale:
        raise InputError(
            "latent frames do not stand for this number of frames",
            given=frames,
            allowed=f"1, {1 + scale}, {1 + 2 * scale}, ...: one more than a multiple of {scale}",
            hint=f"give {pipeline.frames}",
        )


def _refuse_shortage(model: str, networks: Sequence[Network], gpu: GPU, precision: str) -> int:
    """Bytes of all weights, checked against the memory of the GPU. They stay there while the largest part runs."""
    weights = round(sum(map(parameters_of, networks)) * ELEMENT_BYTES[precision])
    largest = max(memory_need(network).activations_bytes for network in networks)
    lacking = shortage(MemoryNeed(weights, largest), gpu)
    if lacking:
        raise InputError(
            f"{model} does not fit into the memory of {gpu.name}",
            given=lacking,
            allowed="what its memory holds",
            hint="choose a GPU with more memory, smaller images, or fewer at once",
        )
    return weights
