"""Makes the templates of the parts of image pipelines: `python benchmarks/template_parts.py [NAME ...]`.

Needs diffusers 0.35.2 and transformers. NAME is that of an encoder, decoder or pipeline of pipelines.toml; without one,
all are made. Each part is traced on the meta device at some sizes, in bf16 as its weights are loaded, and a template is
fitted to the traces, and compared with a further one.

Where an operator reads elements that do not lie side by side in memory, the template says so: in the path of a copy, or
by a further copy (`layers.strided_cycles`).
"""

from __future__ import annotations

import json
import lzma
import random
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from template_fit import Sample, fit
from template_layout import LayoutRecorder, recording_layout
from template_version import maker

from joulecast.errors import ExtractionError
from joulecast.extraction.cache import digest, library_version
from joulecast.extraction.job import Job
from joulecast.extraction.models.torchvision_models import import_torchvision
from joulecast.extraction.traced_models import traced
from joulecast.generation.images import parts
from joulecast.generation.images.layers import JOINED, TRANSPOSED
from joulecast.generation.images.pipelines import PIPELINES
from joulecast.operations.attributes import HALF_PRECISIONS
from joulecast.operations.inputs import Input, Inputs
from joulecast.operations.operation import Operation

import_torchvision()  # before transformers imports it

import diffusers  # noqa: E402
import transformers  # noqa: E402

TABLES = tomllib.loads((Path(parts.__file__).parent / "pipelines.toml").read_text(encoding="utf-8"))
FITTED = 3
"""Number of traces that a template is fitted to."""
LARGEST = {"batch": 7, "frames": 9, "rows": 40, "columns": 40, "text": 90, "tokens": 77}
PIECES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "AutoencoderKLWan": {"first": (1, 0), "second": (2, 1), "later": (3, 2)},
    "AutoencoderKLCogVideoX": {"1": (1, 0), "2": (2, 0), "3": (3, 0), "later": (4, 2)},
    "AutoencoderKLHunyuanVideo": {str(frames): (frames, 0) for frames in range(1, 6)},
}
"""Decoder of videos -> its pieces: latent frames that are decoded, and how many of them earlier pieces have decoded."""

Shapes = Mapping[str, tuple[int, ...]]
"""Name of an input -> shape. What stands behind a dot is a key of a dictionary, or a place in a tuple."""


def _unet(n: Any, c: Any) -> Shapes:
    side = 2 ** (len(c.block_out_channels) - 1)
    further = {"added_cond_kwargs.text_embeds": (n.batch, 1280), "added_cond_kwargs.time_ids": (n.batch, 6)}
    return {
        "sample": (n.batch, c.in_channels, side * n.rows, side * n.columns),
        **_read(n, c.cross_attention_dim),
        **(further if c.addition_embed_type else {}),
    }


def _read(n: Any, features: int) -> Shapes:
    """A text with so many features of a token, and the time step."""
    return {"encoder_hidden_states": (n.batch, n.text, features), "timestep": (n.batch,)}


def _pooled(n: Any, c: Any) -> Shapes:
    """A text as one vector and, for models that were distilled with it, the strength of guidance."""
    guidance = {"guidance": (n.batch,)} if getattr(c, "guidance_embeds", False) else {}
    return {"pooled_projections": (n.batch, c.pooled_projection_dim), **guidance}


def _angles(n: Any, c: Any) -> Shapes:
    return {f"image_rotary_emb.{i}": (n.tokens, c.attention_head_dim) for i in (0, 1)}


def _latents(n: Any, channels: int, patch: int = 2) -> tuple[int, ...]:
    return (n.batch, channels, patch * n.rows, patch * n.columns)


