"""Checks laws of physics on predictions of random operations of all kinds, GPUs, precisions and modes.

    python benchmarks/laws.py [--operations 200000] [--predictor any-gpu/transformer] [--seed 0]

Prints the number of operations that were checked, and the number that break each law. Operations that a predictor does
not cover have no values, and therefore break no law. The laws:

- floor: a kernel takes no less than its launch on the device;
- data sheet: no operation moves bytes or computes FLOPs faster than the data sheet allows at that clock;
- power: a board draws no less than without work, and no more than its cap;
- training: training costs no less time than inference, and no less energy where both hold one clock;
- clock: a higher clock is not slower;
- growth: twice the batch costs no less time and energy;
- company: a prediction does not depend, to the last bit, on the other operations of the same request.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from joulecast.errors import InputError
from joulecast.hardware import GPU, gpus
from joulecast.operations.kinds import KINDS
from joulecast.operations.operation import Operation
from joulecast.predictors.contract import PredictsOperations
from joulecast.predictors.operation_predictions import OperationPredictions
from joulecast.predictors.physics.energy import static_power_w
from joulecast.zoo.catalogue import find_predictor

KERNEL_S = 1e-6
"""Shortest time of a kernel: no measured kernel took less on any GPU."""

CLOCK_ROUNDING = 1e-3
"""Tolerance, because the search for the clock that a power cap allows has a resolution of one megahertz."""

AT_ONCE = 250  # Operations of one GPU and mode that are predicted together.
_ROUNDING = 1e-9

Sizes = tuple[list[tuple[int, ...]], dict[str, object]]


def least_s(operations: Sequence[Operation], gpu: GPU, clock_mhz: float) -> np.ndarray:
    """Seconds of FLOPs at the peak of a clock, or of bytes at the bandwidth; transforms may save FLOPs of convolutions.

    Winograd's F(4 x 4, 3 x 3) needs 4 times fewer multiplications, and Fourier transforms of 32 x 32 pixels 15 times
    fewer for windows of 7 x 7, the largest that are drawn here.
    """
    found = []
    for each in operations:
        saving = {3: 4.0, 5: 9.1, 7: 15.3}.get(each.attributes.get("kernel_size"), 1.0)
        saving = saving if each.kind == "conv2d" and each.attributes["stride"] == 1 else 1.0
        peak = gpu.peak_flops[gpu.running_precision(each.precision)] * clock_mhz / gpu.boost_clock_mhz
        moved = each.bytes_read + each.bytes_written
        # What fits into Ada's large last cache moves up to 6.6 times as fast (decoding on an L40S, aiconfigurator2026).
        faster = 6.6 if gpu.compute_capability == "8.9" and moved < gpu.l2_bytes else 1.0
        found.append(max(each.flops / saving / peak, moved / gpu.memory_bandwidth / faster))
    return np.array(found)


class Pair(NamedTuple):
    """An operation, and the same with twice the batch."""

    one: Operation
    twice: Operation


def _power_of_two(rng: random.Random, low: int, high: int) -> int:
    return int(2 ** rng.uniform(np.log2(low), np.log2(high)))


def _convolution(rng: random.Random, kind: str, batch: int) -> Sizes:
    dimensions = int(kind[-2])
    side = rng.choice({1: (64, 1000, 16000), 2: (7, 14, 28, 56, 112, 224), 3: (4, 8, 16, 28)}[dimensions])
    groups = rng.choice((1, 1, 1, 4))
    channels_in, channels_out = (groups * _power_of_two(rng, 1, 512 // groups) for _ in range(2))
    kernel = rng.choice((1, 3, 3, 5, 7)) if side >= 7 else rng.choice((1, 3))
    attributes = {
        "out_channels": channels_out,
        "kernel_size": kernel,
        "stride": rng.choice((1, 1, 2)),
        "padding": kernel // 2,
        "groups": groups,
    }
    return [(batch, channels_in, *[side] * dimensions)], attributes


def _attention(rng: random.Random, kind: str, batch: int) -> Sizes:
    heads, length, head = rng.choice((4, 8, 12, 16, 32)), _power_of_two(rng, 1, 4096), rng.choice((32, 64, 128))
    keys = rng.choice((length, _power_of_two(rng, 16, 8192)))
    return [(batch, heads, length, head), (batch, heads, keys, head), (batch, heads, keys, head)], {}


def _image(rng: random.Random, batch: int) -> tuple[int, ...]:
    side = rng.choice((1, 7, 14, 28, 56, 112, 224))
    return batch, 8 * _power_of_two(rng, 1, 256), side, side


def _sizes(rng: random.Random, kind: str, batch: int) -> Sizes:
    """Input shapes and attributes of a random operation of a kind; guessed if the kind is not listed here."""
    family = KINDS[kind].family
    if family == "convolution":
        return _convolution(rng, kind, batch)
    if family == "attention":
        return _attention(rng, kind, batch)
    m, k, n = (_power_of_two(rng, 1, high) for high in (4096, 8192, 8192))
    sequence = (batch, _power_of_two(rng, 1, 1024), 8 * _power_of_two(rng, 1, 1024))
    match kind:
        case "linear":
            return [rng.choice(((batch, k), (batch, 1 + m // 8, k)))], {"out_features": n}
        case "matmul":
            return [(batch, m, k), (batch, k, 1 + n // 4)], {}
        case "embedding":
            return [sequence[:2]], {"num_embeddings": _power_of_two(rng, 100, 200_000), "embedding_dim": sequence[2]}
        case "group_norm":
            return [_image(rng, batch)], {"num_groups": 8}
        case "add" | "sub" | "mul" | "div" | "pow":
            image = _image(rng, batch)
            return [image, image][: rng.choice((1, 2))], {}
        case "cat":
            image = _image(rng, batch)
            return [image, image], {"dim": 1}
        case "max_pool2d" | "avg_pool2d":
            return [(*_image(rng, batch)[:2], 56, 56)], {"kernel_size": rng.choice((2, 3)), "stride": 2}
        case "adaptive_avg_pool2d":
            return [_image(rng, batch)], {"output_size": 1}
        case "dropout" | "stochastic_depth":
            return [sequence], {"p": 0.1}
    shape = rng.choice((_image(rng, batch), sequence, (batch, sequence[2])))
    return [shape], {}


def random_pairs(rng: random.Random, gpu: GPU, mode: str) -> Iterator[Pair]:
    """An endless stream of random operations that a GPU can run.

    Args:
        rng: Where chance comes from.
        gpu: Whose precisions are drawn from.
        mode: Of all operations.
    """
    kinds = sorted(KINDS)
    while True:
        kind, batch = rng.choice(kinds), _power_of_two(rng, 1, 512)
        precision = rng.choice([p for p in KINDS[kind].precisions if p in gpu.peak_flops])
        state = rng.getstate()
        found = []
        for each in (batch, 2 * batch):
            rng.setstate(state)
            try:
                shapes, attributes = _sizes(rng, kind, each)
                found.append(Operation(kind, shapes, attributes, precision=precision, mode=mode))
            except InputError:
                break
        # Operations of more than 16 GB do not occur in practice.
        if len(found) == 2 and found[1].bytes_read + found[1].bytes_written < 16e9:
            yield Pair(*found)


def _broken(checks: dict[str, np.ndarray], pairs: Sequence[Pair], shown: Callable[[str], None]) -> Counter[str]:
    found: Counter[str] = Counter()
    for law, broken in checks.items():
        found[law] = int(broken.sum())
        for place in np.flatnonzero(broken)[:1]:
            shown(f"{law}: {pairs[place].one}")
    return found


def _less(value: np.ndarray, least: np.ndarray, tolerance: float = _ROUNDING) -> np.ndarray:
    """Whether each value is less than its lower bound. Missing values break no law."""
    broken: np.ndarray = value < least * (1 - tolerance)
    return broken


def check(
    predictor: PredictsOperations,
    other_mode: PredictsOperations | None,
    pairs: Sequence[Pair],
    clock_mhz: float,
    shown: Callable[[str], None],
) -> Counter[str]:
    """Law -> number of operations of one GPU and mode that break it.

    Args:
        predictor: Of the GPU and mode of the operations.
        other_mode: That for training, where they are for inference; None: training is not compared.
        pairs: The operations.
        clock_mhz: A clock below the default.
        shown: Called with the first operation that breaks each law.
    """
    gpu, ones = predictor.gpu, [pair.one for pair in pairs]
    p = predictor.predict(ones)
    twice, slower = predictor.predict([pair.twice for pair in pairs]), predictor.predict(ones, clock_mhz)
    works = np.array([not one.is_identity for one in ones])
    checks = {
        "floor": works & _less(p.device_time_s, np.full(len(ones), KERNEL_S)),
        "data sheet": works & _less(p.device_time_s, least_s(ones, gpu, float(gpu.boost_clock_mhz))),
        "data sheet at another clock": works & _less(slower.device_time_s, least_s(ones, gpu, clock_mhz)),
        "power": _power(p, gpu),
        "power at another clock": _power(slower, gpu),
        "clock": _less(slower.device_time_s, p.device_time_s, CLOCK_ROUNDING),
        "growth of time": _less(twice.device_time_s, p.device_time_s) | _less(twice.time_s, p.time_s),
        "growth of energy": _less(twice.dynamic_energy_j, p.dynamic_energy_j) | _less(twice.energy_j, p.energy_j),
    }
    if other_mode is not None:
        trained = other_mode.predict([one.replace(mode="training") for one in ones])
        # Operations without a backward do not occur in training.
        trains = np.array([KINDS[one.kind].training_reads != KINDS[one.kind].reads for one in ones])
        # An operation that the cap holds at a lower clock takes longer, but may need less energy.
        same_clock = trained.held_clock_mhz == p.held_clock_mhz
        costs_less = _less(trained.device_time_s, p.device_time_s)
        costs_less |= _less(trained.dynamic_energy_j, p.dynamic_energy_j) & same_clock
        checks["training"] = trains & costs_less
    alone = [predictor.predict(ones[place : place + 1]) for place in range(0, len(ones), 50)]
    differs = np.zeros(len(ones), dtype=bool)
    differs[::50] = [_bits(one, 0) != _bits(p, 50 * place) for place, one in enumerate(alone)]
    return _broken({**checks, "company": differs}, pairs, shown)


def _bits(p: OperationPredictions, place: int) -> bytes:
    return np.array([p.time_s[place], p.power_w[place], p.device_time_s[place], p.dynamic_energy_j[place]]).tobytes()


def _power(p: OperationPredictions, gpu: GPU) -> np.ndarray:
    static_w, cap_w = static_power_w(gpu, p.held_clock_mhz), gpu.power_limit_w
    least_w = np.maximum(np.minimum(static_w, p.static_power_w), gpu.idle_power_w or 0.0)
    on_device_w = p.dynamic_energy_j / np.maximum(p.device_time_s, 1e-15) + least_w
    tolerance = 1 + _ROUNDING
    too_much = (p.power_w > cap_w * tolerance) | ((on_device_w > cap_w * tolerance) & (p.device_time_s > 0))
    broken: np.ndarray = _less(p.power_w, least_w) | too_much
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--predictor", help="name in the zoo; default: the GPU's own, or that for any GPU")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    found: Counter[str] = Counter()
    examples: dict[str, str] = {}
    done, each = 0, list(gpus().values())
    while done < arguments.operations:
        gpu, mode = rng.choice(each), rng.choice(("inference", "training"))
        predictor = find_predictor(gpu, mode, arguments.predictor).operations
        other = find_predictor(gpu, "training", arguments.predictor).operations if mode == "inference" else None
        pairs = list(islice(random_pairs(rng, gpu, mode), min(AT_ONCE, arguments.operations - done)))
        clock = rng.uniform(gpu.min_clock_mhz, gpu.boost_clock_mhz)

        def shown(text: str, where: str = f" on {gpu.name}") -> None:
            examples.setdefault(text.split(":")[0], text + where)

        found += check(predictor, other, pairs, clock, shown)
        done += len(pairs)
    print(f"{done} operations")
    for law in (*dict.fromkeys([*found, "floor", "data sheet", "power", "clock", "growth of time", "company"]),):
        print(f"{found[law]:8d} break: {law}" + (f"   such as {examples[law].split(': ', 1)[1]}" if found[law] else ""))


if __name__ == "__main__":
    main()
