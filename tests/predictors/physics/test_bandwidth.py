"""What copies reach of the bandwidth, by type of memory: shares as bandwidth.py gives their sources."""

import dataclasses

import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.predictors.physics.bandwidth import reached_bandwidth


@pytest.mark.parametrize(
    ("name", "gigabytes_per_s"),
    [
        # First HBM: 0.76 of 732. HBM2 and later: 0.91 of 900 and 3350.
        ("P100 PCIe", 0.76 * 732),
        ("V100 PCIe 16GB", 0.91 * 900),
        ("H100 SXM", 0.91 * 3350),
        # GDDR that corrects errors: 0.76 of 320. GeForce, that does not: 0.9 of 1008.
        ("T4", 0.76 * 320),
        ("RTX 4090", 0.9 * 1008),
        # Workstations: GDDR6 with error correction switched off, and GDDR7 that has bits for it.
        ("RTX A6000", 0.9 * 768),
        ("RTX PRO 6000 Server", 0.9 * 1597),
        # AMD: 0.85 of 5300.
        ("MI300X", 0.85 * 5300),
    ],
)
def test_reached_bandwidth(name, gigabytes_per_s):
    assert reached_bandwidth(find_gpu(name)) == pytest.approx(1e9 * gigabytes_per_s, rel=0.005)


def test_error_correction_in_the_memory_itself_takes_a_part():
    plain = dataclasses.replace(ROUND, memory_type="GDDR6")
    assert reached_bandwidth(plain) == pytest.approx(0.9e11)
    assert reached_bandwidth(dataclasses.replace(plain, inline_ecc=True)) == pytest.approx(0.76e11)
