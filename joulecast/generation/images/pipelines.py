"""Pipelines of images and videos by name: text encoders, denoiser, autoencoder, and default numbers of steps.

Their sizes stand in pipelines.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...extraction.models.spelling import spelled_as
from ...operations.network import Network
from .decoders import Autoencoder, CausalDecoder, ConditionedDecoder, DeepCompression, GroupedDecoder
from .denoisers import CrossDiT, LinearDiT, UNet, VideoDiT
from .joint_denoisers import JointDiT, JointVideoDiT
from .layers import Layers
from .sequence_parallel import ONE_GPU, Split


@dataclass(frozen=True)
class TextEncoder:
    """A transformer that reads a prompt once."""

    name: str
    layers: int
    hidden: int
    heads: int
    head_size: int
    inner: int  # Features between the layers of a feed-forward block
    vocabulary: int
    tokens: int  # Number of tokens to which each prompt is padded
    gated: bool = False  # Whether half of the feed-forward's first layer gates the other half (T5 1.1)
    cached_heads: int | None = None  # Number of heads of keys and values; None for as many as query heads

    def network(self, prompts: int, precision: str) -> Network:
        """The operations that encode a number of prompts."""
        found, bias, norm = Layers(precision), not self.gated, "rms_norm" if self.gated else "layer_norm"
        shape, wide = (prompts, self.tokens, self.hidden), (prompts, self.tokens, self.inner)
        queries = (prompts, self.heads, self.tokens, self.head_size)
        keys = (prompts, self.cached_heads or self.heads, *queries[2:])
        sizes = {"num_embeddings": self.vocabulary, "embedding_dim": self.hidden}
        found.add("embeddings", "embedding", (prompts, self.tokens), **sizes)
        layer = found.within("layers.{}", self.layers)
        for place in ("norm1", "norm2"):
            layer.add(place, norm, shape)
        for name, heads in (("q", self.heads), ("k", keys[1]), ("v", keys[1])):
            layer.linear(f"attention.{name}", shape, heads * self.head_size, bias=bias)
        layer.attention("attention", queries, keys)
        layer.linear("attention.out", (*shape[:-1], self.heads * self.head_size), self.hidden, bias=bias)
        layer.add("", "add", shape, shape, each=2)
        for name in ("fc1", "gate")[: 2 if self.gated else 1]:
            layer.linear(f"mlp.{name}", shape, self.inner, bias=bias)
        layer.add("mlp.act", "gelu", wide)
        if self.gated:
            layer.add("mlp", "mul", wide, wide)
        layer.linear("mlp.fc2", wide, self.hidden, bias=bias)
        found.add("final_norm", norm, shape)
        return found.network(self.name, {"input_ids": shape[:-1]})


@dataclass(frozen=True)
class ImagePipeline:
    """A pipeline that generates an image or a video from a prompt."""

    source: str
    encoders: tuple[TextEncoder, ...]  # The text encoders, which read the prompt
    # The network that removes noise from the latents. `network` lists the operations of a step for a number of images
    # (with guidance each counts twice) and their patches: rows and columns, for a video latent frames, rows, columns.
    denoiser: UNet | CrossDiT | LinearDiT | VideoDiT | JointDiT | JointVideoDiT
    autoencoder: Autoencoder  # The decoder that computes pixels from the latents
    text_tokens: int  # Number of tokens of the prompt that the denoiser reads
    steps: int
    guided: bool = True  # Whether each step is also computed for an empty prompt (classifier-free guidance)
    patch: int = 2  # Side of the denoiser's patches in latents
    height: int = 1024  # Default height and width in pixels
    width: int = 1024
    frames: int | None = None  # Default number of frames of a video; None for images
    frame_scale: int = 1  # Number of frames for each latent frame after the first, which stands for one frame
    patch_frames: int = 1  # Number of latent frames of a patch
    in_turn: bool = False  # Whether the prompt and the empty prompt are computed one after the other, not as one batch

    @property
    def multiple(self) -> int:
        """Height and width of an image are multiples of this number of pixels."""
        return self.patch * self.autoencoder.scale

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
        grid: tuple[int, ...] = (height // self.multiple, width // self.multiple)
        size: tuple[int, ...] = (height, width)
        if frames is not None:
            latent = 1 + (frames - 1) // self.frame_scale
            grid, size = (-(-latent // self.patch_frames), *grid), (frames, *size)
        grid = split.grid(grid)
        text = split.text_tokens(self.text_tokens)
        denoiser = self.denoiser.network(prompts // self.forwards, grid, text, precision)
        return [
            *(encoder.network(prompts, precision) for encoder in self.encoders),
            split.network(denoiser, grid, self.text_tokens),
            self.autoencoder.network(batch if frames is None else 1, size, precision),
        ]


_TABLES = tomllib.loads(Path(__file__).with_name("pipelines.toml").read_text(encoding="utf-8"))
_KINDS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(JointDiT, CrossDiT, LinearDiT, VideoDiT, JointVideoDiT, UNet),
        *(Autoencoder, DeepCompression, CausalDecoder, ConditionedDecoder, GroupedDecoder),
    )
}


def encoder(name: str, tokens: int) -> TextEncoder:
    """A text encoder of the table, for prompts that are padded to a number of tokens."""
    return TextEncoder(name, tokens=tokens, **_TABLES["encoders"][name])


def _pipeline(row: Mapping[str, Any]) -> ImagePipeline:
    parts = {name: dict(row[name]) for name in ("denoiser", "autoencoder")}
    made = {name: _KINDS[sizes.pop("kind")](**sizes) for name, sizes in parts.items()}
    return ImagePipeline(**{**row, "encoders": tuple(encoder(*each) for each in row["encoders"].items()), **made})


PIPELINES: Mapping[str, ImagePipeline] = {name: _pipeline(row) for name, row in _TABLES["pipelines"].items()}
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
