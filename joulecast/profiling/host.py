"""Measures how fast this machine launches PyTorch operations, in seconds and without a GPU."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from ..hardware.host import processor

REFERENCE_CALL_S = 13.9e-6
"""What calling a ReLU module took the reference host in an asynchronous loop on its A30 (zoo/a30/blend-inference, host
time of relu), launch included."""

LAUNCH_S = 2.5e-6
"""What the driver's part of a kernel launch takes, about 2 to 3 us on current servers. Added where there is no GPU
to launch on."""

_CALLS, _ROUNDS = 2000, 25


def measure_host(device: torch.device | None = None) -> tuple[float, dict[str, Any]]:
    """The factor of this machine, and what was measured.

    The factor is an estimate: no host is known whose networks and whose calls were both measured.

    A ReLU module is called on one element, as loops of the reference host did. On the CPU the computation itself takes
    less than a tenth of that; on a GPU the loop is asynchronous, so that only launches are timed.

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
    # The quickest rounds: what was slower was disturbed by something else on the machine.
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
