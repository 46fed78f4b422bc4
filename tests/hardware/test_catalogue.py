"""The GPU catalogue: every entry is compared with the others and with arithmetic."""

import re
from dataclasses import replace

import pytest

from joulecast.errors import InputError
from joulecast.hardware import find_gpu, full_rates, gpus, same_boards
from joulecast.hardware.description import multiprocessors
from joulecast.predictors.networks.memory import usable_bytes

EACH = pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.slug)


def lanes(gpu):
    """fp32 lanes of a multiprocessor or Xe core; on AMD those of a compute unit's matrix units."""
    return 64 if gpu.compute_capability in ("6.0", "7.0", "7.5", "8.0") else 128


# fp16 over fp32 per multiprocessor and clock, with fp32 accumulation; boards named below run it at half.
FP16 = {"Pascal": 1, "Volta": 8, "Turing": 8, "Ampere": 4, "Ada Lovelace": 4, "Hopper": 16, "Blackwell": 4}
FP16 |= {"CDNA": 4, "CDNA 2": 4, "CDNA 3": 8, "CDNA 4": 16, "Xe HPC": 16, "Xe HPG": 8, "Xe2 HPG": 8}
FP16_OF_CHIP = {"GA10B": 8, "GA100": 16, "GB100": 32, "GB110": 32}


def fp16_over_fp32(gpu):
    if gpu.name == "NVIDIA H20":  # Cut to meet export rules of 2023: about a quarter of the 16 of its siblings.
        return 3.75
    full = FP16_OF_CHIP.get(gpu.chip, FP16[gpu.architecture])
    return full / 2 if "GeForce" in gpu.name or gpu.name in ("NVIDIA L40", "NVIDIA A10G") else full


@EACH
def test_figures_are_of_the_right_size_and_have_sources_and_names(gpu):
    assert gpu.min_clock_mhz < gpu.boost_clock_mhz <= gpu.max_clock_mhz
    assert gpu.min_clock_mhz < (gpu.base_clock_mhz or gpu.boost_clock_mhz) <= gpu.boost_clock_mhz
    assert 1e11 < gpu.memory_bandwidth < 2e13
    assert 1e12 < gpu.peak_flops["fp32"] < 1e15
    assert gpu.sources
    assert all(len(source) > 20 for source in gpu.sources)
    assert gpu.process
    assert "2016-01" <= gpu.released <= "2025-12"
    assert gpu.memory_type
    assert (gpu.idle_power_w or 1) < 0.5 * gpu.power_limit_w
    if gpu.clock_step_mhz and gpu.clock_step_mhz == 15:
        assert not {gpu.min_clock_mhz % 15, gpu.boost_clock_mhz % 15, gpu.max_clock_mhz % 15} - {0}
    assert gpu.memory_bandwidth == pytest.approx(gpu.memory_bus_bits * gpu.memory_rate / 8, rel=0.01)
    # Only GDDR corrects errors in itself.
    assert not gpu.inline_ecc or gpu.memory_type in ("GDDR5", "GDDR6")
    assert gpu.has_hbm is (gpu.memory_bus_bits > 1000)
    assert all(find_gpu(alias) is gpu for alias in (gpu.name, *gpu.aliases))
    assert re.fullmatch(r"[a-z0-9-]+", gpu.slug)


@EACH
def test_fp32_is_two_flops_per_lane_and_clock(gpu):
    found = gpu.peak_flops["fp32"] / (2 * gpu.boost_clock_mhz * 1e6 * gpu.sms)
    assert found == pytest.approx(lanes(gpu), rel=0.02)
    if gpu.vector_flops:
        # On CDNA 1 and 2 the vector units have half the lanes of the matrix units.
        assert gpu.vector_flops["fp32"] / gpu.peak_flops["fp32"] == pytest.approx(
            0.5 if gpu.architecture in ("CDNA", "CDNA 2") else 1, rel=0.01
        )


