"""The numbers of the example in docs/how-it-works.md are those that joulecast computes."""

from pathlib import Path

import pytest

import joulecast
from joulecast.hardware import find_gpu
from joulecast.zoo import entries

TEXT = (Path(__file__).parents[1] / "docs" / "how-it-works.md").read_text()
EXAMPLE = TEXT.partition("## An example")[2].partition("## 1.")[0]
pytestmark = pytest.mark.skipif("a30/forest-inference" not in entries(), reason="the zoo has no predictor of the A30")


def in_steps(*numbers: str) -> None:
    words = " ".join(EXAMPLE.split())
    assert [number for number in numbers if number not in words] == []


@pytest.fixture(scope="module")
def network():
    return joulecast.extract("resnet50", (32, 3, 224, 224))


@pytest.fixture(scope="module")
def convolution(network):
    (entry,) = [e for e in network if e.module_paths == tuple(f"layer1.{block}.conv2" for block in range(3))]
    assert entry.count == 3
    return entry.operation


def test_operation_and_roofline(network, convolution):
    gpu = find_gpu("A30")
    bandwidth = gpu.memory_bandwidth
    moved = convolution.bytes_read + convolution.bytes_written
    in_steps(
        f"{len(network)} distinct operations",
        f"called {network.calls} times",
        f"{convolution.flops / 1e9:.2f} GFLOP",
        f"reads {convolution.bytes_read / 1e6:.1f} MB and writes {convolution.bytes_written / 1e6:.1f} MB",
        f"{gpu.peak_flops['tf32'] / 1e12:.0f} TFLOP/s take {1e6 * convolution.flops / gpu.peak_flops['tf32']:.0f} µs",
        f"{moved / 1e6:.1f} MB at {bandwidth / 1e9:.0f} GB/s take {1e6 * moved / bandwidth:.0f} µs",
        f"{gpu.boost_clock_mhz} MHz",
    )
    assert joulecast.explain(convolution, "A30").bound_by == "compute"


def test_the_convolution(convolution):
    found = joulecast.predict_operations([convolution], "A30")
    time_us, host_us = 1e6 * found.time_s[0], 1e6 * found.host_time_s[0]
    in_steps(
        f"predicts {time_us:.0f} µs",
        f"needs {host_us:.0f} µs to launch",
        f"{found.power_w[0]:.1f} W x {time_us:.0f} µs = {1e3 * found.energy_j[0]:.1f} mJ",
        f"draws {found.static_power_w:.1f} W even while it waits",
        f"{1e3 * found.dynamic_energy_j[0]:.1f} mJ are left",
    )
    slower = joulecast.predict_operations([convolution], "A30", 900)
    in_steps(f"takes {1e6 * slower.time_s[0]:.0f} µs and {1e3 * slower.energy_j[0]:.1f} mJ")


def test_the_network(network):
    found, slower = (joulecast.predict(network, gpu="A30", clock=clock) for clock in (None, 900))
    in_steps(
        f"busy for {1e3 * found.device_time_s:.1f} ms",
        f"needs {1e3 * found.host_time_s:.1f} ms to launch",
        f"takes {1e3 * found.time_s:.1f} ms",
        f"{found.energy_j:.2f} J / {1e3 * found.time_s:.1f} ms = {found.power_w:.0f} W",
        f"the network {1e3 * slower.time_s:.1f} ms and {slower.energy_j:.2f} J",
    )
