"""Whether gradients in sizes would lead a search: `python benchmarks/slopes.py`.

A 3 x 3 convolution with as many outputs as inputs grows from 64 to 512 channels, one by one. Printed are the share of
steps in which its predicted device time falls, the largest rise of one step, and the exponent of channels with which
the time grows: over the whole range, and as the median of single steps, which is what a gradient would say.
"""

from __future__ import annotations

import numpy as np

import joulecast
from joulecast import Operation

CHANNELS = np.arange(64, 513)
GPUS = ("A30", "A100 SXM4 80GB", "H100 SXM", "RTX 2080 Ti")


def main() -> None:
    for precision in ("fp32", "fp16"):
        convolutions = [
            Operation(
                "conv2d", [(32, n, 56, 56)], {"out_channels": n, "kernel_size": 3, "padding": 1}, precision=precision
            )
            for n in CHANNELS.tolist()
        ]
        for gpu in GPUS:
            logs = np.log(joulecast.predict_operations(convolutions, gpu).device_time_s)
            steps = np.diff(logs)
            whole = (logs[-1] - logs[0]) / np.log(CHANNELS[-1] / CHANNELS[0])
            local = np.median(steps / np.diff(np.log(CHANNELS)))
            print(
                f"{precision} {gpu}: falls in {np.mean(steps < 0):.0%} of steps, rises by up to "
                f"{np.expm1(steps.max()):.0%}; exponent {whole:.1f} over all, {local:.1f} in the median step"
            )


if __name__ == "__main__":
    main()
