"""What was measured on a chip is predicted by its loops, the rest by what all GPUs share."""

from dataclasses import replace

import numpy as np
import pytest

from joulecast import Network, Operation, predict_operations
from joulecast.hardware import find_gpu
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.networks.composition import HostModel
from joulecast.predictors.networks.prepared import NetworkPredictor
from joulecast.predictors.predictor import OperationPredictor
from joulecast.predictors.recipes import ForestRecipe
from joulecast.zoo import find_predictor

A30 = find_gpu("A30")
CONV = Operation("conv2d", [(32, 64, 28, 28)], {"out_channels": 64, "kernel_size": 3}, precision="fp32")
OPERATIONS = [CONV, CONV.replace(precision="bf16"), Operation("relu", [(32, 64, 28, 28)], precision="bf16")]


@pytest.fixture(scope="module")
def chip(dataset):
    return fit_chip(dataset, "inference", ForestRecipe(trees=8))


@pytest.fixture(scope="module")
def other():
    return find_predictor("A30", "inference", "any-gpu/forest").operations


@pytest.fixture(scope="module")
def both(chip, other):
    return OperationPredictor(A30, "inference", other.find_shared, {"inference": chip})


def never():
    raise AssertionError


def test_what_was_measured_stays_and_the_rest_is_from_what_all_gpus_share(chip, other, both):
    alone = OperationPredictor(A30, "inference", never, {"inference": chip}).predict([CONV])
    whole, rest = (p.predict(OPERATIONS) for p in (both, other))
    assert whole.source == (alone.source[0], "modelled", "modelled")
    for name in ("time_s", "power_w", "device_time_s", "dynamic_energy_j"):
        assert getattr(whole, name)[0] == pytest.approx(getattr(alone, name)[0], rel=1e-12)
    assert whole.device_time_s[1:] == pytest.approx(rest.device_time_s[1:])
    # The host needs the same time to launch in any precision.
    assert whole.host_time_s[1] == whole.host_time_s[0]
    assert whole.energy_j == pytest.approx(whole.power_w * whole.time_s)
    assert (whole.power_w <= A30.power_limit_w).all()


def test_what_all_gpus_share_is_not_loaded_if_everything_was_measured(chip):
    alone = OperationPredictor(A30, "inference", never, {"inference": chip})
    network = NetworkPredictor("test", alone, HostModel(5e-6, learned=True)).predict(Network.of([(CONV, 3)]))
    assert network.time_s > 0
    assert alone.predict([CONV], 900, 120).time_s > alone.predict([CONV]).time_s


def test_networks_say_what_was_not_measured(both):
    predictor = NetworkPredictor("test", both, HostModel(5e-6, learned=True))
    network = Network.of([(operation, 3) for operation in OPERATIONS])
    prediction = predictor.predict(network)
    assert prediction.uncovered == ()
    assert any("conv2d bf16, relu bf16" in note for note in prediction.notes)
    assert sum(cost.energy_j for cost in prediction.operations) == pytest.approx(prediction.energy_j)
    assert prediction.interval() is None
    slow = predictor.predict(network, 720)
    assert slow.time_s > prediction.time_s
    assert slow.power_w < prediction.power_w
    measured_only = predictor.predict(Network.of([(CONV, 3)]))
    assert not any("data sheet" in note for note in measured_only.notes)


def test_what_exists_on_no_such_gpu_stays_missing(both):
    turing = replace(A30, peak_flops={"fp32": A30.peak_flops["fp32"]})
    chips = {"inference": replace(both.chip, gpu=turing)}
    predictions = replace(both, gpu=turing, chips=chips).predict(OPERATIONS)
    assert predictions.source[1:] == ("missing", "missing")
    assert np.isnan(predictions.time_s[1:]).all()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_best_measured_gpu_says_no_less_than_one_that_was_never_measured(mode, precision):
    """The A30 in half precision has the interval of other chips, as an A100 has. In fp32 it has its own.

    That of a training step depends on how its time divides among its operations, which differs a little by GPU.
    """
    network = Network.of([(each.replace(precision=precision, mode=mode), 3) for each in OPERATIONS])
    here = find_predictor("A30", mode).predict(network)
    there, far = (find_predictor(gpu, mode).predict(network) for gpu in ("A100 PCIe 40GB", "H100 SXM"))
    for level in (0.9, 0.8):  # Half of the networks are as close on other chips.
        upper, known, unknown = (each.interval(level).time_s[1] / each.time_s for each in (here, there, far))
        assert upper == pytest.approx(known, rel=1e-6 if mode == "inference" else 0.01)
        assert upper <= unknown * (1 + (1e-9 if mode == "inference" else 0.01))
    assert any("not of NVIDIA A30's own" in note for note in here.notes)
    assert not any("no interval" in note for note in here.notes)
    in_fp32 = find_predictor("A30", mode).predict(Network.of([(CONV.replace(mode=mode), 3)]))
    assert not any("own" in note for note in in_fp32.notes)
    assert in_fp32.interval(0.8).time_s[1] / in_fp32.time_s != pytest.approx(upper)


def test_intervals_of_a_mixed_list_are_those_of_its_operations_alone():
    bf16 = [Operation("linear", [(rows, 512)], {"out_features": 512}, precision="bf16") for rows in (16, 64, 4096)]
    mixed = [
        Operation("relu", [(64, 512)]),
        bf16[0],
        Operation("linear", [(64, 512)], {"out_features": 512}),
        *bf16[1:],
    ]
    together = predict_operations(mixed, "A30").interval(0.9)
    for place, operation in enumerate(mixed):
        alone = predict_operations([operation], "A30").interval(0.9)
        for quantity in ("time_s", "energy_j"):
            low, high = getattr(together, quantity)
            assert (low[place], high[place]) == pytest.approx(tuple(each[0] for each in getattr(alone, quantity)))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_host_launches_in_any_precision_alike(mode):
    """Also kinds of which no launch was measured: that of a similar kind stands for both."""
    kinds = [Operation(kind, [(8, 64)], mode=mode) for kind in ("relu", "tanh", "add", "softmax")]
    kinds.append(Operation("embedding", [(8, 64)], {"num_embeddings": 100, "embedding_dim": 64}, mode=mode))
    fp32, bf16 = (
        find_predictor("A30", mode).operations.predict([each.replace(precision=precision) for each in kinds])
        for precision in ("fp32", "bf16")
    )
    assert bf16.host_time_s == pytest.approx(fp32.host_time_s)
