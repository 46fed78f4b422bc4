"""Serving under real traffic: requests as they arrive, replayed through an engine's scheduler over predicted steps.

`step_costs` looks steps up in tables that were predicted once, `scheduler` replays one replica, `requests` draws or
reads what arrives, `simulate` puts them together, and `simulation` is the answer.
"""

from .simulation import ServingSimulation, Timeline

__all__ = ["ServingSimulation", "Timeline"]
