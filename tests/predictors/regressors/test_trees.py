"""Trees: to and from ONNX to the last bit, and whatever else a file may hold is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from joulecast.errors import ZooError
from joulecast.predictors.formats.arrays import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.regressors import serving
from joulecast.predictors.regressors.serving import StoredTrees
from joulecast.predictors.regressors.trees import Trees
from joulecast.predictors.regressors.trees_fitted import boosted_to_onnx, forest_to_onnx
from joulecast.predictors.regressors.trees_onnx import trees_from_onnx, trees_to_onnx

COLUMNS = 5
INPUTS = np.random.default_rng(0).normal(size=(400, COLUMNS)).astype(np.float32)
TARGET = INPUTS[:, 0] * np.where(INPUTS[:, 1] > 0.3, 2.0, -1.0) + INPUTS[:, 2] ** 2


def forest(**settings):
    from sklearn.ensemble import ExtraTreesRegressor

    return forest_to_onnx(ExtraTreesRegressor(8, random_state=0, **settings).fit(INPUTS, TARGET))


def boosted():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(n_estimators=12, max_depth=4, n_jobs=1).fit(INPUTS, TARGET)
    return boosted_to_onnx(model)


MODELS = {
    "forest": forest,
    "in another order": lambda: forest(max_leaf_nodes=20),  # best first, not depth first
    "trees of one leaf": lambda: forest(min_samples_leaf=300),
    "boosted": boosted,
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS.keys())
def model(request):
    return request.param()


def test_the_same_numbers_to_the_last_bit(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"operations": INPUTS})
    trees = Trees.from_bytes(trees_from_onnx(model).to_bytes())
    assert StoredTrees(trees, COLUMNS)(INPUTS).tolist() == expected[:, 0].tolist()
    assert trees.sums(INPUTS).tolist() == expected[:, 0].tolist()
    assert [float(trees.sums(row[None])[0]) for row in INPUTS[:40]] == expected[:40, 0].tolist()


def test_what_is_written_is_onnx(model):
    onnx = pytest.importorskip("onnx")
    onnx.checker.check_model(onnx.load_from_string(trees_to_onnx(trees_from_onnx(model))))


def by_hand():
    """Two trees: x0 < 1 ? 10 : (x1 < 2 ? 20 : 30), and 5."""
    return Trees(
        columns=2,
        below=True,
        base=0.5,
        is_leaf=np.array([False, True, False, True, True, True]),
        inputs=np.array([0, 1], np.uint16),
        thresholds=np.array([1, 2], np.float32),
        values=np.array([10, 20, 30, 5], np.float32),
    )


def test_trees_by_hand():
    trees = by_hand()
    assert trees.starts.tolist() == [0, 5]
    assert trees.otherwise.tolist() == [2, 4]
    assert trees.levels() == 3
    inputs = np.array([[0, 0], [1, 1.9], [1, 2]], np.float32)
    assert StoredTrees(trees, 2)(inputs).tolist() == [15.5, 25.5, 35.5]


def test_few_rows_get_no_session_ready(monkeypatch):
    made = []
    monkeypatch.setattr(serving, "_session", lambda trees, make=serving._session: made.append(1) or make(trees))
    stored = StoredTrees(by_hand(), 2)
    few, many = np.zeros((100, 2), np.float32), np.ones((300, 2), np.float32)
    assert (stored(few).tolist(), made) == ([15.5] * 100, [])
    assert (stored(many).tolist(), made) == ([25.5] * 300, [1])
    assert (stored(few).tolist(), made) == ([15.5] * 100, [1])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"is_leaf": np.zeros(0, bool)}, "number of nodes"),
        ({"is_leaf": np.array([True, True, True, False, True, False])}, "last tree is incomplete"),
        ({"inputs": np.array([0, 2], np.uint16)}, "input that does not exist"),
        ({"thresholds": np.array([1, np.nan], np.float32)}, "is not finite"),
        ({"values": np.array([1, 2, 3], np.float32)}, "do not match its nodes"),
        ({"base": float("inf")}, "is not finite"),
        ({"columns": 1 << 20}, "number of inputs"),
    ],
)
def test_damaged_trees_are_refused(change, says):
    with pytest.raises(ZooError, match=says):
        replace(by_hand(), **change)


def test_trees_that_would_overflow_a_stack_are_refused():
    depth = 100_000
    with pytest.raises(ZooError, match="too deep"):
        Trees(
            columns=1,
            below=False,
            base=0.0,
            is_leaf=np.array([False] * depth + [True] * (depth + 1)),
            inputs=np.zeros(depth, np.uint16),
            thresholds=np.zeros(depth, np.float32),
            values=np.zeros(depth + 1, np.float32),
        )


def test_flipped_bytes_are_refused_or_make_trees(model):
    data = trees_from_onnx(model).to_bytes()
    rng = np.random.default_rng(1)
    for _ in range(200):
        changed = bytearray(data)
        changed[rng.integers(len(data))] ^= 1 << rng.integers(8)
        try:
            trees = Trees.from_bytes(bytes(changed))
        except ZooError:
            continue
        assert trees.levels() > 0


@pytest.mark.parametrize("damage", [b"", b"\x00" * 7, b"\xff" * 40, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_what_holds_no_arrays_is_refused(damage):
    with pytest.raises(ZooError, match="file of arrays in a zoo entry is damaged"):
        arrays_from_bytes(damage)


def test_arrays_are_safetensors():
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float64).reshape(2, 3), "b": np.array([7], np.uint16)}
    data = arrays_to_bytes(arrays, {"kind": "x"})
    for found in (arrays_from_bytes(data)[0], safetensors.load(data)):
        assert {name: array.tolist() for name, array in found.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": [7]}
