"""How far power estimates are from the truth on simulated sensors: `python benchmarks/sensors.py`.

For each class of sensor, length and load: our estimator, and the naive method (the mean of all readings of the loop),
both against the mean power that the simulated loop truly drew. Worst and median over seeds.
"""

from __future__ import annotations

import statistics

from simulated_sensors import BEFORE_S, SENSOR_CLASSES, simulate

from joulecast.metering import estimate

SEEDS = range(20)
DURATIONS_S = (3.0, 10.0)
LOADS_W = (90.0, 300.0)


def main() -> None:
    print("| sensor | loop | estimator: median, worst | without a counter | naive: median, worst |")
    print("| --- | --- | --- | --- | --- |")
    for name, sensor in SENSOR_CLASSES.items():
        for duration_s in DURATIONS_S:
            errors: dict[str, list[float]] = {"ours": [], "integrated": [], "naive": []}
            for seed in SEEDS:
                for load_w in LOADS_W:
                    samples, true_w = simulate(sensor, load_w, duration_s, seed=seed)
                    estimated = estimate(samples, BEFORE_S, BEFORE_S + duration_s)
                    values = (estimated.power_w, estimated.integrated_w, estimated.naive_w)
                    for kind, value in zip(errors, values, strict=True):
                        errors[kind].append(100 * (value / true_w - 1))
            cells = [f"{statistics.median(v):+.2f} %, {max(v, key=abs):+.2f} %" for v in errors.values()]
            print(f"| {name} | {duration_s:g} s | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
