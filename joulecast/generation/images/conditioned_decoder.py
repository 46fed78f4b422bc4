"""The decoder of CogVideoX's autoencoder (arXiv 2408.06072), whose norms are scaled and shifted by the latents."""

from __future__ import annotations

from dataclasses import dataclass

from ...operations.network import Network
from .autoencoders import Decoder
from .layers import Layers, Shape
from .video_decoder import causal_conv


@dataclass(frozen=True)
class ConditionedDecoder(Decoder):
    """A decoder that processes two latent frames at a time; an odd frame comes together with the first two.

    Args:
        channels: Channels at each resolution, from the pixels to the latents; each further one has half the sides.
    """

    latent_channels: int = 16
    channels: tuple[int, ...] = (128, 256, 256, 512)
    doubling: int = 2  # Number of the lowest resolutions whose enlargement also doubles the frames
    resnets: int = 4  # Number of residual blocks at each resolution
    groups: int = 32  # Number of groups of the group norms

    def network(self, images: int, size: Shape, precision: str) -> Network:
        """See `Decoder.network`."""
        frames, height, width = size
        found = Layers(precision)
        count = 1 + (frames - 1) // 2**self.doubling
        first = min(count, 2 + count % 2)
        sides = (height // self.scale, width // self.scale)
        for latent_frames, each in ((first, 1), (2, (count - first) // 2)):
            if each:
                self._latent_frames(found, (images, self.latent_channels, latent_frames, *sides), each)
        return found.network("vae", {"latents": (images, self.latent_channels, count, *sides)})

    def _latent_frames(self, found: Layers, latents: Shape, each: int) -> None:
        """Record the decoder for a number of pieces with the same number of latent frames."""
        images, _, frames, high, wide = latents
        inputs = self.channels[-1]
        causal_conv(found, "conv_in", latents, inputs, each)
        for block in range(2):
            self._resnet(found, f"mid.{block}", (images, inputs, frames, high, wide), inputs, each)
        for level, outputs in enumerate(reversed(self.channels)):
            for block in range(self.resnets):
                self._resnet(found, f"up.{level}.{block}", (images, inputs, frames, high, wide), outputs, each)
                inputs = outputs
            if level < len(self.channels) - 1:
                if level < self.doubling:
                    frames = 2 * frames - frames % 2  # the odd frame is the first, which stays one
                high, wide = 2 * high, 2 * wide
                _upsample(found, f"up.{level}.upsample", (images * frames, inputs, high, wide), each)
        shape = (images, inputs, frames, high, wide)
        self._norm(found, "norm_out", shape, each)
        causal_conv(found, "conv_out", shape, 3, each)

    def _resnet(self, found: Layers, path: str, shape: Shape, outputs: int, each: int) -> None:
        after = (shape[0], outputs, *shape[2:])
        for name, inputs in (("1", shape), ("2", after)):
            self._norm(found, f"{path}.norm{name}", inputs, each)
            causal_conv(found, f"{path}.conv{name}", inputs, outputs, each)
        if shape[1] != outputs:
            found.add(f"{path}.shortcut", "conv3d", shape, each=each, out_channels=outputs, kernel_size=1)
        found.add(path, "add", after, after, each=each)

    def _norm(self, found: Layers, path: str, shape: Shape, each: int) -> None:
        """A norm, its scale and shift, which are computed from the enlarged latents, and an activation."""
        latents = (shape[0], self.latent_channels, *shape[2:])
        found.add(path, "copy", latents, each=each)
        for name in ("scale", "shift"):
            found.add(f"{path}.{name}", "conv3d", latents, each=each, out_channels=shape[1], kernel_size=1)
        found.add(path, "group_norm", shape, each=each, num_groups=self.groups)
        for kind in ("mul", "add"):
            found.add(path, kind, shape, shape, each=each)
        found.add(path, "silu", shape, each=each)


def _upsample(found: Layers, path: str, shape: Shape, each: int) -> None:
    """Doubling the sides of each frame, followed by a convolution over each frame."""
    images, channels, high, wide = shape
    found.add(path, "interpolate", (images, channels, high // 2, wide // 2), each=each, output_size=(high, wide))
    found.add(path, "copy", shape, each=each)
    found.add(f"{path}.conv", "conv2d", shape, each=each, out_channels=channels, kernel_size=3, padding=1)
