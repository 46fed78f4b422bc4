"""Pipelines of images and videos by name: text encoders, denoiser, autoencoder, and default numbers of steps.

Sizes, steps and guidance are those of the published repositories on huggingface.co and of `diffusers`' defaults. To
add a pipeline, add a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...operations.network import Network
from .autoencoders import Autoencoder, Decoder
from .conditioned_decoder import ConditionedDecoder
from .deep_compression import DeepCompression
from .denoisers import CrossDiT, Denoiser, JointDiT
from .encoders import CLIP_G, CLIP_L, HUNYUAN_BERT, TextEncoder, gemma_2_2b, llama_3_8b, mt5_xl, t5_xxl, umt5_xxl
from .joint_video_denoiser import JointVideoDiT
from .linear_denoiser import LinearDiT
from .sequence_parallel import ONE_GPU, Split
from .video_decoder import CausalDecoder, GroupedDecoder
from .video_denoiser import VideoDiT


@dataclass(frozen=True)
class ImagePipeline:
    """A pipeline that generates an image or a video from a prompt.

    Args:
        source: Repository of the pipeline.
        encoders: The text encoders, which read the prompt.
        denoiser: The network that removes noise from the latents, step by step.
        autoencoder: The decoder that computes pixels from the latents.
        text_tokens: Number of tokens of the prompt that the denoiser reads.
        steps: Default number of steps.
        guided: Whether each step is also computed for an empty prompt (classifier-free guidance).
        patch: Side of the denoiser's patches in latents.
        height, width: Default height and width in pixels.
        frames: Default number of frames of a video; None for images.
        frame_scale: Number of frames for each latent frame after the first, which stands for one frame.
        patch_frames: Number of latent frames of a patch.
        in_turn: Whether the prompt and the empty prompt are computed one after the other, not as one batch.
    """

    source: str
    encoders: tuple[TextEncoder, ...]
    denoiser: Denoiser
    autoencoder: Decoder
    text_tokens: int
    steps: int
    guided: bool = True
    patch: int = 2
    height: int = 1024
    width: int = 1024
    frames: int | None = None
    frame_scale: int = 1
    patch_frames: int = 1
    in_turn: bool = False

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


_STABLE_DIFFUSION_3 = (CLIP_L, CLIP_G, t5_xxl(256))
_FLUX = JointDiT(19, 3072, 24, single=38, pooled=768, guided=True, last_context=True, convolved=False)
_LATENTS_16, _LATENTS_4 = Autoencoder(16), Autoencoder(4)


def _sana(source: str, layers: int, *, normed: bool = False) -> ImagePipeline:
    """SANA, whose versions 1.5 have norms of queries and keys."""
    denoiser = LinearDiT(layers, 70, 32, text=2304, cross_heads=20, expansion=2.5, latent_channels=32, normed=normed)
    return ImagePipeline(source, (gemma_2_2b(300),), denoiser, DeepCompression(32), text_tokens=300, steps=20, patch=1)


def _wan(source: str, denoiser: Denoiser) -> ImagePipeline:
    """Wan 2.1, which generates videos from text, with the default sizes of `WanPipeline`."""
    return _video(source, umt5_xxl(512), denoiser, CausalDecoder(), 512, width=832, frames=81, in_turn=True)


def _cogvideox(source: str, denoiser: Denoiser, **sizes: int) -> ImagePipeline:
    """CogVideoX, which generates videos from text, with the sizes that it was trained for."""
    return _video(source, t5_xxl(226), denoiser, ConditionedDecoder(), 226, **{"width": 720, "frames": 49, **sizes})


def _video(
    source: str, text: TextEncoder, denoiser: Denoiser, decoder: Decoder, text_tokens: int, **sizes: Any
) -> ImagePipeline:
    return ImagePipeline(
        source, (text,), denoiser, decoder, text_tokens, steps=50, frame_scale=4, **{"height": 480, **sizes}
    )


PIPELINES: Mapping[str, ImagePipeline] = {
    "sd3_5_large": ImagePipeline(
        "stabilityai/stable-diffusion-3.5-large",
        _STABLE_DIFFUSION_3,
        JointDiT(38, 2432, 38),
        _LATENTS_16,
        text_tokens=77 + 256,
        steps=28,
    ),
    "sd3_5_medium": ImagePipeline(
        "stabilityai/stable-diffusion-3.5-medium",
        _STABLE_DIFFUSION_3,
        JointDiT(24, 1536, 24, dual=13),
        _LATENTS_16,
        text_tokens=77 + 256,
        steps=28,
    ),
    "flux_1_dev": ImagePipeline(
        "black-forest-labs/FLUX.1-dev",
        (CLIP_L, t5_xxl(512)),
        _FLUX,
        _LATENTS_16,
        text_tokens=512,
        steps=28,
        guided=False,
    ),
    "flux_1_schnell": ImagePipeline(
        "black-forest-labs/FLUX.1-schnell",
        (CLIP_L, t5_xxl(256)),
        JointDiT(19, 3072, 24, single=38, pooled=768, last_context=True, convolved=False),
        _LATENTS_16,
        text_tokens=256,
        steps=4,
        guided=False,
    ),
    "pixart_sigma": ImagePipeline(
        "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
        (t5_xxl(300),),
        CrossDiT(28, 1152, 16, 4608, patch=16, patch_out=32, text=4096),
        _LATENTS_4,
        text_tokens=300,
        steps=20,
    ),
    "hunyuan_dit": ImagePipeline(
        "Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers",
        (HUNYUAN_BERT, mt5_xl(256)),
        CrossDiT(
            *(40, 1408, 16, 6144),
            patch=16,
            patch_out=32,
            text=1024,
            projected=False,
            own_modulation=True,
            skips=19,
        ),
        _LATENTS_4,
        text_tokens=77 + 256,
        steps=50,
    ),
    "sana_1_6b": _sana("Efficient-Large-Model/Sana_1600M_1024px_diffusers", 20),
    "sana_1_5_1_6b": _sana("Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers", 20, normed=True),
    "sana_1_5_4_8b": _sana("Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers", 60, normed=True),
    "wan_2_1_1_3b": _wan("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", VideoDiT(30, 12, 128, 8960)),
    "wan_2_1_14b": _wan("Wan-AI/Wan2.1-T2V-14B-Diffusers", VideoDiT(40, 40, 128, 13824)),
    "cogvideox_2b": _cogvideox("THUDM/CogVideoX-2b", JointVideoDiT(30, 30, 64, rotary=False)),
    "cogvideox_5b": _cogvideox("THUDM/CogVideoX-5b", JointVideoDiT(42, 48, 64, rotary=True)),
    "cogvideox1_5_5b": _cogvideox(
        "THUDM/CogVideoX1.5-5B",
        JointVideoDiT(42, 48, 64, rotary=True, patch=128),
        height=768,
        width=1360,
        frames=81,
        patch_frames=2,
    ),
    # The instruction before the prompt has 95 tokens, which the denoiser does not see.
    "hunyuan_video": ImagePipeline(
        "hunyuanvideo-community/HunyuanVideo",
        (llama_3_8b(256 + 95), CLIP_L),
        JointDiT(20, 3072, 24, single=40, pooled=768, guided=True, last_context=True, refined=2),
        GroupedDecoder(),
        text_tokens=256,
        steps=50,
        guided=False,
        height=720,
        width=1280,
        frames=129,
        frame_scale=4,
    ),
}
"""Name -> pipeline."""
