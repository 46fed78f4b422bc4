"""Trees: as scikit-learn and XGBoost compute them, to the last bit; whatever else a file may hold is refused."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from joulecast.errors import ZooError
from joulecast.predictors.formats.numbers import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.regressors import trees
from joulecast.predictors.regressors.fitted_trees import FittedTrees
from joulecast.predictors.regressors.trees import StoredTrees, Trees, trees_to_onnx

COLUMNS = 5
INPUTS = np.random.default_rng(0).normal(size=(400, COLUMNS)).astype(np.float32)
TARGET = INPUTS[:, 0] * np.where(INPUTS[:, 1] > 0.3, 2.0, -1.0) + INPUTS[:, 2] ** 2


def forest(**settings):
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(8, random_state=0, **settings).fit(INPUTS, TARGET)


def boosted(**settings):
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBRegressor(n_estimators=12, max_depth=4, n_jobs=1, **settings).fit(INPUTS, TARGET)


MODELS = {
    "forest": forest,
    "in another order": lambda: forest(max_leaf_nodes=20),  # best first, not depth first
    "trees of one leaf": lambda: forest(min_samples_leaf=300),
    "boosted": boosted,
    "boosted, each step a mean": lambda: boosted(num_parallel_tree=3),
    "boosted, a quantile": lambda: boosted(objective="reg:quantileerror", quantile_alpha=0.4),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS.keys())
def model(request):
    return request.param()


def on_thresholds(model):
    """Inputs that lie just on a threshold, or one step of single precision beside it."""
    trees = FittedTrees(model).trees()
    found = INPUTS[: len(trees.inputs)].copy()
    for place, (row, column, threshold) in enumerate(zip(found, trees.inputs, trees.thresholds, strict=False)):
        row[column] = (np.nextafter(threshold, -np.inf), threshold, np.nextafter(threshold, np.inf))[place % 3]
    return found if len(found) else INPUTS


def test_the_same_numbers_as_the_library_computes(model):
    trees = Trees.from_bytes(FittedTrees(model).trees().to_bytes())
    for inputs in (INPUTS, on_thresholds(model)):
        # The libraries add in another order, or in double precision.
        assert trees.sums(inputs) == pytest.approx(model.predict(inputs), rel=1e-5, abs=1e-5)


def test_numpy_and_onnx_runtime_agree_to_the_last_bit(model):
    trees = FittedTrees(model).trees()
    found = trees.sums(INPUTS).tolist()
    assert StoredTrees(trees, COLUMNS)(INPUTS).tolist() == found
    assert [float(trees.sums(row[None])[0]) for row in INPUTS[:40]] == found[:40]


def test_what_is_written_is_onnx(model):
    onnx = pytest.importorskip("onnx")
    onnx.checker.check_model(onnx.load_from_string(trees_to_onnx(FittedTrees(model).trees())))


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
    monkeypatch.setattr(trees, "_session", lambda stored, make=trees._session: made.append(1) or make(stored))
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
    data = FittedTrees(model).trees().to_bytes()
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


WHILE_ANOTHER_IMPORTS = """
import sys, threading
from joulecast.predictors.formats.onnx import import_onnxruntime

first = threading.Thread(target=import_onnxruntime)
first.start()
while "onnxruntime" not in sys.modules:
    pass
import_onnxruntime().SessionOptions()
first.join()
"""


def test_onnx_runtime_is_whole_while_another_thread_imports_it():
    done = subprocess.run([sys.executable, "-c", WHILE_ANOTHER_IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
