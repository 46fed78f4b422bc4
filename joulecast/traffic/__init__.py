"""Serving under real traffic: requests as they arrive, replayed through an engine's scheduler over predicted steps.

`step_costs` looks steps up in tables that were predicted once, `scheduler` runs one replica, `requests` draws or reads
what arrives, `served` is a model with its tables and memory, and gives requests to its replicas, `simulation` is the
answer of `simulate`, and `best` chooses.
"""

from .simulation import ServingSimulation
from .timeline import Timeline

__all__ = ["ServingSimulation", "Timeline"]
