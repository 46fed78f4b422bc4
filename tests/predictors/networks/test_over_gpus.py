"""A network on several GPUs at once is the network on each of them."""

import numpy as np
import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.predictors.networks.prepared import over_clocks, over_gpus
from joulecast.queries.evaluation import clock_grid_mhz
from joulecast.zoo import find_predictor

GPUS = ("A30", "T4", "H100 SXM", "A100 PCIe 40GB", "MI300X", "RTX 2080 Ti")


def asked(mode="inference", cap=1.0, precision="default"):
    """The network on each GPU, the further down the list the fewer clocks."""
    network = joulecast.extract("resnet18", (32, 3, 128, 128), mode=mode, precision=precision)
    for place, name in enumerate(GPUS):
        gpu = find_gpu(name)
        cap_w = None if gpu.power_range_w is None else max(gpu.power_range_w[0], cap * gpu.power_limit_w)
        yield find_predictor(gpu, mode).prepared(network, cap_w), clock_grid_mhz(gpu)[:: place + 1]


@pytest.mark.parametrize(
    ("mode", "cap", "precision"),
    [("inference", 1.0, "default"), ("inference", 0.6, "fp16"), ("training", 0.8, "default")],
)
def test_together_as_each_alone(mode, cap, precision):
    together = over_gpus([*asked(mode, cap, precision)])
    assert [over.knowledge.operations.gpu.aliases[0] for over in together] == list(GPUS)
    for over, (prepared, clocks) in zip(together, asked(mode, cap, precision), strict=True):
        alone = over_clocks(prepared, clocks)
        assert over.clocks_mhz.tolist() == clocks.tolist()
        for name in ("time_s", "energy_j", "device_time_s", "held_clocks_mhz", "shared_mhz"):
            assert getattr(over, name) == pytest.approx(getattr(alone, name), rel=1e-12)
        one = prepared.at(float(clocks[-1]))
        assert (over.time_s[-1], over.energy_j[-1]) == pytest.approx((one.time_s, one.energy_j), rel=1e-9)


def test_a_cap_lowers_the_clock_of_those_that_exceed_it_alone():
    held = {over.knowledge.operations.gpu.aliases[0]: over for over in over_gpus([*asked(cap=0.5)])}
    free = {over.knowledge.operations.gpu.aliases[0]: over for over in over_gpus([*asked(cap=1.0)])}
    lowered = {name for name in GPUS if held[name].shared_mhz[-1] < free[name].shared_mhz[-1]}
    assert lowered
    for name in GPUS:
        assert (held[name].shared_mhz <= held[name].clocks_mhz).all()
        assert np.all(held[name].energy_j <= 1.0001 * held[name].power_limit_w * held[name].time_s)
