"""All answers have one interface: dictionaries, JSON, CSV, data frames, and pictures."""

import copy
import json
import pickle
from xml.etree import ElementTree

import pytest

import joulecast
from joulecast.errors import InputError
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation
from joulecast.rendering.pictures import Line, lines_over
from joulecast.units import duration, si

NETWORK = Network.of(
    [(Operation("linear", [(32, 512)], {"out_features": 512}), 2), (Operation("relu", [(32, 512)]), 1)]
)
TEXT = {"prompt_tokens": 64, "output_tokens": 16}
SAMPLES = ("resnet18", (8, 3, 64, 64))
ANSWERS = {
    "prediction": lambda: joulecast.predict(NETWORK, gpu="A30"),
    "tree": lambda: joulecast.predict(NETWORK, gpu="A30").tree(),
    "memory levels": lambda: joulecast.predict(NETWORK, gpu="A30").by_memory_level(),
    "choices": lambda: joulecast.best(NETWORK, gpus=["A30", "T4"], clocks=[900]),
    "sweep": lambda: joulecast.sweep(NETWORK, gpus=["A30"], clocks=[600, 900]),
    "operations": lambda: joulecast.predict_operations([entry.operation for entry in NETWORK], gpu="A30"),
    "explanation": lambda: joulecast.explain(Operation("relu", [(32, 512)]), "A30"),
    "networks": lambda: joulecast.predict_many([NETWORK] * 500, "A30"),
    "network": lambda: NETWORK,
    "generation": lambda: joulecast.predict_generation("gpt2", "A30", batch=4, **TEXT),
    "ways": lambda: joulecast.best_generation("gpt2", gpus=["A30"], clocks=[900, 1440], **TEXT),
    "image": lambda: joulecast.predict_image("sana_1_6b", "H100 SXM"),
    "run": lambda: joulecast.predict_run(*SAMPLES, "A30", samples=1e4),
    "runs": lambda: joulecast.best_run(*SAMPLES, samples=1e4, gpus=["A30"], counts=[1, 2]),
    "served": lambda: joulecast.simulate_serving("gpt2", "A30", requests=2.0, duration_s=20, **TEXT),
}


def read(html):
    """The words of a view, which is well-formed and names nothing that could be fetched or run."""
    root = ElementTree.fromstring(f"<page>{html}</page>")  # noqa: S314 (what is opened is closed)
    for element in root.iter():
        assert element.tag.rpartition("}")[2] != "script"
        assert not [name for name in element.attrib if name in ("src", "href") or name.startswith("on")]
    return " ".join(" ".join(root.itertext()).split())


@pytest.fixture(scope="module", params=ANSWERS)
def answer(request):
    """One answer of each kind, for a small network on an A30."""
    return ANSWERS[request.param]()


def test_every_answer_is_a_line_a_table_json_and_a_view(answer):
    assert json.loads(answer.to_json(indent=2)) == json.loads(json.dumps(answer.to_dict()))
    frame = answer.to_frame()
    assert len(repr(answer)) < 400
    assert "\n" not in repr(answer)
    assert [*frame.columns] == answer.to_csv().splitlines()[0].split(",")
    assert len(frame) == len(answer.to_csv().splitlines()) - 1 > 0
    view = answer._repr_html_()
    assert "<table" in view
    assert len(view) < 100_000
    read(view)


def test_every_plot_is_svg_html_and_png(answer, tmp_path):
    if isinstance(answer, Network):
        return  # which has no plot
    for ending in ("svg", "html"):
        path = tmp_path / f"plot.{ending}"
        assert answer.plot(path) == path
        text = path.read_text(encoding="utf-8")
        assert "<svg" in text
        assert ("<table" in text) == (ending == "html")
    path = answer.plot(tmp_path / "plot.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    if isinstance(answer, joulecast.Sweep):
        return  # which matplotlib draws
    drawn = ElementTree.fromstring(answer.plot().svg)  # noqa: S314 (ours)
    width, height = (float(drawn.attrib[side]) for side in ("width", "height"))
    across, down = (int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))
    assert (across, down) == pytest.approx((2 * width, 2 * height), abs=1)  # 2 dots for each pixel of a page


