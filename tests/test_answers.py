"""All answers have one interface: dictionaries, JSON, CSV, data frames, and pictures."""

import copy
import json
import pickle
from pathlib import Path
from xml.etree import ElementTree

import pytest

import joulecast
from joulecast.errors import InputError
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation

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
        "networks": joulecast.predict_many([NETWORK] * 500, "A30"),
        "network": NETWORK,
        "generation": joulecast.predict_generation("gpt2", "A30", batch=4, prompt_tokens=64, output_tokens=16),
        "ways": joulecast.best_generation("gpt2", prompt_tokens=64, output_tokens=16, gpus=["A30"], clocks=[900, 1440]),
        "image": joulecast.predict_image("sana_1_6b", "H100 SXM"),
        "run": joulecast.predict_run("resnet18", (8, 3, 64, 64), "A30", samples=1e4),
        "runs": joulecast.best_run("resnet18", (8, 3, 64, 64), samples=1e4, gpus=["A30"], counts=[1, 2]),
        "served": joulecast.simulate_serving(
            "gpt2", "A30", requests=2.0, prompt_tokens=64, output_tokens=16, duration_s=20
        ),
        "parallel": joulecast.predict_parallel_training("gpt2", (8, 64), "2x A30", data_parallel=2),
    }


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return answers()


NAMES = (
    *("prediction", "tree", "memory levels", "choices", "sweep", "operations", "networks", "network"),
    *("generation", "ways", "image", "run", "runs", "served", "parallel"),
)


@pytest.mark.parametrize("name", NAMES)
def test_json_text_reads_back_as_the_dictionary(found: dict[str, object], name: str) -> None:
    answer = found[name]
    assert json.loads(answer.to_json(indent=2)) == json.loads(json.dumps(answer.to_dict()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_a_line_a_table_and_a_view(found: dict[str, object], name: str) -> None:
    answer = found[name]
    frame = answer.to_frame()  # type: ignore[attr-defined]
    assert len(repr(answer)) < 400
    assert "\n" not in repr(answer)
    assert [*frame.columns] == answer.to_csv().splitlines()[0].split(",")  # type: ignore[attr-defined]
    assert len(frame) == len(answer.to_csv().splitlines()) - 1 > 0  # type: ignore[attr-defined]
    view = answer._repr_html_()  # type: ignore[attr-defined]
    assert "<table" in view
    assert len(view) < 100_000
    ElementTree.fromstring(f"<page>{view}</page>")  # noqa: S314 (what is opened is closed)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("sweep", "network")])
def test_every_plot_can_be_png(found: dict[str, object], name: str, tmp_path: Path) -> None:
    path = found[name].plot(tmp_path / "plot.png")  # type: ignore[attr-defined]
    assert path.read_bytes().startswith(b"\x89PNG")
    drawn = ElementTree.fromstring(found[name].plot().svg)  # type: ignore[attr-defined] # noqa: S314 (ours)
    width, height = (float(drawn.attrib[side]) for side in ("width", "height"))
    across, down = (int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))
    assert (across, down) == pytest.approx((2 * width, 2 * height), abs=1)  # 2 dots for each pixel of a page


def test_a_pareto_front_of_networks_is_what_no_other_beats() -> None:
    sizes = [16, 32, 64, 128, 256, 512, 1024]
    networks = [Network.of([(Operation("linear", [(256, size)], {"out_features": size}), 4)]) for size in sizes]
    found = joulecast.predict_many([*networks, networks[3]], "A30")
    front = found.pareto()
    pairs = [*zip(found.time_s.tolist(), found.energy_j.tolist(), strict=True)]
    beaten = {one for one in pairs for other in pairs if other != one and other[0] <= one[0] and other[1] <= one[1]}
    assert {pairs[i] for i in front} == set(pairs) - beaten
    assert sorted(front, key=lambda i: pairs[i]) == [*front]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "network"])
@pytest.mark.parametrize("ending", ["svg", "html"])
def test_every_plot_takes_a_path(found: dict[str, object], name: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"plot.{ending}"
    assert found[name].plot(path) == path  # type: ignore[attr-defined]
    assert "<svg" in path.read_text(encoding="utf-8")


def test_a_plot_into_another_ending_is_refused_and_writes_nothing(found: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.svg, \.png, \.html"):
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
    assert again.interval(0.9) == prediction.interval(0.9)
    assert again == prediction
