"""Device times of kernels: physics by hand, models fitted to simulated GPUs, and the basis of each prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_kernels

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.any_gpu.predictor import AnyGpuPredictor
from joulecast.predictors.any_gpu.roofline import NoResidual
from joulecast.predictors.evaluation.kernels import coverage, stored_errors, tables, validate_kernels
from joulecast.predictors.kernels.basis import basis_of
from joulecast.predictors.kernels.convolution import CONVOLUTION
from joulecast.predictors.kernels.experts import EXPERTS
from joulecast.predictors.kernels.families import FAMILIES
from joulecast.predictors.kernels.fit import Measured, by_variant, fit_kernels, fit_variant
from joulecast.predictors.kernels.linear import LINEAR
from joulecast.predictors.kernels.pointwise import POINTWISE
from joulecast.predictors.kernels.products import CONSTANTS, Machine, Products, capped_s, product_s
from joulecast.predictors.recipes import KernelRecipe, KernelTrees

pytest.importorskip("xgboost", reason="fits boosted trees")
pytest.importorskip("scipy", reason="fits constants")

TREES = KernelTrees(trees=30, depth=4, learning_rate=0.2, min_child_weight=5.0)
RECIPE = KernelRecipe(generation=TREES, other_generations=TREES, folds=4)
H100, H200, A100, B200 = map(find_gpu, ("H100 SXM", "H200", "A100 SXM4 80GB", "B200"))


def linear(rows, columns, reduction, precision="bf16", **attributes):
    attributes = {"out_features": columns, "bias": False, **attributes}
    return Operation("linear", [(rows, reduction)], attributes, precision=precision)


# launch, tile, FLOPs per loaded byte (next to nothing is loaded), split (never), full rates, exponent (the longer of
# both counts), L2 without limit, one working set, FLOPs without energy, and bursts of half a millisecond
PLAIN = np.array([1000.0, 100.0, 1e-9, 1e12, 1.0, 1.0, 40.0, 1e12, 1.0, 1e-9, 5e-4])


def products(rows, columns, reduction, input_bytes=2.0):
    return Products(*(np.array([float(n)]) for n in (rows, columns, reduction)), input_bytes)


def test_a_product_by_hand():
    machine = Machine(sms=4, clock_hz=1e9, flops_per_cycle=1024.0, bandwidth=1e12, l2_bytes=1e3)
    # Four tiles of 128 x 128, one on each multiprocessor: 2 x 128 x 128 x 1024 FLOPs at 1024 a cycle, then overheads.
    cycles = 2 * 128 * 128 * 1024 / 1024 + 100 + 1000
    assert product_s(products(256, 256, 1024), machine, PLAIN) == pytest.approx(cycles / 1e9)
    # One column more: large tiles need another wave; of the sizes that there are 64 x 16 is best, 4 x 17 tiles.
    cycles = 17 * (2 * 64 * 16 * 1024 / 1024 + 100) + 1000
    assert product_s(products(256, 257, 1024), machine, PLAIN) == pytest.approx(cycles / 1e9, rel=1e-6)


@pytest.mark.parametrize(("input_bytes", "moved"), [(2.0, 134_350_848), (1.0, 67_240_960)])
def test_few_rows_take_as_long_as_their_weights_pass_the_memory(input_bytes, moved):
    machine = Machine(sms=4, clock_hz=1e9, flops_per_cycle=1e6, bandwidth=1e12, l2_bytes=1e3)
    # 1024 inputs, 65,536 x 1024 weights, 65,536 outputs of two bytes
    found = product_s(products(1, 65_536, 1024, input_bytes), machine, PLAIN)
    assert found == pytest.approx(moved / 1e12 + 1e-6, rel=1e-6)


def test_weights_that_fit_into_the_l2_are_read_from_there():
    slow = Machine(sms=4, clock_hz=1e9, flops_per_cycle=1e6, bandwidth=1e9, l2_bytes=1e3)
    large = replace(slow, l2_bytes=1e9)
    work = products(1, 4096, 1024)
    assert product_s(work, large, PLAIN) < 0.01 * product_s(work, slow, PLAIN)


def test_loops_use_copies_of_the_weights_and_the_same_rows_and_results():
    machine = Machine(sms=4, clock_hz=1e9, flops_per_cycle=1e9, bandwidth=1e9, l2_bytes=3e6)
    copies = np.where(np.arange(PLAIN.size) == 8, 5.0, PLAIN)
    many_rows, many_columns = products(16_384, 32, 32), products(32, 16_384, 32)
    # Both move 2.1 MB, of which the second factor is 2 kB or half.
    assert product_s(many_rows, machine, PLAIN) == pytest.approx(product_s(many_columns, machine, PLAIN))
    assert product_s(many_columns, machine, copies) > 2 * product_s(many_rows, machine, copies)


def test_rows_that_are_quantized_before_the_product_pass_the_memory_once_more():
    machine = Machine(sms=4, clock_hz=1e9, flops_per_cycle=1e6, bandwidth=1e12, l2_bytes=1e3)
    work = products(4096, 64, 1024, 1.0)
    more = replace(work, passed_bytes=np.array([4096 * 1024 * 3.0]))
    assert product_s(more, machine, PLAIN) - product_s(work, machine, PLAIN) == pytest.approx(4096 * 1024 * 3 / 1e12)


@pytest.mark.parametrize(
    ("compute_s", "rate", "seconds"),
    [
        (1e-3, 1024.0, 1.5e-3),  # 2 pJ x 1e12 FLOPs at 1000 W take 2 ms; half of the way after one burst
        (1e-9, 1024.0, 1e-9),  # in a burst the cap does not act
        (1e-3, 4096.0, 1e-3),  # with half the energy per FLOP the board draws exactly its cap
        (3e-3, 1024.0, 3e-3),  # 667 W
    ],
)
def test_a_power_cap_slows_long_products(compute_s, rate, seconds):
    machine = Machine(sms=4, clock_hz=1e9, flops_per_cycle=rate, bandwidth=1e12, l2_bytes=1e3, power_limit_w=1000.0)
    flops = 1e12 if compute_s >= 1e-3 else 1e6
    found = capped_s(np.array([compute_s]), np.array([flops]), machine, 2.0, 1e-3)
    assert found == pytest.approx([seconds], rel=1e-5)


def test_more_rows_never_take_less():
    rows = np.arange(1.0, 2000.0, 7.0)
    work = Products(rows, np.full_like(rows, 3584.0), np.full_like(rows, 2048.0))
    start = np.array([constant.start for constant in CONSTANTS])
    assert np.all(np.diff(product_s(work, Machine.of(H100, "bf16"), start)) >= 0)


@pytest.fixture(scope="module")
def measured():
    return by_variant([simulated_kernels(name) for name in ("H100 SXM", "H200", "A100 SXM4 80GB")])


@pytest.fixture(scope="module")
def kernels(measured):
    return fit_kernels(measured, RECIPE)


def test_sustained_runs_and_doubtful_weights_are_not_learned_from(measured):
    for table in measured["linear", "half"]:
        assert table.device_s.max() < 1.0  # sustained runs are simulated with 5 s, and those of vLLM with 7 s
    assert LINEAR.learns_from(linear(1, 32, 32, "fp8", implementation="vllm"))


def test_what_was_measured_is_predicted_closely(measured, kernels):
    for table in measured["linear", "half"]:
        error = np.abs(kernels.device_s(table.operations, table.gpu) / table.device_s - 1)
        assert np.median(error) < 0.03


def test_left_out_sizes_gpus_and_generations(measured):
    errors = validate_kernels(measured, RECIPE)
    assert {(each.basis, each.gpu) for each in errors} == {
        *(("measured", gpu.name) for gpu in (H100, H200, A100)),
        *(("same generation", gpu.name) for gpu in (H100, H200)),
        *(("other generations", gpu.name) for gpu in (H100, H200, A100)),
    }
    rows = tables(errors)["linear, half"]
    for label, (count, middle, mean) in rows.items():
        assert count > 0
        assert 0 < middle <= 2 * mean
        assert middle < (0.3 if label.startswith("other") else 0.05), label
    kept = {basis: each["time"] for basis, each in stored_errors(errors, ("linear", "half")).items()}
    assert set(kept) == {"measured", "same generation", "other generations"}
    assert all(np.all(np.diff(values) >= 0) for values in kept.values())
    assert coverage(errors)["linear, half"]["measured"] == pytest.approx(0.9, abs=0.2)


def test_a_prediction_names_the_measurements_behind_it(kernels):
    variant = kernels.variants["linear", "half"]
    assert [variant.basis(gpu) for gpu in (H100, find_gpu("H100 PCIe"), B200)] == [
        "measured",
        "same generation",
        "other generations",
    ]
    operations = OperationList([linear(32, 512, 512)])
    assert kernels.remarks(operations, H100) == (f"linear in half: measured on {H100.name}",)
    assert "predicted from NVIDIA H100 80GB HBM3, NVIDIA H200" in kernels.remarks(operations, find_gpu("H100 PCIe"))[0]
    assert kernels.remarks(OperationList([Operation("relu", [(8, 8)], precision="bf16")]), H100) == ()


def test_a_b300_runs_the_kernels_of_a_b200():
    assert basis_of(find_gpu("B300"), {B200.name}, {"10.0"}) == "same generation"
    assert basis_of(find_gpu("RTX PRO 6000 Blackwell Server Edition"), {B200.name}, {"10.0"}) == "other generations"


def test_only_fp16_and_bf16_stand_in_for_each_other(kernels):
    half = OperationList([linear(64, 1024, 1024, precision) for precision in ("bf16", "fp16")])
    assert len(set(kernels.device_s(half, H100).tolist())) == 1
    others = OperationList([linear(64, 1024, 1024, "fp8"), linear(64, 1024, 1024, "fp32")])
    assert np.isnan(kernels.device_s(others, H100)).all()


def test_a_predictor_for_any_gpu_uses_the_learned_kernels(kernels):
    operations = OperationList([linear(256, 4096, 4096), Operation("relu", [(256, 4096)], precision="bf16")])
    plain = AnyGpuPredictor(H100, "inference", NoResidual())
    asking = replace(plain, kernels=kernels)
    found, without = asking.predict(operations), plain.predict(operations)
    assert found.device_time_s[0] == pytest.approx(kernels.device_s(operations, H100)[0], rel=1e-6)
    assert found.device_time_s[1] == pytest.approx(without.device_time_s[1], rel=1e-9)
    assert asking.remarks(operations) == (f"linear in half: measured on {H100.name}",)
    assert "linear in half" in asking.coverage
    assert plain.remarks(operations) == ()


def test_a_quantized_layer_that_was_not_learned_is_missing(kernels):
    found = AnyGpuPredictor(H100, "inference", NoResidual(), kernels=kernels).predict([linear(64, 512, 512, "fp8")])
    assert found.source == ("missing",)
    assert np.isnan(found.time_s).all()


def test_half_the_clock_takes_longer_for_compute(kernels):
    predictor = AnyGpuPredictor(H100, "inference", NoResidual(), kernels=kernels)
    work = [linear(8192, 8192, 8192)]
    assert predictor.predict(work, 990).device_time_s[0] > 1.5 * predictor.predict(work).device_time_s[0]


def test_features_have_their_names():
    operations = OperationList([linear(3, 64, 96), linear(4096, 4096, 4096)])
    for family in FAMILIES.values():
        constants = np.array([constant.start for constant in family.constants])
        if family.variant(operations[0]):
            physics_s = family.physics_s(operations, H100, constants)
            matrix = family.features(operations, H100, physics_s)
            assert matrix.shape == (2, len(family.feature_names))
            assert np.isfinite(matrix).all()


def experts(tokens, **attributes):
    attributes = {"intermediate": 2048, "top_k": 8, "experts": 256, **attributes}
    return Operation("experts", [(tokens, 7168)], attributes, precision="bf16")


@pytest.mark.parametrize(("tokens", "busy", "each"), [(1, 8, 1), (65_536, 256, 2048)])
def test_few_tokens_keep_few_experts_busy(tokens, busy, each):
    features = EXPERTS.features(OperationList([experts(tokens)]), H100, np.array([1e-3]))[0]
    names = EXPERTS.feature_names
    assert 2 ** features[names.index("log_busy_experts")] == pytest.approx(busy, rel=1e-3)
    assert 2 ** features[names.index("log_tokens_each")] == pytest.approx(each, rel=1e-3)


def test_experts_pass_the_memory_once():
    # For one token, eight experts with three matrices each are read, and almost nothing is computed.
    constants = np.array([500.0, 50.0, 1e-9, 1e12, 1.0, 1.0, 8.0, 1e12, 1e9, 1e-9, 1.0])
    seconds = EXPERTS.physics_s(OperationList([experts(1)]), H100, constants)[0]
    assert seconds == pytest.approx(8 * 3 * 2048 * 7168 * 2 / H100.memory_bandwidth, rel=0.05)


def experts_s(gpu, *operations):
    return EXPERTS.physics_s(OperationList(operations), gpu, np.where(PLAIN == 1000.0, 0.0, PLAIN))


def test_triton_passes_over_rows_of_experts_on_other_gpus():
    # A row is written as zeros by both products, and read by the activation and the sum: of two bytes, 2 x 2048 and
    # 7168 elements each time, and 2048 results of the activation.
    size = {"tokens": 65_536, "expert_parallel": 64}
    triton, flashinfer = experts_s(H100, experts(**size), experts(**size, implementation="flashinfer"))
    elsewhere = 65_536 * 8 * (1 - 1 / 64)
    moved = elsewhere * 2 * (2 * 2 * 2048 + 2048 + 2 * 7168)
    assert triton - flashinfer == pytest.approx(moved / H100.memory_bandwidth, rel=0.01)


def test_triton_multiplies_on_blackwell_as_on_hopper():
    large = {"tokens": 65_536, "top_k": 8, "experts": 8, "intermediate": 16_384}
    triton, flashinfer = experts_s(B200, experts(**large), experts(**large, implementation="flashinfer"))
    assert triton == pytest.approx(2 * flashinfer, rel=0.05)


def test_other_generations_learn_from_libraries_that_they_share():
    some, constants = OperationList([experts(n) for n in range(1, 400)]), CONSTANTS
    flashinfer = OperationList([experts(n, implementation="flashinfer") for n in range(1, 400)])
    true = np.array([constant.start for constant in constants])
    times = EXPERTS.physics_s(some, H100, true)
    slow = Measured(H100, OperationList([*some, *flashinfer]), np.concatenate([times, 9 * times]))
    plain = Measured(A100, some, EXPERTS.physics_s(some, A100, true))
    variant = fit_variant(EXPERTS, [slow, plain], RECIPE)
    b200 = variant.device_s(EXPERTS, some, B200) / EXPERTS.physics_s(some, B200, true)
    assert np.median(b200) == pytest.approx(1.0, abs=0.1)
    on_hopper = variant.device_s(EXPERTS, flashinfer, H100) / variant.device_s(EXPERTS, some, H100)
    assert np.median(on_hopper) == pytest.approx(9.0, rel=0.2)


MI210 = find_gpu("MI210")


def convolution(direction="forward", precision="fp16", stride=1, groups=1):
    attributes = {"out_channels": 128, "kernel_size": 3, "stride": stride, "padding": 1, "bias": False}
    return Operation(
        "conv2d", [(8, 64, 56, 56)], {**attributes, "groups": groups, "direction": direction}, precision=precision
    )


@pytest.mark.parametrize(
    ("direction", "rows", "columns", "reduction"),
    [
        ("forward", 8 * 56 * 56, 128, 64 * 9),
        ("input_gradient", 8 * 56 * 56, 64, 128 * 9),
        ("weight_gradient", 128, 64 * 9, 8 * 56 * 56),
    ],
)
def test_each_direction_of_a_convolution_is_a_product(direction, rows, columns, reduction):
    names = CONVOLUTION.feature_names
    features = CONVOLUTION.features(OperationList([convolution(direction)]), MI210, np.array([1e-3]))[0]
    found = [2 ** features[names.index(name)] for name in ("log_rows", "log_columns", "log_reduction")]
    assert found == pytest.approx([rows, columns, reduction], rel=1e-4)
    assert features[names.index(direction)] == 1


def test_all_directions_of_a_convolution_multiply_as_often():
    at = CONVOLUTION.feature_names.index("log_compute_cycles")
    found = [
        CONVOLUTION.features(OperationList([convolution(direction, groups=2)]), MI210, np.array([1e-3]))[0, at]
        for direction in ("forward", "input_gradient", "weight_gradient")
    ]
    # FLOPs of the forward by torch's count: 2 x outputs x window x channels of a group
    cycles = 2 * 8 * 128 * 56 * 56 * 9 * 32 / (MI210.peak_flops["fp16"] / (MI210.boost_clock_mhz * 1e6))
    assert found == pytest.approx([np.log2(cycles)] * 3, rel=1e-4)


def test_measurements_of_amd_do_not_predict_nvidia_and_vice_versa(kernels):
    assert not CONVOLUTION.covers(H100)
    assert not LINEAR.covers(MI210)
    assert np.isnan(kernels.device_s(OperationList([linear(64, 512, 512)]), MI210)).all()
    assert kernels.coverage(MI210) == ()


def test_point_wise_operations_pass_the_memory():
    constants = np.array([3000.0, 1.0, 1e9, 1e9])  # Nothing is read from a cache.
    operation = Operation("add", [(8192, 4096)] * 2, precision="bf16")
    seconds = POINTWISE.physics_s(OperationList([operation]), A100, constants)
    # Two inputs and one output, of two bytes for each element.
    moved = 3 * 2 * 8192 * 4096
    assert seconds == pytest.approx(moved / A100.memory_bandwidth + 3000 / (A100.boost_clock_mhz * 1e6))
    filled = OperationList([Operation("adamw_step", [(8, 8)], precision="bf16"), operation])
    assert np.isfinite(POINTWISE.features(filled, A100, seconds.repeat(2))).all()
    assert POINTWISE.variant(Operation("relu", [(8, 8)])) is None
    assert POINTWISE.variant(Operation("softmax", [(8, 8)], precision="bf16")) is None
    assert POINTWISE.variant(Operation("dropout", [(8, 8)], precision="bf16")) is None
