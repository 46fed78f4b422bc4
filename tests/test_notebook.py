"""What Jupyter shows is well-formed, names nothing outside, and says the numbers of the library."""

import re
from xml.etree import ElementTree

import joulecast
from joulecast.units import duration, si

JOB = ("resnet18", (8, 3, 224, 224))


def read(html: str) -> str:
    """The words of a view, which is well-formed and names nothing that could be fetched or run."""
    root = ElementTree.fromstring(f"<page>{html}</page>")  # noqa: S314 (what is opened is closed)
    for element in root.iter():
        assert element.tag.rpartition("}")[2] != "script"
        assert not [name for name in element.attrib if name in ("src", "href") or name.startswith("on")]
    return " ".join(root.itertext())


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
    assert ("INCOMPLETE" in text) == bool(prediction.uncovered)


def test_choices():
    choices = joulecast.best(*JOB, gpus=["A30", "L4", "T4"], precision="bf16")
    text = read(choices._repr_html_())
    for expected in (choices[0].alias, si(choices[0].energy_j, "J"), "never measured", "left out: T4"):
        assert expected in text
    several = joulecast.best(*JOB, gpus=["A30", "T4"], objective="edp", batch_sizes=[4, 8])
    text = read(several._repr_html_())
    assert si(several[0].value, "Js") in text
    assert "EDP per sample" in text
    nothing = type(choices)()
    assert "no choice" in read(nothing._repr_html_())
    read(nothing.plot()._repr_html_())


def test_rates_and_long_times_of_models_that_write_text_and_of_runs():
    lengths = {"prompt_tokens": 512, "output_tokens": 128}
    generation = joulecast.predict_generation("llama3_8b", "H100 SXM", batch=8, **lengths)
    text = read(generation._repr_html_())
    assert f"tokens {generation.tokens_per_s:,.0f} a second" in re.sub(r"\s+", " ", text)
    assert si(generation.energy_per_token_j, "J") in text
    run = joulecast.predict_run("bert_base", (32, 128), "L4", samples=1e5, epochs=3)
    assert duration(max(part.time_s for part in run.parts)) in read(run._repr_html_())
    (_,) = ways = joulecast.best_generation("llama3_8b", gpus=["H100 SXM"], batches=[8], **lengths)
    assert str(ways).startswith("1 way ")
    assert f"{ways[0].tokens_per_s:,.0f} a second" in read(ways._repr_html_())
