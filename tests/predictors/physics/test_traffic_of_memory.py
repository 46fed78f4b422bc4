"""The bytes that each memory level serves, and the energy of an access to it, counted by hand."""

from dataclasses import replace

import pytest
from round_gpu import ROUND

from joulecast.hardware import find_gpu, gpus
from joulecast.hardware.gpu import MEMORY_LEVELS
from joulecast.operations.operation import Operation
from joulecast.predictors.physics.memory_traffic import AccessEnergies, traffic_bytes

FP32, FP16 = 4, 2


def served(kind, shapes, attributes=None, **more):
    """Bytes from shared memory, L1, L2 and DRAM."""
    operation = Operation(kind, shapes, attributes or {}, **{"precision": "fp32", **more})
    return tuple(traffic_bytes([operation], ROUND)[0].tolist())


def test_a_window_reads_each_element_several_times_all_but_once_from_l1():
    """4 x 4 elements pooled by 2 x 2 without overlap: 4 outputs of 4 elements each. None is read twice."""
    image = (1, 1, 4, 4)
    assert served("max_pool2d", [image], {"kernel_size": 2}) == (0, 0, 0, (16 + 4) * FP32)
    # In steps of 1 there are 3 x 3 outputs, which read 36 elements; the first readings of 16 come from DRAM.
    expected = (0, (36 - 16) * FP32, 0, (16 + 9) * FP32)
    assert served("max_pool2d", [image], {"kernel_size": 2, "stride": 1}) == expected


def convolution(channels, groups):
    attributes = {"out_channels": channels, "kernel_size": 3, "padding": 1, "groups": groups, "bias": False}
    return served("conv2d", [(1, channels, 8, 8)], attributes)


def test_only_convolutions_with_one_channel_in_each_group_slide():
    """Two channels of 8 x 8, each with a window of 3 x 3: 1152 multiplications, and 128 elements and 18 weights."""
    shared, l1, l2, _ = convolution(2, groups=2)
    assert (shared, l1, l2) == (0, (1152 - 128 - 18) * FP32, 0)
    # With two channels in each of two groups, or a single group, it is a product.
    assert [convolution(*sizes)[1] for sizes in ((4, 2), (1, 1), (2, 1))] == [0, 0, 0]


@pytest.mark.parametrize(("precision", "size", "per_product"), [("fp32", FP32, 16 / 64), ("fp16", FP16, 128 / 64**2)])
def test_a_product_loads_tiles_of_128_rows_and_columns(precision, size, per_product):
    """256 x 256 x 512: 2 x 2 tiles, each of which loads 128 rows and columns; the first reading comes from DRAM.

    They are stored in shared memory once. A thread reads 8 + 8 elements for 64 multiplications, and a part of 64 x 64
    sums on tensor cores 64 + 64 elements for each step.
    """
    sizes = [(256, 512), (512, 256)]
    loaded, read, written = 4 * (128 + 128) * 512 * size, 2 * 256 * 512 * size, 256 * 256 * size
    shared, l1, l2, dram = served("matmul", sizes, precision=precision)
    assert (l1, l2, dram) == (0, loaded - read, read + written)
    assert shared == loaded + 256 * 256 * 512 * per_product * size
    # Both gradients are products of the same size.
    assert served("matmul", sizes, precision=precision, mode="training")[0] == pytest.approx(3 * shared)


def test_products_with_fewer_rows_than_a_thread_computes_do_not_use_shared_memory():
    """Of two products of 8 x 16 by 16 x 8, a tile each, all 16 x (8 + 8) elements are loaded once."""
    loaded = 2 * 16 * (8 + 8) * FP32
    # There are 2 x 8 x 8 x 16 multiplications, and a thread reads 16 elements for 64.
    shared = loaded + 2 * 8 * 8 * 16 * 16 / 64 * FP32
    assert served("matmul", [(2, 8, 16), (2, 16, 8)]) == (shared, 0, 0, loaded + 2 * 8 * 8 * FP32)
    assert served("matmul", [(7, 16), (16, 64)])[0] == 0
    assert served("matmul", [(64, 16), (16, 7)])[0] == 0
    assert served("matmul", [(8, 1), (1, 8)])[0] == pytest.approx((8 + 8 + 8 * 8 * 16 / 64) * FP32)
    # One row of a decoding step reads each weight once; its eight tiles read the one row.
    step = served("linear", [(1, 1024)], {"out_features": 1024, "bias": False}, precision="fp16")
    assert (step[0], step[2]) == (0, 7 * 1024 * FP16)


# Of 32 bytes, in joules, on an A100 at 1410 MHz (Delestrac et al., ASAP 2024).
A100_J = {"shared": 82.1e-12, "l1": 107e-12, "l2": 368e-12, "dram": 2090e-12}
LOGIC = ("shared", "l1", "l2")


@pytest.mark.parametrize(
    ("changes", "clock_mhz", "logic", "memory"),
    [
        pytest.param({}, 2000.0, 1, 1, id="7 nm, HBM, and the highest voltage, as the A100"),
        pytest.param({"memory_type": "HBM3"}, 2000.0, 1, 1, id="other HBM"),
        pytest.param({"memory_type": "GDDR6"}, 2000.0, 1, 110 / 62, id="110 pJ for a byte of GDDR, and 62 for HBM"),
        pytest.param({"process": "TSMC 12FFN"}, 1000.0, 1.8 * 0.8**2, 1, id="12 nm at 0.8 of the voltage"),
    ],
)
def test_energies_scale_with_process_voltage_and_type_of_memory(changes, clock_mhz, logic, memory):
    found = AccessEnergies.of(replace(ROUND, **changes), clock_mhz)
    scaled = {level: A100_J[level] * (logic if level in LOGIC else memory) for level in A100_J}
    assert found.joules == pytest.approx(scaled)
    assert (found.measured, found.source) == (False, "the A100's, scaled by process and type of memory (prior)")
    # The logic is known to within a factor of 1.6, and memory to within 1.4.
    assert found.spread == {**dict.fromkeys(LOGIC, 1.6), "dram": 1.4}


def test_what_was_measured_on_a_gpu_holds_for_it():
    measured = {"shared": 1e-12, "l1": 2e-12, "l2": 3e-12, "dram": 4e-12}
    found = AccessEnergies.of(replace(ROUND, access_energy_j=measured, memory_type="GDDR6"), 2000.0)
    assert found.joules == pytest.approx(measured)
    assert found.spread == dict.fromkeys(A100_J, 1.1)
    assert (found.measured, found.source) == (True, "measured on a GPU of this kind (its sources say by whom)")
    a100 = find_gpu("A100 PCIe 40GB")
    assert AccessEnergies.of(a100, 1410.0).joules == pytest.approx(A100_J)
    # On-chip levels by the square of the voltage: 693.75 mV below the knee, 894 at the top. Memory has its own supply.
    slower = AccessEnergies.of(a100, 900.0).joules
    assert (slower["l2"], slower["dram"]) == pytest.approx((368e-12 * (693.75 / 894) ** 2, 2090e-12), rel=1e-3)


def test_every_gpu_has_energies_that_grow_with_the_distance():
    for gpu in gpus().values():
        joules = AccessEnergies.of(gpu, float(gpu.boost_clock_mhz)).joules
        assert 0 < joules["shared"] < joules["l1"] < joules["l2"] < joules["dram"], gpu.name
        assert [*joules] == list(MEMORY_LEVELS)
