"""A predictor for any GPU: laws of physics, what it learns from simulated GPUs, and GPUs that were not measured."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_measurements import SLOWER_THAN_PHYSICS, TRUE_ENERGY, simulated_gpu, simulated_operations

import joulecast
from conftest import needs
from joulecast import Network, Operation
from joulecast.errors import DatasetError, InputError
from joulecast.hardware import Boards, find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.evaluation.any_gpu import BY_CHIP, interval_errors, validate_any_gpu
from joulecast.predictors.evaluation.errors import ALL
from joulecast.predictors.evaluation.left_out import FOLDS
from joulecast.predictors.fitting.fit import fit_on_all
from joulecast.predictors.fitting.forms import quicker
from joulecast.predictors.measured import DeviceRow, device_rows, with_hidden
from joulecast.predictors.model.fit_networks import fit_energies
from joulecast.predictors.model.operations import LearnedOperations
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.physics.energy import PRIOR_ENERGY, EnergyConstants, static_power_w
from joulecast.predictors.physics.fp32_kernels import counted_ratio
from joulecast.predictors.physics.least_times import LeastTimes
from joulecast.predictors.recipes import SharedForestRecipe, TransformerRecipe

pytestmark = needs("sklearn")

RECIPE = SharedForestRecipe(trees=20, min_samples_leaf=2, folds=3)
MEASURED = ("A30", "T4", "A10")


@pytest.fixture(scope="module")
def learned() -> LearnedOperations:
    return fit_on_all([simulated_gpu(name) for name in MEASURED], (), RECIPE)


def test_learns_what_gpus_have_in_common(learned):
    gpu = find_gpu("A40")
    operations = simulated_operations()
    truth = np.array([SLOWER_THAN_PHYSICS[operation.kind] for operation in operations])
    error = np.abs(learned.factors(operations, gpu) / truth - 1)
    assert np.median(error) < 0.05
    assert np.max(error) < 0.6


@pytest.mark.parametrize("name", ["T4", "A40", "L4"])
def test_trees_count_in_full_where_their_kind_was_measured_on_the_chip(learned, name):
    # The A40 has the chip of the A10, which was measured.
    assert set(learned.chips) == {find_gpu(measured).chip for measured in MEASURED}
    learned = replace(learned, log_ratio=lambda inputs: np.full(len(inputs), np.log(3.0)))
    gpu = find_gpu(name)
    asked = [Operation("softmax", [(131072, 4096)]), Operation("linear", [(64, 64)], {"out_features": 64})]
    measured = replace(learned, chips={gpu.chip: frozenset({"softmax", "linear"})})
    assert measured.factors(asked, gpu) / counted_ratio(asked, gpu) == pytest.approx(3.0)
    elsewhere = replace(learned, chips={gpu.chip: frozenset({"relu"}), "other": frozenset({"softmax"})})
    # A cap counts in what was measured under it; the clock law applies it to other products.
    assert elsewhere.factors(asked, gpu) / counted_ratio(asked, gpu, capped=False) == pytest.approx([3.0**0.5, 1.0])
    assert (
        measured.under_cap(OperationList(asked), gpu).all(),
        elsewhere.under_cap(OperationList(asked), gpu).all(),
    ) == (True, False)
    # Nothing of a backward is counted but products, so what is learned of others counts in full.
    trained = [asked[0].replace(mode="training"), Operation("batch_norm", [(1024, 64, 128, 128)], mode="training")]
    # Of a family that was never measured, physics alone is known.
    assert elsewhere.factors(trained, gpu) == pytest.approx([3.0, 1.0])


def test_what_is_learned_counts_less_on_other_chips_where_physics_counts_more(learned):
    chips = {chip: kinds | {"conv2d", "softmax"} for chip, kinds in learned.chips.items()}
    learned = replace(learned, log_ratio=lambda inputs: np.full(len(inputs), 1.0), chips=chips)
    image = Operation("conv2d", [(512, 256, 56, 56)], {"out_channels": 256, "kernel_size": 3})
    trust = {
        Operation("linear", [(64, 64)], {"out_features": 64}): (0.0, 0.0),
        Operation("relu", [(64, 64)]): (0.0, 0.0),
        Operation("softmax", [(8192, 2048)]): (0.5, 1.0),
        image: (0.25, 1.0),
        image.replace(precision="tf32"): (0.25, 1.0),
        image.with_attributes(groups=256, out_channels=256): (0.0, 0.0),
    }
    unseen = find_gpu("L4")
    for mode, expected in zip(("inference", "training"), zip(*trust.values(), strict=True), strict=True):
        asked = [operation.replace(mode=mode) for operation in trust]
        logs = np.log(learned.factors(asked, unseen) / counted_ratio(asked, unseen, capped=False))
        assert logs == pytest.approx(expected, abs=1e-6)


def test_trees_are_asked_once_for_all_gpus_and_only_where_they_are_trusted(learned):
    asked, gpus = [], tuple(map(find_gpu, ("RTX4090", "L4")))
    counted = replace(learned, log_ratio=lambda inputs: (asked.append(len(inputs)), learned.log_ratio(inputs))[1])
    products = [Operation("linear", [(rows, 64)], {"out_features": 64}) for rows in (8, 16)]
    operations = OperationList([*simulated_operations()[:20], *products])
    together = counted.factors(operations, Boards.of(gpus))
    (rows,) = asked
    assert rows <= len(gpus) * 20  # Products are counted.
    for row, gpu in zip(together, gpus, strict=True):
        assert row.tolist() == learned.factors(operations, gpu).tolist()


def test_energy_constants_are_recovered(learned):
    found, truth = learned.energy.to_dict(), TRUE_ENERGY.to_dict()
    # Operations below the cap tell the energies of fp32 and of memory, which move away from their priors.
    for name in ("fp32_j_per_flop", "hbm_j_per_byte", "gddr_j_per_byte"):
        assert found[name] == pytest.approx(truth[name], rel=0.3), name
    # Nothing here ran on tensor cores, so they keep their prior of 0.7 pJ.
    assert found["tensor_j_per_flop"] == pytest.approx(0.7e-12)


def test_a_reading_at_the_cap_is_a_lower_bound(learned):
    """The clock falls until the cap is met, so the board would draw more; how much more is not known."""
    gpu = find_gpu("A30")
    cap_w, clock_mhz = gpu.power_limit_w, float(gpu.boost_clock_mhz)
    products = [Operation("linear", [(rows, 2048)], {"out_features": 2048}) for rows in (4096, 8192, 16384)]
    device_s = LeastTimes.of(products, gpu, clock_mhz).time_s

    def demand_w(power_w):
        rows = [DeviceRow(gpu, *each, power_w) for each in zip(products, device_s.tolist(), strict=True)]
        energy = fit_energies(rows, (), SharedByAll(learned))
        parts = EnergyConstants.parts(products, device_s, gpu, clock_mhz, energy.l2_saves) / device_s[:, None]
        return (static_power_w(gpu, clock_mhz) + parts @ energy.values()).mean()

    usual_w = demand_w(None)
    assert demand_w(0.6 * cap_w) < usual_w < demand_w(0.96 * cap_w) < cap_w
    assert 1.001 * usual_w < demand_w(cap_w) < cap_w  # Three loops move the constants a part of the way.
    weak = replace(gpu, power_limit_w=0.5 * usual_w)
    rows = [DeviceRow(weak, *each, weak.power_limit_w) for each in zip(products, device_s.tolist(), strict=True)]
    assert fit_energies(rows, (), SharedByAll(learned)).values() == pytest.approx(PRIOR_ENERGY.values())


@pytest.mark.parametrize("name", ["P4", "T4", "A10", "A100-PCIE-40GB", "RTX 4090", "L4", "H100 SXM", "B200", "MI300X"])
def test_time_and_energy_along_the_clock(learned, name):
    gpu = find_gpu(name)
    network = Network.of([(Operation("linear", [(8192, 2048)], {"out_features": 2048}), 4)])
    predictor = NetworkPredictor("any", SharedByAll(learned).on(gpu, "inference"), HostModel.prior("inference"))
    clocks = np.linspace(gpu.min_clock_mhz, gpu.max_clock_mhz, 12)
    found = [predictor.predict(network, float(clock)) for clock in clocks]
    time_s, energy_j = np.array([(p.time_s, p.energy_j) for p in found]).T
    assert np.all(np.diff(time_s) <= 1e-9)
    # Static energy grows at low clocks and the voltage at high ones, so that energy has one minimum.
    falls = np.diff(energy_j) < -1e-4 * energy_j[:-1]
    assert falls[0]
    assert not np.any(falls[np.argmin(falls) :])
    assert all(p.held_clock_mhz <= p.clock_mhz + 1e-3 for p in found)
    assert all(p.power_w <= 1.001 * max(p.power_limit_w, found[0].power_w) for p in found)


def test_the_default_cap_changes_nothing_and_what_is_not_covered_is_missing(learned):
    gpu = find_gpu("T4")
    predictor, operations = SharedByAll(learned).on(gpu, "inference"), simulated_operations()[-8:]
    mixed = predictor.predict([Operation("relu", [(8, 8)], precision="bf16"), Operation("relu", [(8, 8)])])
    assert (mixed.source, np.isnan(mixed.time_s).tolist()) == (("missing", "modelled"), [True, False])
    with pytest.raises(InputError, match="this predictor is for inference"):
        predictor.predict([Operation("relu", [(8, 8)], mode="training")])
    for clock in (None, 900.0):
        free = predictor.predict(operations, clock)
        capped = predictor.predict(operations, clock, gpu.power_limit_w)
        assert np.array_equal(free.device_time_s, capped.device_time_s)
        assert np.array_equal(free.power_w, capped.power_w)
    # What was learned at the default clock and cap is what comes out there, throttled or not.
    learned_s = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s * learned.factors(operations, gpu)
    found = predictor.predict(operations)
    assert found.device_time_s == pytest.approx(learned_s)
    assert np.min(found.held_clock_mhz) < gpu.boost_clock_mhz


def test_a_gpu_is_left_out_with_its_chip():
    datasets = [simulated_gpu(name) for name in ("A30", "A100-PCIE-40GB", "T4")]
    found = validate_any_gpu(datasets, (), RECIPE)
    rows = {(row["split"], row["where"], row["what"]): row for row in found.rows()}
    gpus = {where for split, where, _ in rows if split == BY_CHIP}
    assert gpus == {ALL, "NVIDIA A100-PCIE-40GB", "NVIDIA A30", "Tesla T4"}
    assert rows[BY_CHIP, ALL, ALL]["count"] == 300
    relu = rows[FOLDS, "Tesla T4", "relu inference"]
    assert relu["count"] == 25
    assert relu["time"]["median"] < 0.1
    for quantity in ("power", "energy"):
        errors = interval_errors(found)[quantity]
        assert {"", "elementwise"} <= set(errors)
        assert 0 < np.median(errors[""]) < 0.5
    unread = tuple(replace(m, power_w=None, energy_j=None) for m in datasets[2].measurements)
    one_chip = validate_any_gpu([datasets[0], replace(datasets[2], measurements=unread)], (), RECIPE)
    assert interval_errors(one_chip)["power"] == {}


def test_a_quick_validation_is_one_fold():
    datasets = [simulated_gpu(name) for name in ("A30", "T4")]
    found = validate_any_gpu(datasets, (), RECIPE, quick=True)
    # A third of 100 operations, on both GPUs; no network was measured, so that no chip is left out.
    assert found.rows()[0]["count"] in (66, 68)
    assert {row["split"] for row in found.rows()} == {FOLDS}
    assert quicker(RECIPE) == RECIPE
    assert quicker(TransformerRecipe(epochs=28)).epochs == 10


def test_device_times_come_before_loops():
    data = simulated_gpu("T4")
    assert len(device_rows(data)) == 100
    # Loops without power and without device times tell nothing of the device.
    bare = replace(
        data, measurements=tuple(replace(m, device_time_s=None, power_w=None, energy_j=None) for m in data.measurements)
    )
    assert device_rows(bare) == with_hidden(bare) == []
    with pytest.raises(DatasetError, match="too few device times"):
        fit_on_all([bare], (), RECIPE)


def test_kernels_hidden_behind_their_launch_count_as_what_is_counted_of_them():
    data = simulated_gpu("T4")
    short, long, *others = data.measurements
    measured = replace(short, device_time_s=None, power_w=None, energy_j=None, time_s=1.0)
    quicker = replace(long, device_time_s=None, power_w=None, energy_j=None, time_s=1e-9)
    rows = {row.operation: row for row in with_hidden(replace(data, measurements=(measured, quicker, *others)))}
    hidden = [operation for operation, row in rows.items() if row.hidden]
    assert set(hidden) == {short.operation, long.operation}
    counted = LeastTimes.of([short.operation], find_gpu("T4"), find_gpu("T4").boost_clock_mhz).time_s[0]
    assert counted <= rows[short.operation].device_s < 1.0
    # No kernel takes longer than its whole call.
    assert rows[long.operation].device_s == 1e-9
    assert {"T4"} == {row.gpu.name.split()[-1] for row in rows.values()}


def test_double_precision_takes_the_time_that_its_rate_gives():
    sizes = {"linear": ([(4096, 4096)], {"out_features": 4096}), "relu": ([(1 << 26,)], {})}
    in_fp32 = [Operation(kind, *parts) for kind, parts in sizes.items()]
    in_fp64 = [operation.replace(precision="fp64") for operation in in_fp32]
    # Volta has half of fp32's rate, an A100 the same on tensor cores; twice the bytes take twice as long on both.
    for gpu, ratio in (("V100 SXM2 16GB", 2.0), ("A100 PCIe 40GB", 1.0)):
        double, single = (joulecast.predict_operations(each, gpu) for each in (in_fp64, in_fp32))
        linear, relu = (double.device_time_s / single.device_time_s).tolist()
        assert linear == pytest.approx(ratio, rel=0.05)
        assert relu == pytest.approx(2.0, rel=0.02)
        assert double.interval(0.9).time_s[1] == pytest.approx(2 * double.time_s)
    with pytest.raises(InputError, match="fp64 rate of NVIDIA A10 is not in the catalogue"):
        joulecast.predict_operations(in_fp64, "A10")
