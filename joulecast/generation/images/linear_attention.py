"""Parts that SANA's denoiser and its autoencoder share: linear attention and a feed-forward block of convolutions.

Sources: SANA (Xie et al., arXiv 2410.10629), EfficientViT (Cai et al., arXiv 2205.14756), as `diffusers` runs them.
"""

from __future__ import annotations

from .layers import Layers, Shape


def linear_attention(found: Layers, path: str, shape: Shape, *, blocks: int = 1) -> None:
    """Record attention without a softmax: keys times values come first, so that the cost is linear in the tokens.

    `diffusers` computes it in fp32. A row of ones below the values gives the sums that results are divided by.

    `shape`: Shape of queries, keys and values: images, heads, features of a head, tokens.
    """
    images, heads, features, tokens = shape
    wide, row = Layers("fp32", found.calls), (images, heads, 1, tokens)
    context = (images, heads, features + 1, features)
    wide.add(path, "copy", shape, blocks=blocks, each=3)
    wide.add(path, "cat", shape, row, blocks=blocks, dim=2)
    wide.add(path, "matmul", (*context[:-1], tokens), (images, heads, tokens, features), blocks=blocks)
    wide.add(path, "matmul", context, shape, blocks=blocks)
    wide.add(path, "add", row, blocks=blocks)
    wide.add(path, "div", shape, row, blocks=blocks)
    found.add(path, "copy", shape, blocks=blocks)


def convolutional_feed_forward(found: Layers, path: str, shape: Shape, inner: int, *, blocks: int = 1) -> None:
    """Record a feed-forward block with a depthwise convolution over neighbouring tokens.

    `shape`: Shape of its input and output: images, channels, height, width.
    """
    images, channels, high, wide = shape
    half, both = (images, inner, high, wide), (images, 2 * inner, high, wide)
    found.add(f"{path}.inverted", "conv2d", shape, blocks=blocks, out_channels=2 * inner, kernel_size=1)
    found.add(f"{path}.inverted", "silu", both, blocks=blocks)
    found.add(
        *(f"{path}.depth", "conv2d", both),
        blocks=blocks,
        out_channels=2 * inner,
        kernel_size=3,
        padding=1,
        groups=2 * inner,
    )
    found.add(f"{path}.gate", "silu", half, blocks=blocks)
    found.add(f"{path}.gate", "mul", half, half, blocks=blocks)
    found.add(f"{path}.point", "conv2d", half, blocks=blocks, out_channels=channels, kernel_size=1, bias=False)
