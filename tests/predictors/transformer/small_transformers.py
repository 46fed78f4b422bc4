"""Small transformers and networks made up from a simulated law, for the tests beside this file."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from simulated_measurements import SLOWDOWN, simulated_dataset, simulated_operations

from joulecast.datasets import NetworkMeasurement
from joulecast.hardware import find_gpu
from joulecast.operations.network import Network
from joulecast.predictors.fitting.fit import network_learner
from joulecast.predictors.measured import DeviceRow
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.recipes import TransformerRecipe
from joulecast.predictors.transformer.encoder import ROLES, WIDTH, Encoder

torch = pytest.importorskip("torch")

from joulecast.predictors.transformer.fit import TORCH, fit_transformer, starting_weights  # noqa: E402

TINY = TransformerRecipe(width=16, heads=2, kind_layers=1, kind_feed_forward=2, epochs=40, batch=32, learning_rate=1e-2)
QUICK = replace(TINY, epochs=1, together=0.5)
VARIANTS = {
    "DeepPM": {},
    "standard encoder": {"layer_norm": True},
    "without weighting": {"distance_weighting": False},
    "without the three stacks": {"stacks": "one"},
    "without Muon": {"matrix_learning_rate": 0.0},
    "kinds and places": {"operation_vector": "kind", "positional_encoding": True},
    "places in one stack": {"positional_encoding": True, "stacks": "one"},
}
A30, T4 = find_gpu("A30"), find_gpu("T4")


def device_s(gpu, operations):
    least_s = LeastTimes.of(operations, gpu, gpu.boost_clock_mhz).time_s
    return least_s * np.array([SLOWDOWN[operation.kind] for operation in operations])


def rows_of(operations):
    """A law that holds on two GPUs: each kind is slower than physics by a factor of its own."""
    return [
        DeviceRow(gpu, operation, seconds, 120.0 if gpu is A30 else None)
        for gpu in (A30, T4)
        for operation, seconds in zip(operations, device_s(gpu, operations).tolist(), strict=True)
    ]


def made_networks(slower=1.25):
    """Networks that take longer than the sum of their operations, by the same factor each."""
    large = [operation for operation in simulated_operations() if operation.flops > 1e8]
    found = []
    for first in range(0, len(large) - 6, 3):
        network = Network.of([(operation, 4) for operation in large[first : first + 6]], name=f"network{first}")
        time_s = slower * 4 * float(device_s(A30, [entry.operation for entry in network]).sum())
        found.append(
            (A30, NetworkMeasurement(network.name, (1,), "fp32", "inference", time_s, 140, 140 * time_s), network)
        )
    return found


@cache
def quick():
    """A transformer that saw operations once, and networks; fitted once."""
    rows = rows_of(simulated_operations())
    return network_learner(fit_transformer([simulated_dataset()], rows, QUICK), rows, QUICK)(made_networks())


def arrays(sequences, operations, kinds=4):
    draw = np.random.default_rng(0)
    return (
        draw.normal(size=(sequences, operations, len(ROLES), WIDTH)).astype(np.float32),
        draw.integers(0, 8, (sequences, operations)),
        draw.integers(0, kinds, (sequences, operations)),
    )


def random_encoder(**settings):
    """Weights away from their start, where the last layers are zero, and wide bounds of the inputs."""
    recipe = replace(TINY, **settings)
    torch.manual_seed(1)
    weights = {name: each + 0.1 * torch.randn_like(each) for name, each in starting_weights(recipe, 4).items()}
    ends = {"lowest": torch.full_like(weights["lowest"], -9.0), "highest": torch.full_like(weights["highest"], 9.0)}
    return Encoder(recipe, {name: each.numpy() for name, each in (weights | ends).items()})


def in_torch(encoder, *given):
    """Log ratios by the same arithmetic in torch."""
    weights = {name: torch.from_numpy(each) for name, each in encoder.weights.items()}
    return Encoder(encoder.recipe, weights, TORCH).log_ratios(*map(torch.from_numpy, given)).numpy()
