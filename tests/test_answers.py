"""All answers have one interface: dictionaries, JSON, CSV, data frames, and pictures."""

import copy
import json
import pickle
from pathlib import Path

import pytest

import joulecast
from joulecast.errors import InputError
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation
from joulecast.predictors.intervals.network_spread import SentNetworkSpread

NETWORK = Network.of(
    [(Operation("linear", [(32, 512)], {"out_features": 512}), 2), (Operation("relu", [(32, 512)]), 1)]
)


def answers() -> dict[str, object]:
    """One answer of each kind, for a small network on an A30."""
    prediction = joulecast.predict(NETWORK, gpu="A30")
    return {
        "prediction": prediction,
        "tree": prediction.tree(),
        "memory levels": prediction.by_memory_level(),
        "choices": joulecast.best(NETWORK, gpus=["A30", "T4"], clocks=[900]),
        "sweep": joulecast.sweep(NETWORK, gpus=["A30"], clocks=[600, 900]),
        "operations": joulecast.predict_operations([entry.operation for entry in NETWORK], gpu="A30"),
        "networks": joulecast.predict_many([NETWORK], "A30"),
        "network": NETWORK,
    }


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return answers()


NAMES = ("prediction", "tree", "memory levels", "choices", "sweep", "operations", "networks", "network")


@pytest.mark.parametrize("name", NAMES)
def test_json_text_reads_back_as_the_dictionary(found: dict[str, object], name: str) -> None:
    answer = found[name]
    assert json.loads(answer.to_json(indent=2)) == json.loads(json.dumps(answer.to_dict()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("networks", "network")])
@pytest.mark.parametrize("ending", ["svg", "html"])
def test_every_plot_takes_a_path(found: dict[str, object], name: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"plot.{ending}"
    assert found[name].plot(path) == path  # type: ignore[attr-defined]
    assert "<svg" in path.read_text(encoding="utf-8")


def test_a_plot_into_another_ending_is_refused_and_writes_nothing(found: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SVG or HTML"):
        found["prediction"].plot(tmp_path / "plot.gif")  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="folder"):
        found["prediction"].plot(tmp_path / "none" / "plot.svg")  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


def test_a_prediction_says_throughput_and_memory() -> None:
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "A30")
    assert prediction.batch_size == 8
    assert prediction.samples_per_s == pytest.approx(8 / prediction.time_s)
    assert prediction.energy_per_sample_j == pytest.approx(prediction.energy_j / 8)
    # 11.69 million weights of 4 bytes, 64 x 112 x 112 outputs of the first layer, and 768 MiB of CUDA's own.
    assert prediction.memory_bytes is not None
    assert 4 * 11.69e6 + 4 * 8 * 64 * 112**2 + 768 * 2**20 < prediction.memory_bytes < 1.1e9
    assert joulecast.predict(NETWORK, gpu="A30").samples_per_s is None


def test_pickled_predictions_of_operations_are_small() -> None:
    predictions = joulecast.predict_operations([joulecast.Operation("relu", [(32, 64, 56, 56)])], "A30")
    assert len(pickle.dumps(predictions)) < 10_000
    again = copy.deepcopy(predictions)
    assert again.operations == predictions.operations
    assert again.interval(0.9).energy_j[0] == predictions.interval(0.9).energy_j[0]


def test_a_pickled_prediction_is_small_and_keeps_its_interval() -> None:
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "A30")
    assert len(pickle.dumps(prediction)) < 40_000
    again = copy.deepcopy(prediction)  # made anew from what pickle stores, without bytes that would have to be trusted
    assert type(again.spread) is SentNetworkSpread
    assert again.interval(0.9) == prediction.interval(0.9)
    assert again == prediction
