"""Metering: power sensors of this machine, sampling, recordings, and the energy computed from them. Needs no torch.

One sampler process (`sampler`) polls the devices that `machine` found and writes a `recording`; `energy_curve` and
`estimate` turn samples into joules and watts, whether for a campaign (`Sensor`) or for a whole program (`meter`).
"""

from .estimate import PowerEstimate, estimate
from .sampler import Sensor
from .samples import Samples

__all__ = ["PowerEstimate", "Samples", "Sensor", "estimate"]
