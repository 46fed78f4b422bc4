"""A transformer that was stored: round trips, hostile files, and its predictions."""

import json
from dataclasses import replace

import numpy as np
import pytest

from joulecast.errors import InputError, UnknownNameError, ZooError
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.formats.numbers import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.transformer.attentive import Attentive

torch = pytest.importorskip("torch")

from small_transformers import A30, T4, arrays, made_networks, quick  # noqa: E402


@pytest.fixture(scope="module", name="quick")
def _quick():
    return quick()


# Name -> damage to the arrays and texts of stored weights, or to the facts beside them.
HOSTILE = {
    "no arrays": lambda arrays, texts, facts: arrays.clear(),
    "an array is missing": lambda arrays, texts, facts: arrays.pop("over_kinds.0.gather.bias"),
    "one too many": lambda arrays, texts, facts: arrays.update(more=np.zeros(3, np.float32)),
    "another shape": lambda arrays, texts, facts: arrays.update(roles=np.zeros((16, 10), np.float32)),
    "no dimensions": lambda arrays, texts, facts: arrays.update({"kind.weight": np.zeros((), np.float32)}),
    "fp64": lambda arrays, texts, facts: arrays.update(roles=arrays["roles"].astype(float)),
    "another kind of file": lambda arrays, texts, facts: texts.update(kind="trees"),
    "more layers": lambda arrays, texts, facts: facts["recipe"].update(kind_layers=2),
    "a wider vector": lambda arrays, texts, facts: facts["recipe"].update(width=32),
    "more kinds": lambda arrays, texts, facts: facts["vocabulary"].append("gelu"),
    "heads that do not divide": lambda arrays, texts, facts: facts["recipe"].update(heads=3),
    "no heads": lambda arrays, texts, facts: facts["recipe"].update(heads=0),
    "layers by the thousand": lambda arrays, texts, facts: facts["recipe"].update(kind_layers=9999),
    "an unknown setting": lambda arrays, texts, facts: facts["recipe"].update(depth=3),
    "other tokens": lambda arrays, texts, facts: facts.update(tokens=["kind"]),
    "a range without an end": lambda arrays, texts, facts: facts["ranges"].update(relu=[0.0]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_damage_is_refused(quick, change):
    facts, files = quick.to_files()
    facts = json.loads(json.dumps(facts))
    ((name, stored),) = files.items()
    assert Attentive.from_files(facts, files).to_files() == (facts, files)
    arrays, texts = arrays_from_bytes(stored)
    change(arrays, texts, facts)
    with pytest.raises((InputError, UnknownNameError, ZooError, ValueError, TypeError)):
        Attentive.from_files(facts, {name: arrays_to_bytes(arrays, texts)})


def test_a_kind_outside_the_vocabulary_is_one_error(quick):
    values, families, kinds = arrays(1, 3)
    with pytest.raises(ZooError, match="cannot compute") as caught:
        Attentive.from_files(*quick.to_files()).encoder(values, families, kinds + 10_000)
    assert "out of bounds" in str(caught.value.given)


def test_many_gpus_are_read_at_once(quick):
    operations, calls = tuple(entry.operation for entry in made_networks()[0][2]), []

    def counting(*given):
        calls.append(len(given[0]))
        return quick.encoder(*given)

    learned = replace(quick, encoder=counting)
    listed, gpus = OperationList(operations), [A30, T4, find_gpu("H100 SXM")]
    learned.prefetch(listed, gpus)
    found = [learned.factors(listed, gpu) for gpu in gpus]
    assert calls == [len(gpus) * len(operations)]
    assert np.allclose(found, [quick.factors(operations, gpu) for gpu in gpus], rtol=1e-5)
    read = [quick.log_ratios(listed, [gpu])[0] for gpu in gpus]
    assert np.allclose(learned.log_ratios(listed, gpus), read, rtol=1e-5)
    assert not np.allclose(read[0], read[1], rtol=1e-3)
