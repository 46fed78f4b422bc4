"""Pipelines of images and videos by name: text encoders, denoiser, autoencoder, and default numbers of steps.

Their sizes stand in pipelines.toml.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...extraction.models.spelling import spelled_as
from ...operations.network import Network
from .decoders import pieces
from .parts import load
from .sequence_parallel import ONE_GPU, Split


@dataclass(frozen=True)
class ImagePipeline:
    """A pipeline that generates an image or a video from a prompt."""

    name: str
    source: str
    encoders: Mapping[str, int]  # Each text encoder, and the number of tokens to which it pads prompts
    # Class and settings of the network that removes noise from the latents. A step is one forward for a number of
    # images (with guidance each counts twice) and their patches: rows and columns, and latent frames of a video.
    denoiser: Mapping[str, Any]
    decoder: str  # Name of the decoder that computes pixels from the latents
    text_tokens: int  # Number of tokens of the prompt that the denoiser reads
    steps: int
    guided: bool = True  # Whether each step is also computed for an empty prompt (classifier-free guidance)
    patch: int = 2  # Side of the denoiser's patches in latents
    scale: int = 8  # Pixels per latent along each side
    height: int = 1024  # Default height and width in pixels
    width: int = 1024
    frames: int | None = None  # Default number of frames of a video; None for images
    frame_scale: int = 1  # Number of frames for each latent frame after the first, which stands for one frame
    patch_frames: int = 1  # Number of latent frames of a patch
    in_turn: bool = False  # Whether the prompt and the empty prompt are computed one after the other, not as one batch

    @property
    def multiple(self) -> int:
        """Height and width of an image are multiples of this number of pixels."""
        return self.patch * self.scale

    @property
    def heads(self) -> int:
        """Number of heads of the denoiser's attention that GPUs can share; 0 for a U-Net."""
        return int(self.denoiser.get("num_attention_heads", 0))

    @property
    def forwards(self) -> int:
        """Number of forwards of the denoiser in each step."""
        return 2 if self.guided and self.in_turn else 1

    def networks(
        self, batch: int, frames: int | None, height: int, width: int, precision: str, split: Split = ONE_GPU
    ) -> list[Network]:
        """Text encoders, one forward of the denoiser, and the decoder: of all images, or of one video.

        Videos are decoded one after the other (`enable_slicing`), which takes no longer and needs less memory.

        Args:
            batch: Number of images or videos that are generated together.
            frames: Frames of a video; None for images.
            height: Height in pixels.
            width: Width in pixels.
            precision: Precision of all parts.
            split: How GPUs share the denoiser, of which each of them computes its part.
        """
        prompts = batch * (2 if self.guided else 1)
        latents: tuple[int, ...] = (height // self.scale, width // self.scale)
        grid: tuple[int, ...] = (height // self.multiple, width // self.multiple)
        if frames is not None:
            latent = 1 + (frames - 1) // self.frame_scale
            latents, grid = (latent, *latents), (-(-latent // self.patch_frames), *grid)
        return [
            *(encoded(name, prompts, tokens, precision) for name, tokens in self.encoders.items()),
            self.denoised(prompts // self.forwards, grid, precision, split),
            self.decoded(batch if frames is None else 1, latents, precision),
        ]

    def denoised(self, images: int, grid: tuple[int, ...], precision: str, split: Split = ONE_GPU) -> Network:
        """One GPU's operations of a step for a number of images, and the patches of each."""
        own = split.grid(grid)
        frames, rows, columns = own if len(own) == 3 else (1, *own)
        tokens, text = math.prod(own), split.text_tokens(self.text_tokens)
        sizes = {"batch": images, "frames": frames, "rows": rows, "columns": columns, "tokens": tokens, "text": text}
        calls = load(self.name).calls(sizes, precision)
        whole = Network.of_calls(calls, name="denoiser", input_shape={"patches": (images, *own)})
        return split.network(whole, tokens, self.text_tokens)

    def decoded(self, images: int, latents: tuple[int, ...], precision: str) -> Network:
        """The operations that decode latents of this height and width, and of these frames."""
        part, calls = load(self.decoder), []
        for piece, (rows, columns), times in pieces(self.decoder, latents):
            calls += part.calls({"batch": images, "rows": rows, "columns": columns}, precision, piece) * times
        return Network.of_calls(calls, name="vae", input_shape={"latents": (images, *latents)})


def encoded(name: str, prompts: int, tokens: int, precision: str) -> Network:
    """The operations of a text encoder for prompts that are padded to a number of tokens."""
    calls = load(name).calls({"batch": prompts, "tokens": tokens}, precision)
    return Network.of_calls(calls, name=name, input_shape={"input_ids": (prompts, tokens)})


_TABLES = tomllib.loads(Path(__file__).with_name("pipelines.toml").read_text(encoding="utf-8"))
PIPELINES: Mapping[str, ImagePipeline] = {
    name: ImagePipeline(name, scale=_TABLES["decoders"][row["decoder"]].get("scale", 8), **row)
    for name, row in _TABLES["pipelines"].items()
}
"""Name -> pipeline."""


def spelled_pipeline(name: str) -> str:
    """The name of the pipeline that a name means, however it is spelled; the name itself if it means none."""
    return spelled_as(name, {each: row.source for each, row in PIPELINES.items()})


def refuse_pipeline(name: str) -> None:
    """Raise the error of a pipeline where one model is asked for; any other name is no matter of this function."""
    if (pipeline := spelled_pipeline(name)) in PIPELINES:
        raise InputError(
            "this pipeline makes images or videos, in many calls of several models",
            given=name,
            allowed="the name of one model, which `joulecast models` lists",
            hint=f'joulecast image {pipeline} --gpu "H100 SXM"; `predict_image` in Python and over HTTP',
        )
