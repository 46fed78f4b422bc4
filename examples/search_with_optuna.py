"""Search for the network that takes the least energy, is large enough to be accurate, and meets a deadline.

Run it with `python examples/search_with_optuna.py` (`pip install '.[search]'`). No GPU and no torch are needed.
Candidates are asked for fifty at a time, because `predict_many` predicts the operations that they share once.
"""

from __future__ import annotations

import math

import optuna

import joulecast
from joulecast import Network, Operation

GPU, BATCH, DEADLINE_S = "A30", 32, 0.010
LEAST_PROXY = 22.0
ROUNDS, AT_ONCE = 5, 50


def convolution(shape: tuple[int, ...], out_channels: int, kernel_size: int, stride: int = 1) -> list[Operation]:
    """A convolution with its batch norm and activation; its output is the shape of the last operation."""
    padding = kernel_size // 2
    sizes = {"out_channels": out_channels, "kernel_size": kernel_size, "stride": stride, "padding": padding}
    conv = Operation("conv2d", [shape], {**sizes, "bias": False}, precision="tf32")
    return [conv, Operation("batch_norm", [conv.output_shape]), Operation("relu", [conv.output_shape])]


def candidate(trial: optuna.Trial) -> Network:
    """A residual network of four stages, whose width, depth and kernels Optuna chooses."""
    width = trial.suggest_int("width", 16, 96, step=8)
    layers = convolution((BATCH, 3, 224, 224), width, 7, stride=2)
    shape = layers[-1].output_shape
    for stage in range(4):
        depth, kernel_size = (
            trial.suggest_int(f"depth {stage}", 1, 4),
            trial.suggest_categorical(f"kernel {stage}", [3, 5]),
        )
        layers += convolution(shape, width << stage, kernel_size, stride=2)
        shape = layers[-1].output_shape
        for _ in range(depth):
            layers += [*convolution(shape, width << stage, kernel_size), Operation("add", [shape, shape])]
    layers += [Operation("adaptive_avg_pool2d", [shape], {"output_size": 1})]
    layers += [Operation("linear", [(BATCH, shape[1])], {"out_features": 1000})]
    return Network.of(((layer, 1) for layer in layers), name=f"candidate {trial.number}")


def accuracy_proxy(network: Network) -> float:
    """A stand-in for accuracy, which rises with the logarithms of work and of parameters; put your own here."""
    parameters = sum(entry.count * entry.operation.parameters for entry in network)
    return math.log2(network.flops / BATCH) / 2 + math.log2(parameters) / 4


def main() -> None:
    """Print the best candidates."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="minimize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=AT_ONCE)
    )
    for _ in range(ROUNDS):
        trials = [study.ask() for _ in range(AT_ONCE)]
        networks = [candidate(trial) for trial in trials]
        found = joulecast.predict_many(networks, GPU)
        for trial, network, time_s, energy_j in zip(trials, networks, found.time_s, found.energy_j, strict=True):
            proxy = accuracy_proxy(network)
            trial.set_user_attr("proxy", proxy)
            trial.set_user_attr("time_s", float(time_s))
            if proxy >= LEAST_PROXY and time_s <= DEADLINE_S:
                study.tell(trial, float(energy_j))
            else:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    allowed = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    print(f"{len(allowed)} of {len(study.trials)} candidates meet the deadline and are large enough")
    for trial in sorted(allowed, key=lambda trial: trial.value or math.inf)[:3]:
        told = trial.user_attrs
        print(f"{trial.value:.2f} J, {1e3 * told['time_s']:.1f} ms, proxy {told['proxy']:.1f}: {trial.params}")


if __name__ == "__main__":
    main()
