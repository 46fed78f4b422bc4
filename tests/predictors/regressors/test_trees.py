"""Trees: as scikit-learn and XGBoost compute them, to the last bit; what they ask; damaged files are refused."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from simulated_measurements import simulated_dataset, simulated_operations

from joulecast import Operation
from joulecast.errors import ZooError
from joulecast.hardware import find_gpu
from joulecast.predictors.contract import INPUT_NAMES
from joulecast.predictors.evaluation.one_gpu import search
from joulecast.predictors.fitting.fit import fit_chip
from joulecast.predictors.formats.numbers import arrays_from_bytes, arrays_to_bytes
from joulecast.predictors.model.shared import chip_alone
from joulecast.predictors.physics.relative import relative_features
from joulecast.predictors.recipes import XGBoostRecipe
from joulecast.predictors.regressors import trees
from joulecast.predictors.regressors.fitted_trees import MORE_WORK, FittedTrees, fit_boosted
from joulecast.predictors.regressors.trees import StoredTrees, Trees, decisions, trees_to_onnx
from joulecast.zoo import find_predictor

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
    assert StoredTrees(lambda: trees, COLUMNS)(INPUTS).tolist() == found
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
    assert trees.otherwise.tolist() == [2, 1, 4, 3, 4, 5]
    assert trees.levels() == 3
    inputs = np.array([[0, 0], [1, 1.9], [1, 2]], np.float32)
    assert StoredTrees(lambda: trees, 2)(inputs).tolist() == [15.5, 25.5, 35.5]


def test_few_rows_get_no_session_ready(monkeypatch):
    made = []
    monkeypatch.setattr(trees, "_session", lambda stored, make=trees._session: made.append(1) or make(stored))
    stored = StoredTrees(by_hand, 2)  # two trees of eight nodes
    few, many = np.zeros((3, 2), np.float32), np.ones((2, 2), np.float32)
    assert (stored(few).tolist(), made) == ([15.5] * 3, [])
    assert (stored(many).tolist(), made) == ([25.5] * 2, [1])
    assert (stored(few).tolist(), made) == ([15.5] * 3, [1])


DEPTH = 100_000  # which would overflow a stack
CHAIN = {"is_leaf": np.arange(2 * DEPTH + 1) >= DEPTH, "inputs": np.zeros(DEPTH, np.uint16)}
CHAIN |= {"thresholds": np.zeros(DEPTH, np.float32), "values": np.zeros(DEPTH + 1, np.float32)}


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
        (CHAIN, "too deep"),
    ],
)
def test_damaged_trees_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(by_hand(), **change)


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


def test_arrays_are_safetensors():
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float64).reshape(2, 3), "b": np.array([7], np.uint16)}
    data = arrays_to_bytes(arrays, {"kind": "x"})
    for found in (arrays_from_bytes(data)[0], safetensors.load(data)):
        assert {name: array.tolist() for name, array in found.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": [7]}
    for damage in (b"", b"\x00" * 7, b"\xff" * 40, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"):
        with pytest.raises(ZooError, match="file of arrays in a zoo entry is damaged"):
            arrays_from_bytes(damage)


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


# What trees ask about an operation.

RELU = Operation("relu", [(32, 64, 56, 56)])


def test_the_path_and_the_questions_are_those_of_the_trees():
    """The first tree asks input 0, then input 1; the second only input 1. The row has 3 and 5 there."""
    trees = Trees(
        columns=len(INPUT_NAMES),
        below=False,
        base=0.0,
        is_leaf=np.array([False, True, False, True, True, False, True, True]),
        inputs=np.array([0, 1, 1], np.uint16),
        thresholds=np.array([2.0, 5.0, 4.0], np.float32),
        values=np.array([10, 20, 30, 40, 50], np.float32),
    )
    row = np.zeros((1, len(INPUT_NAMES)), np.float32)
    row[0, :2] = 3, 5
    chip = SimpleNamespace(time=StoredTrees(lambda: trees), power=None)
    predictor = SimpleNamespace(chip=chip, regressor_inputs=lambda operation: row)
    found = decisions(predictor, RELU)
    first, second = INPUT_NAMES[:2]
    assert found.keys() == {"time"}
    assert found["time"].path == (f"{first} > 2", f"{second} <= 5", "value 20")
    assert found["time"].asked == ((second, pytest.approx(2 / 3)), (first, pytest.approx(1 / 3)))
    assert float(trees.sums(row)[0]) == 20 + 50


@pytest.mark.parametrize("entry", ["a30/forest-inference", "a30/xgboost-inference", None])
def test_shipped_trees_answer(entry):
    predictor = find_predictor(find_gpu("A30"), "inference", entry).operations
    # Also where so many operations were predicted that ONNX Runtime evaluates the trees, as in a service.
    many = [Operation("relu", [(size, 8)]) for size in range(1, 300)]
    assert len(predictor.predict(many).time_s) == len(many)
    found = decisions(predictor, RELU)
    assert found.keys() == {"time", "power"}
    assert sum(share for _, share in found["time"].asked) == pytest.approx(1)
    assert found["power"].path[-1].startswith("value ")


def test_the_command_prints_the_path(call):
    asked = ("explain", "relu", "32,64,56,56", "--gpu", "A30", "--path")
    code, out, _ = call(*asked, "--predictor", "a30/forest-inference")
    assert code == 0
    assert "the trees for power ask about" in out
    assert "the trees for time ask about" in call(*asked)[1]  # The default is this entry.
    assert "no trees of its own" in call(*asked, "--precision", "bf16")[1]
    assert "no trees of its own" in call(*asked[:4], "T4", "--path")[1]


# Boosted trees of one GPU: monotone in the work, and searched.


RECIPE = XGBoostRecipe(trees=120, patience=20, depth=4, learning_rate=0.1, folds=4)
A30 = find_gpu("A30")


@pytest.fixture(scope="module")
def predictor(dataset):
    return fit_chip(dataset, "inference", RECIPE)


def test_it_learns_the_simulated_gpu(predictor, dataset):
    predictions = chip_alone(predictor).predict([m.operation for m in dataset.measurements])
    assert predictions.time_s == pytest.approx([m.time_s for m in dataset.measurements], rel=0.1)
    assert predictions.power_w == pytest.approx([m.power_w for m in dataset.measurements], rel=0.2)


def test_more_work_never_takes_less_time_and_without_the_constraint_noise_is_learned():
    """More work never takes less time; the same trees for power, which are free, do fall."""
    rng = np.random.default_rng(0)
    operations = simulated_operations()
    matrix = relative_features(operations, A30)
    inputs = np.column_stack([matrix, matrix[:, 0], matrix[:, 0]]).astype(np.float32)
    targets = rng.standard_normal(len(operations))
    more = inputs.copy()
    more[:, [INPUT_NAMES.index(name) for name in MORE_WORK]] += 1
    found = {q: fit_boosted(operations, inputs, targets, RECIPE, q) for q in ("time", "power")}
    assert (found["time"](more) >= found["time"](inputs) - 1e-6).all()
    assert (found["power"](more) < found["power"](inputs) - 1e-6).any()


def test_early_stopping_ends_where_nothing_is_learned():
    operations = simulated_operations()
    inputs = np.random.default_rng(0).standard_normal((len(operations), len(INPUT_NAMES))).astype(np.float32)
    noise = np.random.default_rng(1).standard_normal(len(operations))
    stopped = fit_boosted(operations, inputs, noise, RECIPE, "power").model
    assert stopped.n_estimators < 60


def test_search_begins_with_the_recipe_and_finds_what_is_better():
    data = simulated_dataset()
    poor = replace(RECIPE, trees=2, learning_rate=0.01, search={"trees": [2, 80], "learning_rate": [0.01, 0.2]})
    trials = list(search(data, "inference", poor, 6))
    assert trials[0].settings == {"learning_rate": 0.01, "trees": 2}
    assert len({tuple(trial.settings.values()) for trial in trials}) == len(trials) <= 4
    best = min(trials, key=lambda trial: trial.metrics["loss"])
    assert best.recipe.trees == 80
    assert best.metrics["loss"] < 0.8 * trials[0].metrics["loss"]
    assert [trial.settings for trial in search(data, "inference", replace(poor, search={}), 6)] == [{}]
