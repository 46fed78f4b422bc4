"""Operations and networks as tables: the same answers, whichever library holds the columns."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import joulecast
from joulecast import Network, Operation
from joulecast.errors import InputError
from joulecast.operations import columns

CONV = Operation("conv2d", [(8, 3, 32, 32)], {"out_channels": 16, "kernel_size": 3, "padding": 1})
RELU = Operation("relu", [(8, 16, 32, 32)])
NETWORKS = {
    "one": Network.of([(CONV, 1), (RELU, 2)]),
    "two": Network.of([(RELU, 3)]),
    "three": Network.of([(CONV, 4), (RELU, 1)]),
}
FRAME = pd.concat([network.to_frame().assign(network=name) for name, network in NETWORKS.items()])
LISTS = {name: FRAME[name].tolist() for name in FRAME.columns}


def polars_frame(lists):
    return pytest.importorskip("polars").DataFrame(lists)


FORMS = {
    "pandas": pd.DataFrame,
    "polars": polars_frame,
    "Arrow": pa.table,
    "lists": dict,
    "arrays": lambda lists: {name: np.array(values) for name, values in lists.items()},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_any_library_may_hold_the_columns(form):
    alone = [joulecast.predict(network, None, "A30").energy_j for network in NETWORKS.values()]
    found = joulecast.predict_many(form(LISTS), "A30")
    assert found.names == ("one", "two", "three")
    assert found.energy_j.tolist() == pytest.approx(alone, rel=1e-12)
    rows = joulecast.predict_operations(form(LISTS), "A30")
    conv, relu = joulecast.predict_operations([CONV, RELU], "A30").energy_j.tolist()
    assert rows.energy_j.tolist() == [conv, relu, relu, conv, relu]
    assert rows.operations == (CONV, RELU, RELU, CONV, RELU)


def test_rows_have_the_intervals_of_their_operations():
    """Also those of the fallback: nothing was measured in half precision on an A30."""
    half = RELU.replace(precision="fp16")
    table = {**LISTS, "precision": ["tf32", "fp32", "fp16", "tf32", "fp32"]}
    alone = joulecast.predict_operations([CONV.replace(precision="tf32"), RELU, half], "A30").interval()
    found = joulecast.predict_operations(table, "A30").interval()
    for low_high, one in zip(found.energy_j, alone.energy_j, strict=True):
        assert low_high.tolist() == one[[0, 1, 2, 0, 1]].tolist()


def test_columns_say_what_is_not_known():
    uncovered = Operation("experts", [(8, 64)], {"intermediate": 64, "top_k": 2, "experts": 4})
    columns_of = joulecast.predict_operations([RELU, uncovered], "A30").to_columns()
    assert columns_of["source"].tolist()[1] == "missing"
    assert np.isnan(columns_of["energy_j"]).tolist() == [False, True]
    assert columns_of["energy_j"].dtype == float
    nothing = joulecast.predict_many(FRAME[:0], "A30")
    assert len(nothing) == nothing.to_columns()["energy_j"].size == 0


def test_shapes_and_attributes_may_be_lists_and_dictionaries():
    nested = {**LISTS, "input_shapes": [[[8, 16, 32, 32]]] * 5, "attributes": [{}] * 5, "kind": ["relu"] * 5}
    assert joulecast.predict_operations(nested, "A30").operations == (RELU,) * 5


def test_a_table_is_read_in_pieces(monkeypatch):
    whole = joulecast.predict_many(FRAME, "A30").energy_j.tolist()
    for rows in (1, 3, 4):
        monkeypatch.setattr(columns, "_ROWS_AT_ONCE", rows)
        assert joulecast.predict_many(FRAME, "A30").energy_j.tolist() == pytest.approx(whole, rel=1e-12)
        assert len(joulecast.predict_operations(FRAME, "A30").energy_j) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": ["conv2d", "rleu", *LISTS["kind"][2:]]}, "row 2 of the table: unknown operation kind"),
        ({"input_shapes": ["[[8, 3, 32, 32]]", "[[-8]]", *LISTS["input_shapes"][2:]]}, "row 2 of the table"),
        ({"attributes": ["{"] * 5}, "not JSON"),
        ({"count": [1, 0, 1, 1, 1]}, "row 2 of the table: a count"),
        ({"count": [1, 1.5, 1, 1, 1]}, "a count is a positive integer"),
        ({"count": ["a"] * 5}, "a count is a positive integer"),
        ({"network": ["one", "two", "one", "two", "two"]}, "follow each other"),
        ({"mode": ["training"] * 5}, "this predictor is for inference"),
        ({"count": [1]}, "one length"),
        # Nothing of these networks is covered.
        (
            {"precision": ["fp8"] * 5, "kind": ["linear"] * 5, "input_shapes": ["[[8, 16]]"] * 5}
            | {"attributes": ['{"out_features": 16}'] * 5},
            "fp8",
        ),
    ],
)
def test_a_wrong_row_is_named(change, message):
    with pytest.raises(joulecast.errors.JoulecastError, match=message):
        joulecast.predict_many({**LISTS, **change}, "A30")


@pytest.mark.parametrize("name", ["network", "count", "kind", "attributes", "mode"])
def test_a_missing_column_is_named(name):
    with pytest.raises(InputError, match=f"lacks the column {name}"):
        joulecast.predict_many(FRAME.drop(columns=name), "A30")