@EACH
def test_tensor_rates_are_multiples_of_fp32_at_their_clock(gpu):
    slower = (gpu.tensor_clock_mhz or gpu.boost_clock_mhz) / gpu.boost_clock_mhz
    fp32 = 2 * lanes(gpu) * gpu.sms * gpu.boost_clock_mhz * 1e6
    assert gpu.peak_flops["fp16"] / (fp32 * slower) == pytest.approx(fp16_over_fp32(gpu), rel=0.03)
    if "bf16" in gpu.peak_flops:
        assert gpu.peak_flops["bf16"] == gpu.peak_flops["fp16"] / (2 if gpu.architecture == "CDNA" else 1)
    if "tf32" in gpu.peak_flops:
        assert gpu.peak_flops["tf32"] == pytest.approx(gpu.peak_flops["fp16"] / 2, rel=0.02)
    old = gpu.architecture in ("Pascal", "Volta", "Turing")
    assert ("bf16" in gpu.peak_flops) is not old
    assert ("tf32" in gpu.peak_flops) is (not old and gpu.is_nvidia)
    assert set(gpu.tensor_precisions or ()) <= set(gpu.peak_flops)


def quantized_over_fp16(gpu):
    """fp8, nvfp4 and int8 over fp16 with fp32 accumulation: twice for each halving, where nothing is cut."""
    geforce = "GeForce" in gpu.name
    fp8 = {"Ada Lovelace": 2, "Hopper": 2, "Blackwell": 2, "CDNA 3": 2, "CDNA 4": 2}.get(gpu.architecture)
    # GeForce boards halve fp16 and fp8 for their accumulation in fp32, int8 and FP4 they do not; Blackwell Ultra has
    # half as much again of FP4, and hardly int8; Pascal has instructions for four products of int8 at once.
    int8 = {"Volta": None, "Pascal": 4, "CDNA": 1, "CDNA 2": 1}.get(gpu.architecture, 4 if geforce else 2)
    nvfp4 = (8 if geforce else 4) if gpu.architecture == "Blackwell" else None
    if gpu.chip == "GB110":
        int8, nvfp4 = 0.066, 6
    if gpu.chip == "GP100":
        int8 = None
    return {"fp8": fp8, "nvfp4": nvfp4, "int8": int8}


@EACH
def test_quantized_rates_are_multiples_of_fp16(gpu):
    for precision, ratio in quantized_over_fp16(gpu).items():
        assert (precision in gpu.peak_flops) is (ratio is not None)
        if ratio is not None:
            assert gpu.peak_flops[precision] / gpu.peak_flops["fp16"] == pytest.approx(ratio, rel=0.04)


@EACH
def test_memory_of_a_multiprocessor_follows_its_generation_and_l2_the_slices_of_its_die(gpu):
    known = multiprocessors()[gpu.compute_capability]
    assert (gpu.l1_bytes, gpu.shared_memory_bytes) == (known["l1_bytes"], known["shared_memory_bytes"])
    assert len(known["source"]) > 20
    unified = gpu.is_nvidia and float(gpu.compute_capability) >= 7
    assert not unified or 0.6 < gpu.shared_memory_bytes / gpu.l1_bytes < 0.95
    assert gpu.l2_bytes > gpu.l1_bytes
    mebibytes, kilobits = DIES[gpu.chip]
    shares = [share for name, share in FEWER_SLICES.items() if find_gpu(name) is gpu]
    share = shares[0] if shares else gpu.memory_bus_bits / 1024 / kilobits
    assert gpu.l2_bytes == mebibytes * share * 2**20


# MiB of L2 of whole dies, and the kilobits of their memory interface, as the white papers of the generations draw them;
# of B200 and its successors, what CUDA reports.
DIES = {
    "GP104": (2, 0.25), "GP100": (4, 4), "GV100": (6, 4), "TU104": (4, 0.25), "TU102": (6, 0.375), "GA100": (48, 6),
    "GA102": (6, 0.375), "GA104": (4, 0.25), "GA106": (3, 0.1875), "GA107": (2, 0.125), "GA10B": (4, 0.25),
    "AD102": (96, 0.375), "AD103": (64, 0.25), "AD104": (48, 0.1875), "AD107": (32, 0.125), "GH100": (60, 6),
    "GB100": (126.5, 8), "GB110": (126.5, 8), "GB202": (128, 0.5), "GB203": (64, 0.25),
    "Arcturus": (8, 4), "Aldebaran": (8, 4), "Aqua Vanjaram": (32, 8), "MI350": (32, 8),
    "Ponte Vecchio": (408, 8), "ACM-G10": (16, 0.25), "BMG-G21": (18, 0.1875),
}  # fmt: skip
# Boards with fewer slices than their memory interface would have. H100 and H200 have 50 of 60 MiB.
FEWER_SLICES = {"RTX 4060": 0.75, "RTX 4070": 0.75, "RTX 4090": 0.75, "RTX 5090": 0.75}
FEWER_SLICES |= dict.fromkeys(["H100 NVL", "H200", "H200 NVL"], 50 / 60)
FEWER_SLICES["Max 1100"] = 108 / 408
FEWER_SLICES["B200"] = 1.0  # All of it, although the memory runs on 7,680 of 8,192 bits.


