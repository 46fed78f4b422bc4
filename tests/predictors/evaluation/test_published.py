"""The comparison with published tables: raw sizes only, and folds that hold repeats back."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "published.py"


@pytest.fixture(scope="module")
def published():
    spec = importlib.util.spec_from_file_location("published", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_raw_sizes_hold_what_a_module_says(published, dataset):
    rows = list(dataset.measurements[:4])
    inputs = published.raw_sizes(rows)
    assert inputs.shape == (4, 1 + 4 + len(published.NUMBERS) + 1)
    conv = inputs[[m.operation.kind for m in rows].index("conv2d")]
    # Kind, input 32 x 16 x 4 x 4, 16 channels out, kernel 3, stride 1, padding 1, one group, no bias.
    assert conv[1:11].tolist() == [32, 16, 4, 4, 16, 3, 1, 1, 1, 0]
    linear = inputs[[m.operation.kind for m in rows].index("linear")]
    assert linear[1:5].tolist() == [16, 16, 0, 0]


def test_repeats_in_training_flatter_a_model(published, dataset):
    """Noise that repeats share is learned from a row's twin, and not from other operations."""
    rng = np.random.default_rng(0)
    rows = [
        replace(m, time_s=m.time_s * factor, energy_j=m.energy_j * factor)
        for m, factor in zip(dataset.measurements, np.exp(rng.standard_normal(len(dataset.measurements))), strict=True)
        for _ in range(3)
    ]
    inputs, targets = published.raw_sizes(rows), np.log([m.time_s for m in rows])
    by_row = rng.permutation(len(rows)) % published.FOLDS
    by_operation = np.repeat(np.arange(len(dataset.measurements)) % published.FOLDS, 3)
    flattered, honest = (published.in_folds(inputs, targets, fold, "XGBoost") for fold in (by_row, by_operation))
    assert flattered > 0.95
    assert honest < flattered - 0.1
