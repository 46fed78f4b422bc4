"""Prediction on a simulated CPU whose law is known: 2 us for a call, 100 GFLOP/s, 10 GB/s, 20 or 30 W."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import joulecast
from joulecast import Operation
from joulecast.datasets import Card, Dataset, Measurement, NetworkMeasurement, fingerprint, load, save
from joulecast.errors import DatasetError, InputError, UncoveredError, UnknownNameError, ZooError
from joulecast.hardware import CPU, find_device
from joulecast.operations.entry import Entry
from joulecast.operations.network import Network
from joulecast.predictors.fitting.fit import fit_cpu, fit_serial
from joulecast.predictors.networks.on_cpu import CallModel, CpuNetworkPredictor
from joulecast.predictors.recipes import ForestRecipe
from joulecast.system.resources import shipped
from joulecast.zoo import entries, find_cpu_predictor
from joulecast.zoo.cards import measured_gpus
from joulecast.zoo.catalogue import CPU_FOLDERS
from joulecast.zoo.files import StoredEntry
from joulecast.zoo.promotion import left_out_of
from joulecast.zoo.trainers import train
from joulecast.zoo.training import Loaded, Task

CALL_S, FLOPS_PER_S, BYTES_PER_S, POWER_W = 2e-6, 1e11, 1e10, {"linear": 30.0, "relu": 20.0}
FACTOR, BETWEEN_S = 0.8, 5e-6
RECIPE = ForestRecipe(trees=8, folds=3)
NAME = "CPU Simulated Xeon"

# The first is bound by arithmetic: 2 x 64 x n x n FLOPs. The second by memory: it reads and writes 4 x n bytes.
LINEARS = [Operation("linear", [(64, n)], {"out_features": n}) for n in range(256, 2816, 64)]
RELUS = [Operation("relu", [(n,)]) for n in range(1000, 2_000_000, 50_000)]
NETWORKS = {
    f"net{i}": Network(
        (Entry(LINEARS[i], 3), Entry(RELUS[i], 5), Entry(LINEARS[2 * i + 5], 2)), name=f"net{i}", input_shape=(64, 256)
    )
    for i in range(5)
}


def law_s(operation):
    if operation.kind == "linear":
        n = operation.attributes["out_features"]
        return CALL_S + 2 * 64 * n * n / FLOPS_PER_S
    return CALL_S + 8 * operation.input_shapes[0][0] / BYTES_PER_S


def network_s(network):
    calls = sum(entry.count for entry in network)
    return FACTOR * sum(entry.count * law_s(entry.operation) for entry in network) + calls * BETWEEN_S


def network_j(network):
    """Joules of a network: between operations the CPU draws their mean power."""
    times_s = [entry.count * law_s(entry.operation) for entry in network]
    mean_w = np.average([POWER_W[entry.operation.kind] for entry in network], weights=times_s)
    return float(mean_w * network_s(network))


def measured(operation, longer=1.0, *, power):
    time_s, power_w = longer * law_s(operation), POWER_W[operation.kind] if power else None
    energy_j = power_w * time_s if power else None
    return Measurement(operation, time_s, power_w, energy_j, campaign="simulated", method="loop")


def whole(network, *, power):
    time_s, energy_j = network_s(network), network_j(network) if power else None
    power_w = energy_j / time_s if power else None
    shape = network.input_shape
    return NetworkMeasurement(
        network.name, shape, "default", "inference", time_s, power_w, energy_j, operations=network
    )


def dataset(*, power=False):
    method = {"loop": "a simulated loop"}
    card = Card(NAME, None, "a simulation", "Apache-2.0", method, threads=1, load_average=(1, 2, 3))
    rows = [measured(operation, power=power) for operation in (*LINEARS, *RELUS)]
    # Beside other programs, a repeat takes three times as long.
    rows += [measured(operation, 3.0, power=power) for operation in (*LINEARS[::7], *RELUS[::7])]
    return Dataset(card, tuple(rows), tuple(whole(network, power=power) for network in NETWORKS.values()))


def predictor_of(data):
    operations = fit_cpu(data, "inference", RECIPE)
    serial = fit_serial(operations, [(m, m.operations) for m in data.networks])
    return CpuNetworkPredictor("cpu-simulated-xeon/forest-inference", operations, serial, {"time": (0.01,) * 20})


@pytest.fixture(scope="module")
def timed():
    return predictor_of(dataset())


@pytest.fixture(scope="module")
def powered():
    return predictor_of(dataset(power=True))


def trained_on(data, folder):
    save(data, folder)
    return train(Task([Loaded(folder, data, {m: m.operations for m in data.networks})], RECIPE, "inference"))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    return trained_on(dataset(), folder).save(folder / "zoo")


def test_the_fit_recovers_the_constants_of_calls():
    operations = [*LINEARS, *RELUS, Operation("relu", [(1,)])]
    found = CallModel.fit(operations, np.array([law_s(o) for o in operations]))
    assert found.call_s == pytest.approx(CALL_S, rel=0.01)
    # Rates contain the call itself, so that they are a little below those of the law.
    assert found.flops_per_s == pytest.approx(FLOPS_PER_S, rel=0.1)
    assert found.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.2)
    large = [LINEARS[-1], RELUS[-1]]
    predicted_s = found.time_s(large, ["linear fp32", "relu fp32"])
    assert predicted_s == pytest.approx([law_s(o) for o in large], rel=0.05)
    assert CallModel.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_what_a_gpu_runs_in_tf32_a_cpu_runs_in_fp32(timed):
    in_fp32 = NETWORKS["net0"].replace(mode="inference", precision="fp32")
    in_tf32 = NETWORKS["net0"].replace(mode="inference", precision="tf32")
    assert {operation.precision for operation in in_tf32.operations} == {"tf32", "fp32"}
    found = timed.predict(in_tf32)
    assert found.time_s == timed.predict(in_fp32).time_s
    assert [(c.entry.operation.precision, c.source) for c in found.operations] == [("fp32", "measured")] * 3


def test_time_is_that_of_operations_and_between_them(timed):
    assert (timed.serial.factor, timed.serial.networks) == (pytest.approx(FACTOR, abs=0.02), len(NETWORKS))
    assert timed.serial.between_s == pytest.approx(BETWEEN_S, abs=1e-6)
    network = NETWORKS["net3"]
    found = timed.predict(network)
    assert found.time_s == pytest.approx(network_s(network), rel=0.03)
    assert found.time_s == pytest.approx(found.device_time_s + found.host_time_s)
    assert found.device_time_s == pytest.approx(sum(cost.device_time_s for cost in found.operations))
    assert found.host_time_s == pytest.approx(10 * timed.serial.between_s)
    assert found.samples_per_s == pytest.approx(64 / found.time_s)
    low, high = found.interval(0.9).time_s
    assert low == pytest.approx(found.time_s / np.exp(0.01))
    assert high == pytest.approx(found.time_s * np.exp(0.01))


def test_energy_that_was_not_measured_is_missing_everywhere(timed):
    found = timed.predict(NETWORKS["net1"])
    assert found.energy_j is found.power_w is found.edp_js is found.energy_per_sample_j is None
    assert found.interval().energy_j is None
    assert "energy: not measured" in str(found)
    assert any(note.startswith("energy: not measured") for note in found.notes)
    value = json.loads(found.to_json())
    assert value["energy_j"] is value["power_w"] is value["clock_mhz"] is value["interval"]["energy_j"] is None
    assert {cost.energy_j for cost in found.operations} == {None}
    assert found.to_csv().splitlines()[1].count(",,") >= 1
    assert "not measured" in found._repr_html_()
    assert "Time of the operations" in found.plot().svg
    assert "%" not in found.tree().to_text()
    with pytest.raises(InputError, match="was not measured") as caught:
        _ = found.known_energy_j
    assert "energy counters" in caught.value.hint


def test_energy_is_power_times_time_where_counters_were_read(powered):
    found = powered.predict(NETWORKS["net2"])
    assert found.energy_j == pytest.approx(network_j(NETWORKS["net2"]), rel=0.03)
    assert {cost.operation.kind: cost.power_w for cost in found.operations} == pytest.approx(POWER_W, rel=0.02)
    assert found.energy_j == pytest.approx(sum(cost.energy_j for cost in found.operations))
    assert found.tree().total.energy_j == pytest.approx(found.energy_j)
    assert found.known_energy_j == found.energy_j == pytest.approx(found.power_w * found.time_s)


def test_an_unmeasured_kind_is_modelled_by_its_family_or_missing(timed):
    gelu, lookup = (
        Operation("gelu", [(100_000,)]),
        Operation("embedding", [(8, 16)], {"num_embeddings": 100, "embedding_dim": 8}),
    )
    calls = timed.operations.predict([gelu, lookup, RELUS[3]])
    assert calls.source == ("modelled", "modelled", "measured")
    half = RELUS[-1].replace(precision="fp16")
    assert timed.operations.predict([half]).source == ("missing",)
    with pytest.raises(UncoveredError):
        timed.predict(Network.of([(half, 9), (RELUS[0], 1)]))
    with pytest.raises(UncoveredError):
        timed.predict(Network.of([(half, 1), (LINEARS[-1], 900)]), strict=True)
    lacking = timed.predict(Network.of([(LINEARS[0].replace(precision="fp16"), 2), (LINEARS[-1], 900)]))
    (missing,) = lacking.uncovered
    moved = 2 * (64 * 256 + 256 * 256 + 256 + 64 * 256)
    assert (missing.flops, missing.moved_bytes) == (2 * 2 * 64 * 256**2, 2 * moved)


ALEXNET = "alexnet", (1, 3, 224, 224)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"clock": 1000}, "the clock of a CPU"),
        ({"power_limit_w": 50}, "cannot be capped"),
        ({"execution": "graph"}, "only eager runs"),
        ({"host": 0.5}, "its own host"),
        ({"composition": "overlap"}, "unknown composition"),
        ({"mode": "training"}, "another CPU or mode"),
        ({"gpu": "A30"}, "another GPU"),
        ({"predictor": "any-gpu/forest"}, "predicts GPUs"),
    ],
)
def test_what_a_cpu_does_not_have_is_refused(zoo, ask, said):
    with pytest.raises(InputError, match=said) as caught:
        joulecast.predict(*ALEXNET, **{"gpu": "Simulated Xeon", "predictor": zoo, **ask})
    assert caught.value.allowed or caught.value.hint


def test_what_to_do_is_said_where_a_cpu_was_not_measured_and_where_only_gpus_can_be_chosen():
    with pytest.raises(ZooError, match="no predictor for inference on CPU Xeon of nobody") as caught:
        joulecast.predict(*ALEXNET, "Xeon of nobody")
    assert "joulecast collect" in caught.value.hint
    for choose in (joulecast.best, joulecast.sweep):
        with pytest.raises(UnknownNameError, match="only GPUs can be used here") as caught:
            choose(*ALEXNET, gpus=["AMD EPYC"])
        assert "joulecast predict" in caught.value.hint


def test_a_cpu_has_many_names_and_one_folder():
    cpu = find_device("CPU Intel(R) Xeon(R) Platinum 8480C")
    assert isinstance(cpu, CPU)
    assert cpu.slug == find_device("intel xeon platinum 8480c").slug == "cpu-intel-xeon-platinum-8480c"
    assert find_device("cpu") == find_device(joulecast.hardware.host.cpu_name())
    assert find_device("A30").name == "NVIDIA A30"
    assert find_device(cpu) is cpu
    with pytest.raises(UnknownNameError):
        find_device("Zeon")


def test_networks_without_power_survive_a_dataset(tmp_path):
    data = dataset()
    again = load(save(data, tmp_path))
    assert again == data
    assert len(again.usable_networks("inference")) == len(NETWORKS)
    assert again.networks_with_energy("inference") == []
    with pytest.raises(DatasetError, match="was not measured"):
        _ = again.networks[0].known_energy_j
    assert len(dataset(power=True).networks_with_energy("inference")) == len(NETWORKS)


def test_operations_that_only_one_network_has_are_left_out_with_it(tmp_path):
    trained = trained_on(dataset(power=True), tmp_path)
    errors = trained.validation.networks
    left_out = dict(zip(errors["network"].tolist(), errors["left_out"].tolist(), strict=True))
    # net0 has the linears 0 and 5 and a relu; nobody else has linear 0, 5 and relu 0.
    assert left_out["net0"] == 3
    assert np.abs(errors.relative("time")).max() < 0.2
    assert all({"time", "energy"} <= set(case) for case in trained.card.networks)
    assert set(trained.predictor.network_errors) == {"time", "energy", "power", "edp"}
    assert any("1.0 to 3.0" in limit for limit in trained.card.limits)
    assert trained.validation.metrics()[f"networks by name, inference/{NAME}/time_mean"] < 0.2


def test_a_stored_predictor_predicts_the_same_and_knows_its_errors_on_networks(zoo, tmp_path):
    errors = left_out_of(zoo)
    assert set(errors) == {"networks", "operations"}
    assert (zoo / "README.md").read_text().count("Energy: not measured") == 1
    assert {label.partition(": ")[2].split()[0] for label in errors["networks"]} == set(NETWORKS)
    assert {name for each in errors["networks"].values() for name in each} == {"time"}
    network = NETWORKS["net4"]
    found = joulecast.predict(network, None, "Simulated Xeon", predictor=zoo)
    assert found.time_s == pytest.approx(network_s(network), rel=0.05)
    other = shutil.copytree(zoo, tmp_path / "other")
    facts = json.loads((other / "predictor.json").read_text())
    (other / "predictor.json").write_text(json.dumps({**facts, "threads": 2}))
    with pytest.raises(ZooError):
        joulecast.predict(network, None, "Simulated Xeon", predictor=other)


def test_the_shipped_predictor_of_a_cpu_is_what_its_card_says():
    (name,) = [name for name in entries() if name.startswith(CPU_FOLDERS)]
    card, found = StoredEntry.of(shipped("zoo") / name).card, find_cpu_predictor(find_device("AMD EPYC"), "inference")
    assert found.name == card["name"] == name
    assert card["gpu"] == found.operations.cpu.name == "CPU AMD EPYC"
    assert card["data"][0]["sha256"] == fingerprint(shipped("datasets") / "cpu-amd-epyc")
    assert card["data"][0]["operations"] == len(found.operations.measured) >= 150
    assert found.operations.power is None
    assert any(limit.startswith("Load average") for limit in card["limits"])
    assert str(measured_gpus()["CPU AMD EPYC"]).endswith("networks (time only)")
    times_s = [joulecast.predict("resnet18", (batch, 3, 224, 224), "AMD EPYC").time_s for batch in (1, 2, 8)]
    assert times_s == sorted(times_s)
    assert 0.01 < times_s[0] < 0.2


def test_a_cpu_on_which_one_network_was_measured_is_trained(tmp_path):
    network = Network(tuple(Entry(operation, 1) for operation in (*LINEARS, *RELUS)), name="all", input_shape=(64, 256))
    trained = trained_on(replace(dataset(), networks=(whole(network, power=False),)), tmp_path)
    assert len(trained.validation.networks) == 0
    # Its operations alone tell whether another predictor is better.
    assert {len(errors) for errors in left_out_of(trained.save(tmp_path / "zoo")).values()} == {len(LINEARS + RELUS)}
    notes = trained.predictor.predict(network).notes
    assert any("fewer than three networks were measured" in note for note in notes)