@EACH
def test_links_are_what_their_lanes_give(gpu):
    # PCI Express: 8, 16 or 32 Gbit/s in each direction of a lane, 128 of 130 bits of which are data.
    lanes = {16 * rate * 128 / 130 / 8 for rate in (8, 16, 32)} | {8 * 16 * 128 / 130 / 8}
    if gpu.pcie_bandwidth is not None:
        assert min(abs(gpu.pcie_bandwidth / 1e9 / each - 1) for each in lanes) < 1e-3
    if gpu.link_bandwidth is not None:
        # NVLink 1: 20 GB/s each way of a link, then 25, and 50 since the fifth; bridges of GA102 have four of 14.
        link = {"Pascal": 20, "Blackwell": 50}.get(gpu.architecture, 14.0625 if gpu.chip == "GA102" else 25)
        assert not gpu.is_nvidia or (gpu.link_bandwidth / 1e9) % link == 0
        assert gpu.link_bandwidth < gpu.memory_bandwidth


@EACH
def test_curves_rise_and_stay_below_the_cap(gpu):
    clocks = range(gpu.min_clock_mhz, gpu.max_clock_mhz + 1, 15)
    for curve, most in ((gpu.idle_curve, 0.5 * gpu.power_limit_w), (gpu.voltage, 1200)):
        if curve is not None:
            values = [curve.at(clock) for clock in clocks]
            assert values == sorted(values)
            assert 20 < values[0] <= values[-1] < most