def test_views_say_the_numbers_of_the_answers():
    prediction = ANSWERS["prediction"]()
    low, high = prediction.interval(0.9).energy_j
    text = read(prediction._repr_html_())
    for expected in (si(prediction.time_s, "s"), si(prediction.energy_j, "J"), f"{si(low, 'J')} to {si(high, 'J')}"):
        assert expected in text
    assert max(prediction.operations, key=lambda c: c.energy_j or 0).operation.kind in text
    several = joulecast.best("resnet18", (8, 3, 64, 64), gpus=["A30", "L4", "T4"], objective="edp", precision="bf16")
    text = read(several._repr_html_())
    for expected in (several[0].alias, si(several[0].value, "Js"), "EDP", "never measured", "left out: T4"):
        assert expected in text
    nothing = type(several)()
    assert "no choice" in read(nothing._repr_html_())
    read(nothing.plot()._repr_html_())
    generation, run = ANSWERS["generation"](), ANSWERS["run"]()
    ways = joulecast.best_generation("gpt2", gpus=["A30"], clocks=[900], batches=[4], **TEXT)
    text = read(generation._repr_html_())
    assert f"tokens per second {generation.tokens_per_s:,.0f}" in text
    assert si(generation.energy_per_token_j, "J") in text
    assert duration(max(part.time_s for part in run.parts)) in read(run._repr_html_())
    assert str(ways).startswith("1 way ")
    assert f"{ways[0].tokens_per_s:,.0f}" in read(ways._repr_html_())


def test_a_plot_into_another_ending_is_refused_and_writes_nothing(tmp_path):
    prediction = joulecast.predict(NETWORK, gpu="A30")
    for path, says in (("plot.gif", r"ends in \.svg, \.png, \.html"), ("none/plot.svg", "folder")):
        with pytest.raises(InputError, match=says):
            prediction.plot(tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_prediction_says_throughput_and_memory():
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "A30")
    assert prediction.batch_size == 8
    assert prediction.samples_per_s == pytest.approx(8 / prediction.time_s)
    assert prediction.energy_per_sample_j == pytest.approx(prediction.energy_j / 8)
    # 11.69 million weights of 4 bytes, 64 x 112 x 112 outputs of the first layer, and 768 MiB of CUDA's own.
    assert prediction.memory_bytes is not None
    assert 4 * 11.69e6 + 4 * 8 * 64 * 112**2 + 768 * 2**20 < prediction.memory_bytes < 1.1e9
    assert joulecast.predict(NETWORK, gpu="A30").samples_per_s is None


def test_pickled_predictions_are_small_and_keep_their_intervals():
    prediction = joulecast.predict("resnet18", (8, 3, 224, 224), "A30")
    alone = joulecast.predict_operations([Operation("relu", [(32, 64, 56, 56)])], "A30")
    assert (len(pickle.dumps(prediction)) < 40_000, len(pickle.dumps(alone)) < 10_000) == (True, True)
    # Made anew from what pickle stores, without bytes that would have to be trusted.
    again, again_alone = copy.deepcopy((prediction, alone))
    assert (again, again.interval(0.9)) == (prediction, prediction.interval(0.9))
    assert again_alone.operations == alone.operations
    assert again_alone.interval(0.9).energy_j[0] == alone.interval(0.9).energy_j[0]


@pytest.mark.parametrize(("largest_s", "middle"), [(100.0, 1 / 2), (10.0, 1 / 3)], ids=["logarithmic", "linear"])
def test_a_time_axis_is_logarithmic_where_dots_differ_much(largest_s, middle):
    """From 1 to 100 s, 10 s lie in the middle; from 1 to 10 s, 4 s lie at a third. Joules of all of them are alike."""
    inner_s = 10.0 if largest_s == 100 else 4.0
    dots = Line("dots", [(1.0, 2.0), (inner_s, 3.0), (largest_s, 4.0)], joined=False)
    svg = ElementTree.fromstring(lines_over([dots], ("time", "s"), ("energy", "J"), "ways"))  # noqa: S314 (ours)
    first, inner, last = (float(each.attrib["cx"]) for each in svg.iter() if each.tag.endswith("circle"))
    assert (inner - first) / (last - first) == pytest.approx(middle, abs=1e-3)
    heights = [float(each.attrib["cy"]) for each in svg.iter() if each.tag.endswith("circle")]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
