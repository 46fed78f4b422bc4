"""Long products that others measured under a board's cap, in networks of nothing else: the clock law alone decides."""

import numpy as np
import pandas as pd
import pytest

from joulecast import Network, Operation
from joulecast.zoo import find_predictor


@pytest.mark.parametrize("gpu", ["Tesla T4", "Tesla V100-PCIE-32GB", "NVIDIA A100-PCIE-40GB"])
def test_long_products_under_a_cap_take_what_was_measured(gpu, neusight2025):
    """A T4 was said to draw 13 W without work, where nvidia-smi shows 27 W: products came out 16 % too quick."""
    columns = ["gpu", "operation", "latency_ms", "M", "N", "K"]
    table = pd.read_parquet(neusight2025 / "operations.parquet", columns=columns)
    mine = table[(table.gpu == gpu) & (table.operation == "linear") & (table.latency_ms > 20)].sort_values("latency_ms")
    some = mine.iloc[:: len(mine) // 60]
    predictor = find_predictor(gpu, "inference")
    ratios = []
    for row in some.itertuples():
        layer = Operation("linear", [(int(row.M), int(row.K))], {"out_features": int(row.N)})
        ratios.append(predictor.predict(Network.of([(layer, 20)])).device_time_s / 20 / (row.latency_ms / 1e3))
    assert np.median(ratios) == pytest.approx(1.0, abs=0.1)