# Bytes that `nvidia-smi` shows over those as sold: 15/16, where error correction takes a part.
SHOWN_MIB = [
    ("T4", 15360, True), ("A10", 23028, True), ("A40", 46068, True), ("L4", 23034, True), ("L40S", 46068, True),
    ("RTX A6000", 49140, False), ("RTX 6000 Ada", 49140, False), ("RTX PRO 6000 Server", 97887, False),
    ("RTX 4090", 24564, False), ("A30", 24576, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shown_mib", "inline"), SHOWN_MIB, ids=[row[0] for row in SHOWN_MIB])
def test_error_correction_takes_the_memory_that_the_driver_does_not_show(name, shown_mib, inline):
    gpu = find_gpu(name)
    assert gpu.inline_ecc is inline
    assert usable_bytes(gpu) / 2**20 == pytest.approx(shown_mib, rel=0.005)


def test_boards_are_told_apart_by_their_figures():
    """An H800 is an H100 SXM but for its links and fp64; all other boards of the catalogue differ."""
    alike = {frozenset(each.aliases[0] for each in same_boards(gpu)) for gpu in gpus().values()}
    assert {names for names in alike if len(names) > 1} == {frozenset({"H100 SXM", "H800"})}
    assert same_boards(find_gpu("H800"))[0] is find_gpu("H800")
    assert same_boards(replace(find_gpu("A30"), name="mine", aliases=("mine",))) == (find_gpu("A30"),)
    assert same_boards(replace(find_gpu("A30"), power_limit_w=150)) == ()


def test_folded_names_and_slugs_are_unique():
    owners = {}
    for gpu in gpus().values():
        for name in {gpu.name, *gpu.aliases}:
            owners.setdefault("".join(c for c in name.lower() if c.isalnum()), set()).add(gpu.name)
    assert all(len(owner) == 1 for owner in owners.values())
    assert len({gpu.slug for gpu in gpus().values()}) == len(gpus())


# Points of energaizer2026: clock -> millivolts or watts, and how close the curves are to all of its 81 to 110 points.
CURVES = [
    ("A100 PCIe 40GB", "voltage", 0.012, {210: 693.75, 960: 693.75, 1110: 725.0, 1260: 787.5, 1410: 893.75}),
    ("A100 PCIe 80GB", "voltage", 0.010, {210: 743.75, 1110: 743.75, 1260: 818.75, 1410: 918.75}),
    ("A100 PCIe 40GB", "idle_curve", 0.020, {210: 44.47, 795: 46.65, 990: 47.95, 1185: 52.9, 1380: 64.77}),
    ("A100 PCIe 80GB", "idle_curve", 0.012, {210: 60.28, 795: 63.0, 990: 64.2, 1185: 68.04, 1380: 79.57}),
    ("H100 SXM", "idle_curve", 0.025, {615: 72.27, 1155: 76.38, 1425: 90.35, 1695: 109.7, 1965: 120.11}),
]


@pytest.mark.parametrize(("name", "field", "within", "points"), CURVES)
def test_curves_are_as_close_to_measurements_as_they_say(name, field, within, points):
    curve = getattr(find_gpu(name), field)
    assert {clock: curve.at(clock) for clock in points} == pytest.approx(points, rel=within)


@pytest.mark.parametrize("wrong", [0, 5, 100, 1441, -5, "fast", float("nan"), True], ids=str)
def test_clocks_and_caps_out_of_range_are_refused(wrong):
    assert find_gpu("A30").checked_clock_mhz(None) == 1440.0
    with pytest.raises(InputError, match="cannot hold"):
        find_gpu("A30").checked_clock_mhz(wrong)
    with pytest.raises(InputError, match=r"cannot be capped(?s:.*)165 W"):
        find_gpu("A30").checked_power_limit_w(float("inf") if wrong in (100, 1441) else wrong)


# A cap above the range cannot bind, so it is met. The makers of the boards of an RTX 5080 allow different caps.
CAPS = [("A30", None, 165), ("A10", 100, 100), ("T4", 150, 70), ("A30", 166, 165), ("RTX 5080", 400, 400)]


def test_caps_that_can_be_set():
    assert [find_gpu(name).checked_power_limit_w(cap) for name, cap, _ in CAPS] == [held for *_, held in CAPS]
    with pytest.raises(InputError, match="100 to 150 W"):
        find_gpu("A10").checked_power_limit_w(99)


# TF32 is only a permission: GPUs without it run in fp32.
TENSOR_CORES = {"P4": "", "P100 PCIe": "", "T4": "fp16", "A30": "tf32 fp16 bf16", "MI210": "fp16 bf16"}


def test_the_catalogue_says_what_runs_on_tensor_cores_and_in_which_precision():
    for name, precisions in TENSOR_CORES.items():
        for precision in ("fp32", "tf32", "fp16", *(["bf16"] if "bf16" in precisions else [])):
            assert find_gpu(name).on_tensor_cores(precision) is (precision in precisions.split())
            assert find_gpu(name).running_precision(precision) == (
                "fp32" if precision == "tf32" and "tf32" not in precisions else precision
            )
    for refuses in (find_gpu("P4").on_tensor_cores, find_gpu("T4").running_precision):
        with pytest.raises(InputError, match="does not support bf16"):
            refuses("bf16")


def test_generations_are_numbers_and_other_makers_count_as_nvidias_of_their_time():
    """The MI200 as an A100, the MI300 as an H100; boards of one family are of one generation."""
    names = ("T4", "B200", "B300", "MI210", "MI300X")
    assert [find_gpu(name).generation for name in names] == [7.5, 10.0, 10.0, 8.0, 9.0]


@pytest.mark.parametrize(
    ("name", "precision", "rate"),
    [
        # Tensor cores of Ada compute 1024 FLOPs per cycle and multiprocessor in half precision (RTX 6000 Ada: 364.2
        # TFLOP/s over 142 multiprocessors at 2505 MHz). GeForce and the L40 are sold with half of it.
        ("RTX 4090", "fp16", 1024),
        ("L40", "bf16", 1024),
        ("L40", "fp8", 2048),
        ("L40S", "bf16", 1024),
        # An H20 has the multiprocessors of an H100: 989.4 TFLOP/s over 132 at 1830 MHz.
        ("H20", "bf16", 4096),
        ("P4", "fp32", 256),
    ],
)
def test_what_multiprocessors_are_built_for(name, precision, rate):
    assert full_rates(find_gpu(name))[precision] == pytest.approx(rate, rel=0.002)
