"""Measures how fast this machine launches PyTorch operations, in seconds and without a GPU."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from ..hardware.host import processor

REFERENCE_CALL_S = 13.9e-6
"""Time of a call of a ReLU module on the reference host, with its launch, in an asynchronous loop on an A30 (host time
of relu in zoo/a30/blend-inference)."""

LAUNCH_S = 2.5e-6
"""Time of the driver's part of a kernel launch, about 2 to 3 us on current servers. Added where there is no GPU to
launch on."""

_CALLS, _ROUNDS = 2000, 25


def measure_host(device: torch.device | None = None) -> tuple[float, dict[str, Any]]:
    """Measure the factor of this machine.

    The factor is an estimate, because there is no host on which both networks and such calls were measured.

    A ReLU module is called on one element, as in the loops of the reference host. On the CPU the computation takes less
    than a tenth of the call; on a GPU the loop is asynchronous, so that only launches are timed.

    Args:
        device: A CUDA device to launch on; None to time PyTorch's dispatch on the CPU and add a typical launch.

    Returns:
        Seconds per call over those of the reference host, and the facts for a profile.
    """
    on_gpu = device is not None and device.type == "cuda"
    module = torch.nn.ReLU().eval()
    x = torch.ones(1, device=device)
    rounds_s = []
    with torch.inference_mode():
        for _ in range(_ROUNDS):
            if on_gpu:
                torch.cuda.synchronize(device)
            start_s = time.perf_counter()
            for _ in range(_CALLS):
                module(x)
            rounds_s.append((time.perf_counter() - start_s) / _CALLS)
    # The fastest rounds count, because slower ones were disturbed by other work on the machine.
    call_s = statistics.mean(sorted(rounds_s)[: _ROUNDS // 5])
    whole_s = call_s if on_gpu else call_s + LAUNCH_S
    facts = {
        "call_s": call_s,
        "launch_s": 0.0 if on_gpu else LAUNCH_S,
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "processor": processor(),
    }
    return whole_s / REFERENCE_CALL_S, facts
