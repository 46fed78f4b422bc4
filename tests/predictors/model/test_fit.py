"""The one model of kernels: fitted to simulated GPUs, and the basis of each prediction."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import simulated_kernels

from conftest import needs
from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.evaluation.kernels import coverage, stored_errors, validate_kernels
from joulecast.predictors.measured import DeviceRow
from joulecast.predictors.model.basis import PartTrees, basis_of
from joulecast.predictors.model.fit import fit_constants, fit_one_model, measured_tables
from joulecast.predictors.model.fit_power import fit_power, readings
from joulecast.predictors.model.machine import TENSORRT_LLM, Machine
from joulecast.predictors.model.physics import STARTS, costs
from joulecast.predictors.model.shared import NoResidual, SharedByAll
from joulecast.predictors.model.work import PRODUCT, WIDTHS, Work
from joulecast.predictors.recipes import KernelRecipe, TreeSettings

pytestmark = needs("xgboost", "scipy")

TREES = TreeSettings(trees=30, depth=4, learning_rate=0.2, min_child_weight=5.0)
RECIPE = KernelRecipe(generation=TREES, other_generations=TREES, constants_rows=50, folds=4)
OTHERS = "other generations"
H100, H200, A100, B200 = map(find_gpu, ("H100 SXM", "H200", "A100 SXM4 80GB", "B200"))


def linear(rows, columns, reduction, precision="bf16", **attributes):
    attributes = {"out_features": columns, "bias": False, **attributes}
    return Operation("linear", [(rows, reduction)], attributes, precision=precision)


@pytest.fixture(scope="module")
def measured():
    return measured_tables([simulated_kernels(name) for name in ("H100 SXM", "H200", "A100 SXM4 80GB")])


@pytest.fixture(scope="module")
def kernels(measured):
    return fit_one_model(measured, RECIPE)


def test_sustained_runs_are_not_learned_from(measured):
    for table in measured:
        assert table.device_s.max() < 1.0  # a sustained run is simulated with 5 s


def test_left_out_sizes_gpus_and_generations(measured):
    validation, trust = validate_kernels(measured, RECIPE)
    errors = validation.operations
    assert set(zip(errors["split"].tolist(), errors["where"].tolist(), strict=True)) == {
        *(("measured", gpu.name) for gpu in (H100, H200, A100)),
        *(("same generation", gpu.name) for gpu in (H100, H200)),
        *(("other generations", gpu.name) for gpu in (H100, H200, A100)),
    }
    for row in [row for row in validation.rows() if row["what"] == "linear, half"]:
        time = row["time"]
        assert row["count"] > 0
        assert 0 < time["median"] <= 2 * time["mean"]
        assert time["median"] < (0.3 if row["split"].startswith("other") else 0.06), row
    assert set(trust) == {"linear, half"}
    kept = stored_errors(errors, "linear, half", "time")
    assert set(kept) == {"measured", "same generation", "other generations"}
    assert all(np.all(np.diff(values["time"]) >= 0) for values in kept.values())
    within = {row.split: row.within["time"] for row in coverage(errors) if row.group == "linear, half"}
    assert within["measured"] == pytest.approx(0.9, abs=0.2)


def test_trees_are_trusted_where_three_generations_show_that_they_help():
    tables = []
    for table in measured_tables([simulated_kernels(name) for name in ("H100 SXM", "A100 SXM4 80GB", "L40S")]):
        narrow = [kernel.attributes["out_features"] < 2000 for kernel in table.kernels]
        tables.append(replace(table, device_s=table.device_s * np.where(narrow, 3.0, 1.0)))
    assert 0.5 < validate_kernels(tables, RECIPE)[1]["linear, half"] <= 1
    # Two generations say too little about a third.
    assert validate_kernels(tables[:2], RECIPE)[1] == {"linear, half": 0.0}


def test_a_prediction_names_the_measurements_behind_it(kernels):
    bases = {"H100 SXM": "measured", "H100 PCIe": "same generation"} | dict.fromkeys(("B200", "MI210"), OTHERS)
    assert {name: kernels.basis("linear, half", find_gpu(name)) for name in bases} == bases
    # A B300 runs the kernels of a B200.
    for name, basis in (("B300", "same generation"), ("RTX PRO 6000 Blackwell Server Edition", OTHERS)):
        assert basis_of(find_gpu(name), frozenset({B200.name})) == basis
    product, mi210 = linear(4096, 4096, 4096), find_gpu("MI210")
    (device_s,) = kernels.device_s(OperationList([product]), mi210)
    assert product.flops / mi210.peak_flops["bf16"] < device_s < 3 * product.flops / mi210.peak_flops["bf16"]
    operations = OperationList([linear(32, 512, 512)])
    assert kernels.remarks(operations, H100) == (f"linear in half: measured on {H100.name}",)
    assert "predicted from NVIDIA H100 80GB HBM3, NVIDIA H200" in kernels.remarks(operations, find_gpu("H100 PCIe"))[0]
    assert kernels.remarks(OperationList([Operation("softmax", [(8, 8)], precision="bf16")]), H100) == ()


def test_what_physics_leaves_belongs_to_a_chip_of_which_a_board_was_measured(kernels):
    operations = OperationList([linear(rows, 1024, 1024) for rows in (7, 64, 129, 512)])
    measured, other = (
        kernels.device_s(operations, gpu) / costs(Work.of(operations), Machine.of(gpu), kernels.constants).time_s
        for gpu in (H100, find_gpu("H100 PCIe"))
    )
    assert other == pytest.approx(measured, rel=1e-3)
    assert np.ptp(measured) > 0.05


def test_trees_are_asked_once_for_all_of_their_tables():
    asked = []

    def first(rows):
        asked.append(len(rows))
        return rows[:, 0]

    one, other = ("9.0", "product"), ("all", "product")
    trees = PartTrees(trees={one: first, other: lambda rows: -rows[:, 1]})
    tables = [np.full((count, 2), float(count), dtype=np.float32) for count in (1, 2, 3, 600)]
    found = trees.ask([one, other, one, one], tables)
    assert [values.tolist() for values in found] == [[1.0], [-2.0] * 2, [3.0] * 3, [600.0] * 600]
    assert (asked, trees.ask([], [])) == ([604], [])


def test_only_fp16_and_bf16_stand_in_for_each_other(kernels):
    half = OperationList([linear(64, 1024, 1024, precision) for precision in ("bf16", "fp16")])
    assert len(set(kernels.device_s(half, H100).tolist())) == 1
    others = OperationList([linear(64, 1024, 1024, "fp8"), linear(64, 1024, 1024, "fp32")])
    assert np.isnan(kernels.device_s(others, H100)).all()


def test_a_predictor_for_any_gpu_uses_the_learned_kernels(kernels):
    relu, quantized = Operation("relu", [(256, 4096)], precision="bf16"), linear(64, 512, 512, "fp8")
    operations = OperationList([linear(256, 4096, 4096), relu])
    plain = SharedByAll(NoResidual()).on(H100, "inference")
    asking = SharedByAll(NoResidual(), kernels=kernels).on(H100, "inference")
    found, without = asking.predict(operations), plain.predict(operations)
    assert found.device_time_s[0] == pytest.approx(kernels.device_s(operations, H100)[0], rel=1e-6)
    assert found.device_time_s[1] == pytest.approx(without.device_time_s[1], rel=1e-9)
    assert asking.remarks(operations) == (f"linear in half: measured on {H100.name}",)
    assert "linear in half" in asking.coverage
    assert plain.remarks(operations) == ()
    missing = asking.predict([quantized])  # A quantized layer was not learned.
    assert (missing.source, np.isnan(missing.time_s).all()) == (("missing",), True)


def test_triton_multiplies_experts_on_blackwell_as_on_hopper():
    attributes = {"intermediate": 16_384, "top_k": 8, "experts": 8}
    large = Operation("experts", [(65_536, 7168)], attributes, precision="bf16")
    hopper, blackwell = (costs(Work.of([large]), Machine.of(gpu), STARTS) for gpu in (H200, B200))
    rates = (gpu.sms * Machine.of(gpu).clock_hz for gpu in (H200, B200))
    cycles = [found.burst_s.sum() * rate for found, rate in zip((hopper, blackwell), rates, strict=True)]
    assert cycles[1] == pytest.approx(cycles[0], rel=0.05)


def test_a_way_that_was_measured_on_one_of_two_generations_stays_near_its_start():
    names = [f"{gpu.name}" for gpu in (H100, A100)]
    tables = measured_tables([simulated_kernels(name) for name in names])
    engine = OperationList(
        Operation("linear", each.input_shapes, {**each.attributes, "implementation": "tensorrt_llm"}, precision="bf16")
        for each in tables[0].kernels
    )
    slow = replace(tables[1], parts=tables[1].parts._replace(kernels=engine), device_s=3 * tables[1].device_s)
    alone, both = (fit_constants(some, RECIPE) for some in ([slow], [slow, *tables]))
    place = PRODUCT, TENSORRT_LLM, WIDTHS.index("half")
    farther = [np.abs(np.log(found[place] / STARTS[place])).sum() for found in (alone, both)]
    assert farther[1] < farther[0]


def test_power_is_learned_from_readings(measured, kernels):
    """Products of few rows draw 200 W, and others 500 W, below the cap of 700 W. Of 160 readings nothing is learned."""
    table = next(each for each in measured if each.gpu == H100)
    known = [*zip(table.kernels, table.device_s.tolist(), strict=True)]
    rows = [DeviceRow(H100, o, seconds, 200.0 if o.input_shapes[0][0] < 100 else 500.0) for o, seconds in known]
    assert readings(kernels, rows, RECIPE) == []
    (found,) = readings(kernels, [*rows * 2, DeviceRow(H200, *known[0], None)], RECIPE)
    assert (found.gpu, len(found.power_w)) == (H100, 2 * len(rows))
    assert 700 * np.exp(found.log_demand) == pytest.approx(found.power_w)
    demand = fit_power([found], RECIPE, ["9.0"])
    assert demand.measured == {"linear, half": {H100.name}}
    assert set(demand.trees) == {("all", "product"), ("9.0", "product")}
    for trees in demand.trees.values():
        assert np.median(np.abs(trees(found.inputs) - found.log_demand)) < 0.05
