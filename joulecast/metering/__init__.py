"""Power: sensors, what they say over time, and what mean power follows from it."""

from .estimate import PowerEstimate, estimate
from .samples import Samples
from .sensor import NoSensor, Sensor

__all__ = ["NoSensor", "PowerEstimate", "Samples", "Sensor", "estimate"]
