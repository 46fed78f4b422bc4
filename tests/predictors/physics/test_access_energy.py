"""The energy of an access to each memory level, scaled by hand from what was measured on an A100 at 1410 MHz."""

from dataclasses import replace

import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu
from joulecast.predictors.physics.access_energy import AccessEnergies

# Of 32 bytes, in joules (Delestrac et al., ASAP 2024).
A100_J = {"shared": 82.1e-12, "l1": 107e-12, "l2": 368e-12, "dram": 2090e-12}


def of(**changes):
    return AccessEnergies.of(replace(ROUND, **changes), 2000.0)


def test_a_chip_like_that_of_the_a100_has_its_energies():
    """7 nm, HBM, and the highest voltage."""
    found = of()
    assert found.joules == pytest.approx(A100_J)
    assert found.measured is False
    assert found.source == "the A100's, scaled by process and type of memory (prior)"
    # The logic is known to within a factor of 1.6, and memory to within 1.4.
    assert found.spread == {"shared": 1.6, "l1": 1.6, "l2": 1.6, "dram": 1.4}


def test_logic_scales_with_process_and_voltage_and_memory_does_not():
    """At 1000 MHz the voltage is 0.8 of the highest. Logic of 12 nm takes 1.8 times as much as that of 7 nm."""
    older = AccessEnergies.of(replace(ROUND, process="TSMC 12FFN"), 1000.0)
    expected = {level: A100_J[level] * 1.8 * 0.8**2 for level in ("shared", "l1", "l2")}
    assert older.joules == pytest.approx({**expected, "dram": A100_J["dram"]})


@pytest.mark.parametrize(("memory", "factor"), [("HBM3", 1.0), ("GDDR6", 110 / 62)])
def test_memory_scales_with_its_type(memory, factor):
    """110 pJ for a byte of GDDR, and 62 pJ for one of HBM."""
    found = of(memory_type=memory)
    assert found.joules["dram"] == pytest.approx(A100_J["dram"] * factor)
    assert found.joules["l2"] == pytest.approx(A100_J["l2"])


def test_what_was_measured_on_a_gpu_holds_for_it():
    found = of(access_energy_j={"shared": 1e-12, "l1": 2e-12, "l2": 3e-12, "dram": 4e-12}, memory_type="GDDR6")
    assert found.joules == pytest.approx({"shared": 1e-12, "l1": 2e-12, "l2": 3e-12, "dram": 4e-12})
    assert found.spread == dict.fromkeys(A100_J, 1.1)
    assert found.measured is True
    assert found.source == "measured on a GPU of this kind (its sources say by whom)"
    assert AccessEnergies.of(find_gpu("A100 PCIe 40GB"), 1410.0).joules == pytest.approx(A100_J)