INPUTS: Mapping[str, Callable[[Any, Any], Shapes]] = {
    "UNet2DConditionModel": _unet,
    "SD3Transformer2DModel": lambda n, c: {
        "hidden_states": _latents(n, c.in_channels),
        **_read(n, c.joint_attention_dim),
        **_pooled(n, c),
    },
    "FluxTransformer2DModel": lambda n, c: {
        "hidden_states": (n.batch, n.tokens, c.in_channels),
        **_read(n, c.joint_attention_dim),
        **_pooled(n, c),
        "img_ids": (n.tokens, 3),
        "txt_ids": (n.text, 3),
    },
    "PixArtTransformer2DModel": lambda n, c: {
        "hidden_states": _latents(n, c.in_channels),
        **_read(n, c.caption_channels),
        "encoder_attention_mask": (n.batch, n.text),
        "added_cond_kwargs.resolution": (n.batch, 2),
        "added_cond_kwargs.aspect_ratio": (n.batch, 1),
    },
    "HunyuanDiT2DModel": lambda n, c: {
        "hidden_states": _latents(n, c.in_channels),
        "encoder_hidden_states": (n.batch, 77, c.cross_attention_dim),
        "text_embedding_mask": (n.batch, 77),
        "encoder_hidden_states_t5": (n.batch, 256, c.cross_attention_dim_t5),
        "text_embedding_mask_t5": (n.batch, 256),
        "timestep": (n.batch,),
        **_angles(n, c),
    },
    "SanaTransformer2DModel": lambda n, c: {
        "hidden_states": _latents(n, c.in_channels, 1),
        **_read(n, c.caption_channels),
        "encoder_attention_mask": (n.batch, n.text),
    },
    "WanTransformer3DModel": lambda n, c: {
        "hidden_states": (n.batch, c.in_channels, n.frames, 2 * n.rows, 2 * n.columns),
        **_read(n, c.text_dim),
    },
    "CogVideoXTransformer3DModel": lambda n, c: {
        "hidden_states": (n.batch, (c.patch_size_t or 1) * n.frames, c.in_channels, 2 * n.rows, 2 * n.columns),
        **_read(n, c.text_embed_dim),
        **(_angles(n, c) if c.use_rotary_positional_embeddings else {}),
    },
    "HunyuanVideoTransformer3DModel": lambda n, c: {
        "hidden_states": (n.batch, c.in_channels, n.frames, 2 * n.rows, 2 * n.columns),
        **_read(n, c.text_embed_dim),
        "encoder_attention_mask": (n.batch, n.text),
        **_pooled(n, c),
    },
}
"""Class of a denoiser -> shapes of its inputs, from sizes and its configuration."""


class Model(torch.nn.Module):
    """A model on the meta device as its weights are loaded in bf16, and a method that takes inputs by flat names."""

    def __init__(self, settings: Mapping[str, Any], method: str) -> None:
        super().__init__()
        settings = dict(settings)
        name, self.method = settings.pop("class"), method
        with torch.device("meta"):
            if hasattr(diffusers, name):
                self.model = getattr(diffusers, name)(**settings)
            else:
                cls = getattr(transformers, name)
                self.model = cls(cls.config_class(**settings))
        wide = getattr(self.model, "_keep_in_fp32_modules", None) or () if hasattr(diffusers, name) else ()
        for path, parameter in self.model.named_parameters():
            if not set(wide) & set(path.split(".")):
                parameter.data = parameter.data.to(torch.bfloat16)
        if hasattr(diffusers, name) and not wide:
            self.model.to(torch.bfloat16)
        self.model.use_framewise_decoding = False  # of HunyuanVideo's tiles, of which one is traced

    def forward(self, **inputs: torch.Tensor) -> Any:
        """Call the method."""
        given: dict[str, Any] = {}
        for name, value in inputs.items():
            first, _, rest = name.partition(".")
            if rest:
                given.setdefault(first, {})[rest] = value
            else:
                given[first] = value
        places = {name: tuple(of.values()) for name, of in given.items() if isinstance(of, dict) and "0" in of}
        return getattr(self.model, self.method)(**given | places)

    def tell(self, sizes: Any) -> None:
        """Set the sides for which positions are stored, so that the forward does not compute them anew."""
        for each in self.model.modules():
            place = getattr(each, "pos_embed", getattr(each, "pos_embedding", None))
            if isinstance(place, torch.Tensor) and not getattr(each, "pos_embed_max_size", None):
                is_video = hasattr(each, "sample_frames")
                shape = (1, sizes.tokens + (sizes.text if is_video else 0), place.shape[-1])
                stored = torch.empty(shape, dtype=place.dtype, device="meta")
                if is_video:
                    each.sample_frames = (sizes.frames - 1) * each.temporal_compression_ratio + 1
                    each.sample_height, each.sample_width = 2 * sizes.rows, 2 * sizes.columns
                    each.max_text_seq_length, each.pos_embedding = sizes.text, stored
                else:
                    each.height, each.width, each.pos_embed = sizes.rows, sizes.columns, stored


