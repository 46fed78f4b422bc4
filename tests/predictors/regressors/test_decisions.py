"""What trees ask about an operation, by a forest of two trees that is written out, and by a shipped one."""

from types import SimpleNamespace

import numpy as np
import pytest

from joulecast import Operation
from joulecast.hardware import find_gpu
from joulecast.predictors.contract import INPUT_NAMES
from joulecast.predictors.regressors.trees import StoredTrees, Trees, decisions
from joulecast.zoo import find_predictor

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
    chip = SimpleNamespace(time=StoredTrees(trees), power=None)
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
