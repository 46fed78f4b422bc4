"""Laws of networks: order of their operations, the tree of a prediction, families of models, names of GPUs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
from law import Case, CaseLaw, Subject, differing
from laws_of_operations import ANY_GPU, no_worse, renamed, siblings

from joulecast import extract, predict_many
from joulecast.arrays import FloatArray
from joulecast.hardware import GPU, gpus
from joulecast.operations.network import Network
from joulecast.operations.operation import MODES
from joulecast.predictors.networks.composition import Execution
from joulecast.predictors.networks.prediction import Prediction

FAMILIES = (
    ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    ("vgg11", "vgg13", "vgg16", "vgg19"),
    ("densenet121", "densenet169", "densenet201"),
    ("efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5"),
    ("convnext_tiny", "convnext_small", "convnext_base", "convnext_large"),
    ("swin_t", "swin_s", "swin_b"),
    ("vit_b_16", "vit_l_16"),
    ("bert_base", "bert_large"),
    ("gpt2", "gpt2_xl"),
)
"""Models of one kind, the smaller first: each contains at least the work of the one before."""

_TEXT = {"bert_base", "bert_large", "gpt2", "gpt2_xl"}


def _drawn(rng: random.Random) -> tuple[GPU, str, str, int]:
    """A GPU, a mode, a precision that it has, and a batch size."""
    gpu = rng.choice(list(gpus().values()))
    precisions = ["default", "fp32", *(p for p in ("fp16", "bf16") if p in gpu.peak_flops)]
    return gpu, rng.choice(MODES), rng.choice(precisions), rng.choice((1, 2, 4, 8, 16, 32, 64))


def _network(model: str, mode: str, precision: str, batch: int) -> Network:
    shape = (batch, 128) if model in _TEXT else (batch, 3, 224, 224)
    return extract(model, shape, mode=mode, precision=precision)


def _drawn_network(rng: random.Random) -> tuple[GPU, Network, str]:
    gpu, mode, precision, batch = _drawn(rng)
    model = rng.choice(rng.choice(FAMILIES))
    return gpu, _network(model, mode, precision, batch), f"{model}, batch {batch}, {precision}, {mode} on {gpu.name}"


def _totals(*predictions: Prediction) -> FloatArray:
    """Time and energy of predictions, shape (2, predictions)."""
    return np.array([(each.time_s, each.energy_j) for each in predictions], dtype=float).T


def _larger(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        gpu, mode, precision, batch = _drawn(rng)
        family = rng.choice(FAMILIES)
        place = rng.randrange(1, len(family))
        small, large = (
            _totals(subject.predict(_network(model, mode, precision, batch), gpu))
            for model in family[place - 1 : place + 1]
        )
        what = f"{family[place]} after {family[place - 1]}, batch {batch}, {precision}, {mode} on {gpu.name}"
        yield Case(float((small / large).max()), what)


def _order(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        gpu, network, what = _drawn_network(rng)
        pairs = [(entry.operation, entry.count) for entry in network]
        shuffled = rng.sample(pairs, len(pairs))
        one, other = (subject.predict(Network.of(each), gpu) for each in (pairs, shuffled))
        yield Case(float(differing(_totals(one), _totals(other))[0]), what)


def _many(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        gpu, mode, precision, batch = _drawn(rng)
        networks = [_network(model, mode, precision, batch) for model in rng.choice(FAMILIES)]
        forwards = predict_many(networks, gpu=gpu, mode=mode, predictor=subject.predictor)
        reverse = predict_many(networks[::-1], gpu=gpu, mode=mode, predictor=subject.predictor)
        alone = _totals(*(subject.predict(network, gpu) for network in networks))
        among = np.array([forwards.time_s, forwards.energy_j])
        turned = np.array([reverse.time_s, reverse.energy_j])[:, ::-1]
        excess = np.maximum(differing(among, turned), differing(among, alone))
        what = f"{networks[0].name} and larger, batch {batch}, {precision}, {mode} on {gpu.name}"
        yield Case(float(excess.max()), what)


def _tree(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        gpu, network, what = _drawn_network(rng)
        prediction = subject.predict(network, gpu)
        columns = prediction.tree().to_columns()
        root = np.array([columns[name][0] for name in ("total_time_s", "total_energy_j")])
        parts = np.array([columns[name].sum() for name in ("own_time_s", "own_energy_j")])
        whole = np.array([prediction.time_s, prediction.energy_j], dtype=float)
        with np.errstate(divide="ignore"):
            ratios = np.array([root / whole, whole / root, parts / whole, whole / parts])
        yield Case(float(ratios.max()), what)


def _name(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        gpu, network, what = _drawn_network(rng)
        one, other = (
            _totals(subject.network(each, network.mode, subject.predictor or ANY_GPU).predict(network))
            for each in (gpu, renamed(gpu))
        )
        yield Case(float(differing(one, other)[0]), what)


def _not_slower(better: Callable[[GPU], list[GPU]]) -> Callable[[random.Random, Subject], Iterator[Case]]:
    def cases(rng: random.Random, subject: Subject) -> Iterator[Case]:
        while True:
            gpu, network, what = _drawn_network(rng)
            own_s = subject.predict(network, gpu).time_s
            for other in better(gpu):
                yield Case(subject.predict(network, other).time_s / own_s, f"{what}, and {other.name}")

    return cases


def _replayed(rng: random.Random, subject: Subject) -> Iterator[Case]:
    while True:
        gpu, network, what = _drawn_network(rng)
        predictor = subject.network(gpu, network.mode)
        replayed = predictor.under(Execution("graph", predictor.host.execution.host))
        graph, eager = _totals(replayed.predict(network)), _totals(predictor.predict(network))
        yield Case(float((graph / eager).max()), what)


NETWORK_LAWS: dict[str, CaseLaw] = {
    "larger models": CaseLaw("A larger model of a family takes no less time and energy.", _larger, exact=False),
    "order of operations": CaseLaw(
        "The order of its operations changes no bit of a network's time and energy.", _order, tolerance=0.0
    ),
    "company of networks": CaseLaw(
        "A network among others, in any order, is predicted to the bit as it is alone.", _many, tolerance=0.0
    ),
    "tree": CaseLaw("The parts of a tree add up to its root, and its root is the prediction.", _tree),
    "graph": CaseLaw(
        "Replayed as a CUDA graph, a network takes no more time and energy than if the host launches each operation.",
        _replayed,
        tolerance=1e-4,  # The clock that the power cap allows is found to so much.
    ),
    "name and networks": CaseLaw(
        "The same data sheet under another name gives the same bits for networks.", _name, tolerance=0.0
    ),
    "siblings and networks": CaseLaw(
        "On a GPU of the same chip with no lower figure on its data sheet, a network is not slower.",
        _not_slower(siblings),
        exact=False,
    ),
    "better boards and networks": CaseLaw(
        "On a GPU with the same kernels and no lower figure on its data sheet, a network is at most 1 % slower.",
        _not_slower(no_worse),
        exact=False,
        tolerance=0.01,
    ),
}
"""Name -> law of networks."""