class Maker:
    """Makes the templates of one part."""

    def __init__(self, name: str) -> None:
        self.name = name
        kind = next(kind for kind in ("encoders", "decoders", "pipelines") if name in TABLES[kind])
        self.settings = {key: value for key, value in TABLES[kind][name].items() if key != "scale"}
        self.sizes = {
            "encoders": ("batch", "tokens"),
            "decoders": ("batch", "rows", "columns"),
            "pipelines": ("batch", "frames", "rows", "columns", "tokens", "text"),
        }[kind]
        # Text encoders, and denoisers that compute a prompt and an empty one as one batch, read two or more.
        self.alone = kind == "decoders"
        if kind == "pipelines":
            pipeline = PIPELINES[name]
            self.sizes = tuple(size for size in self.sizes if size != "frames" or pipeline.frames is not None)
            self.settings, self.alone = dict(pipeline.denoiser), not pipeline.guided or pipeline.in_turn
        self.model = Model(self.settings, "decode" if kind == "decoders" else "forward").eval()
        self.operators: set[str] = set()

    def save(self) -> None:
        """Write the templates of all pieces."""
        rows: list[Any] = []
        pieces: dict[str, list[int]] = {}
        for piece, frames in PIECES.get(self.settings["class"], {"": (0, 0)}).items():
            made = [self._template(several, *frames) for several in ((False, True) if self.alone else (True,))]
            rows += [template for template in made if template not in rows]
            pieces[piece] = [rows.index(made[0]), rows.index(made[-1])]
        value = {
            "sizes": self.sizes,
            "pieces": pieces,
            "templates": rows,
            "libraries": {name: library_version(name) for name in ("torch", "diffusers", "transformers")},
            "operators": sorted(self.operators),
            "digest": digest(self.operators),
            "maker": maker(),
        }
        parts.FOLDER.mkdir(exist_ok=True)
        text = json.dumps(value, separators=(",", ":"), default=astuple)
        parts.file_of(self.name).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))

    def _template(self, several: bool, frames: int, done: int) -> Any:
        samples = [self._sample(sizes, frames, done) for sizes in self._drawn(several)]
        template = fit(samples[:FITTED])
        for sample in samples[FITTED:]:
            if tuple(template.operations(sample.sizes, "inference", "bf16")) != sample.calls:
                raise ExtractionError("the template is wrong", given=f"{self.name} at {sample.sizes}")
        return template

    def _drawn(self, several: bool) -> list[tuple[int, ...]]:
        dice = random.Random(self.name)
        while True:
            found = [self._some(dice, several) for _ in range(FITTED + 1)]
            # A size that is always the same would be taken for a constant.
            if all(len(set(values)) > 1 for values in list(zip(*found[:FITTED], strict=True))[0 if several else 1 :]):
                return found

    def _some(self, dice: random.Random, several: bool) -> tuple[int, ...]:
        drawn = {name: dice.randint(max(2, LARGEST[name] // 4), LARGEST[name]) for name in self.sizes}
        if not several:
            drawn["batch"] = 1
        if "rows" in drawn and "tokens" in drawn:
            drawn["tokens"] = drawn.get("frames", 1) * drawn["rows"] * drawn["columns"]
        return tuple(drawn.values())

    def _sample(self, sizes: tuple[int, ...], frames: int, done: int) -> Sample:
        calls = self._calls(sizes, frames)
        if done:
            # What follows the calls that decode the frames before.
            own = [call for call in calls if call[1].startswith("decoder.")]
            calls = own[sum(path.startswith("decoder.") for _, path in self._calls(sizes, done)) :]
        return Sample(sizes, tuple(calls), (), tuple(op.precision in HALF_PRECISIONS for op, _ in calls))

    def _calls(self, sizes: tuple[int, ...], frames: int) -> list[tuple[Operation, str]]:
        named = SimpleNamespace(**dict(zip(self.sizes, sizes, strict=True)))
        config = self.model.model.config
        if "rows" not in self.sizes:
            inputs = {"input_ids": Input(sizes, "int64")}
        elif self.model.method == "decode":
            side = (frames, named.rows, named.columns)[0 if frames else 1 :]
            inputs = {"z": Input((named.batch, config.get("latent_channels") or config.z_dim, *side), "bfloat16")}
        else:
            self.model.tell(named)
            shapes = INPUTS[self.settings["class"]](named, config)
            inputs = {name: Input(shape, "bfloat16") for name, shape in shapes.items()}
        recorders: list[Any] = []
        with recording_layout():
            network = traced(self.model, Inputs.of(inputs), Job(self.model), self.name, recorders.append)
        if network.uncounted:
            raise ExtractionError("operators without a kind", given=str(network.uncounted))
        self.operators |= recorders[0].operators_run
        return list(_with_layout(recorders[0]))


def _with_layout(recorder: LayoutRecorder) -> Iterator[tuple[Operation, str]]:
    """The calls of a recorder, and what it costs that tensors do not lie in memory as they are read.

    Attention writes the heads of a token beside each other, as FlashAttention does, so that nothing copies its result.
    """
    before = None
    for place, (operation, path) in enumerate(recorder.calls):
        path = path.removeprefix("model").removeprefix(".")
        if operation.precision == "fp64":
            operation = operation.replace(precision="fp32")  # angles of positions, of which templates know no fp64
        kind, shape, across = operation.kind, operation.input_shapes[0], place in recorder.across
        if kind == "copy" and before == ("attention", (shape[0], *shape[-2:0:-1], shape[-1]), path):
            continue
        if across and kind in ("copy", "add", "sub", "mul", "div"):
            # Its last dimensions change places, so that it is another operation than a copy in rows.
            *outer, rows, columns = operation.output_shape
            yield operation_of("copy", [(*outer, columns, rows)], operation), f"{path}.{TRANSPOSED}".lstrip(".")
        if not (across and kind == "copy"):
            yield operation, f"{path}.{JOINED}" if across and kind == "cat" else path
        if kind == "linear" and operation.attributes["bias"] and before == ("copy", shape, path):
            # PyTorch adds the bias afterwards where it copies a part of a tensor for the product.
            outputs = operation.output_shape
            yield operation_of("add", [outputs, outputs[-1:]], operation), path
        before = kind, operation.output_shape if kind == "attention" else shape, path


def operation_of(kind: str, shapes: list[tuple[int, ...]], like: Operation) -> Operation:
    """An operation in the precision of another one."""
    return Operation(kind, shapes, precision=like.precision)


def main() -> None:
    """Make the templates of the named parts, or of all."""
    for name in sys.argv[1:] or [each for kind in ("encoders", "decoders", "pipelines") for each in TABLES[kind]]:
        Maker(name).save()
        print(f"{name}: {parts.file_of(name).stat().st_size / 1000:.1f} kB", flush=True)


if __name__ == "__main__":
    main()
