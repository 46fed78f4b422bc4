"""How much does a design decision cost? Blocks as lists of operations, without a model and without torch.

Run it with `python examples/compare_architectures.py`.
"""

from __future__ import annotations

from joulecast import Operation, predict

BATCH, TOKENS, WIDTH, BLOCKS = 8, 512, 1024, 12


def feed_forward(expansion: int, precision: str) -> list[tuple[Operation, int]]:
    """The feed-forward part of all transformer blocks: each operation with its count."""
    inside, outer = expansion * WIDTH, (BATCH, TOKENS, WIDTH)
    return [
        (Operation("layer_norm", [outer], {"normalized_shape": WIDTH}, precision=precision), BLOCKS),
        (Operation("linear", [outer], {"out_features": inside}, precision=precision), BLOCKS),
        (Operation("gelu", [(BATCH, TOKENS, inside)], precision=precision), BLOCKS),
        (Operation("linear", [(BATCH, TOKENS, inside)], {"out_features": WIDTH}, precision=precision), BLOCKS),
        (Operation("add", [outer, outer], precision=precision), BLOCKS),
    ]


def main() -> None:
    """Print time and energy of three designs, with their 90 % intervals."""
    for expansion, precision in ((4, "fp32"), (2, "fp32"), (4, "bf16")):
        prediction = predict(feed_forward(expansion, precision), gpu="A30")
        interval = prediction.interval(0.9)
        low, high = interval.energy_j if interval else (float("nan"), float("nan"))
        print(
            f"{expansion} x wider, {precision}: {1e3 * prediction.time_s:.1f} ms, "
            f"{prediction.energy_j:.2f} J ({low:.2f} to {high:.2f} J)"
        )


if __name__ == "__main__":
    main()
