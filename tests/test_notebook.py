"""What Jupyter shows is well-formed, names nothing outside, and says the numbers of the library."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import joulecast
from joulecast.units import si

JOB = ("resnet18", (8, 3, 224, 224))


class Tags(HTMLParser):
    """The tags that are open, and whatever could fetch or run something."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.addresses, self.words = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.open += [tag]
        self.addresses += [v for k, v in attrs if k in ("src", "href") or k.startswith("on")]

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(html: str) -> str:
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.addresses == []
    assert "script" not in tags.seen
    return " ".join(tags.words)


def test_a_prediction():
    prediction = joulecast.predict(*JOB, "A30")
    text = read(prediction._repr_html_())
    low, high = prediction.interval(0.9).energy_j
    for expected in (si(prediction.time_s, "s"), si(prediction.energy_j, "J"), f"{si(low, 'J')} to {si(high, 'J')}"):
        assert expected in text
    assert max(prediction.operations, key=lambda c: c.energy_j or 0).operation.kind in text
    assert "H100" in read(joulecast.predict(*JOB, "H100 SXM")._repr_html_())


def test_a_prediction_that_is_incomplete():
    odd = joulecast.Operation("softmax", [(8, 128)], {"dim": -1}, precision="bf16")
    relu = joulecast.Operation("relu", [(32, 64, 56, 56)])
    prediction = joulecast.predict([(relu, 1), (odd, 1)], None, "A30")
    text = read(prediction._repr_html_())
    assert ("incomplete" in text) == bool(prediction.uncovered)


def test_a_sweep_and_its_choices():
    sweep = joulecast.sweep(*JOB, gpus=["A30", "H100 SXM"])
    text = read(sweep._repr_html_())
    best = sweep.best()
    for expected in (best.alias, si(best.energy_j, "J"), f"{best.clock_mhz:g}", "never measured"):
        assert expected in text
    assert si(best.energy_j, "J") in read(best._repr_html_())


@pytest.mark.parametrize("what", ["prediction", "choice", "sweep"])
def test_plots_are_pictures(what, tmp_path):
    if what == "sweep":
        pytest.importorskip("matplotlib")
    sweep = joulecast.sweep(*JOB, gpus="A30", clocks=[900, 1440])
    value = {"prediction": joulecast.predict(*JOB, "A30"), "choice": sweep.rows[0], "sweep": sweep}[what]
    picture = value.plot()
    ElementTree.fromstring(picture.save(tmp_path / "p.svg").read_text())  # noqa: S314  # which we just wrote
    read(picture._repr_html_())


def test_names_are_escaped():
    relu = joulecast.Operation("relu", [(2, 2)])
    network = joulecast.Network.of([(relu, 1)], name="<script>alert(1)</script>")
    assert "<script" not in joulecast.predict(network, None, "A30")._repr_html_()
