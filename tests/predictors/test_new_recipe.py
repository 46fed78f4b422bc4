"""A new recipe is one file and one row: ridge regression trains, is stored, and predicts the same when it is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import joulecast

PACKAGE = Path(joulecast.__file__).parent
TESTS = Path(__file__).resolve().parents[1]
IMPORT = "from .ridge import RidgeRecipe, fit_ridge, stored_ridge"
ROW = '"ridge": OneGpuForm(RidgeRecipe, fit_ridge, stored_ridge),'
USE = """
from pathlib import Path
import sys
from conftest import simulated_operations, train_small
from joulecast.cli.recipes import WAYS
from joulecast.predictors.fitting.recipes import load_recipe
from joulecast.zoo.catalogue import load_any

folder = Path(sys.argv[1])
(folder / "ridge.toml").write_text('predictor = "ridge"\\npenalty = 0.5\\nfolds = 3')
recipe = load_recipe(folder / "ridge.toml")
assert recipe.penalty == 0.5 and type(recipe) in WAYS
trained = train_small(folder, recipe)
stored = load_any(trained.save(folder / "zoo"))
operations = simulated_operations()
before, after = trained.predictor.predict(operations), stored.operations.predict(operations)
assert stored.name.endswith("/ridge-inference")
assert before.time_s.tolist() == after.time_s.tolist() and before.power_w.tolist() == after.power_w.tolist()
"""


def test_a_recipe_is_one_file_and_one_row(tmp_path):
    package = tmp_path / "joulecast"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("ridge.py"), package / "predictors" / "regressors" / "ridge.py")
    table = package / "predictors" / "regressors" / "forms.py"
    text = table.read_text()
    text = text.replace("from .serving import", f"{IMPORT}\nfrom .serving import", 1)
    table.write_text(text.replace("] = {\n", f"] = {{\n    {ROW}\n", 1))
    path = os.pathsep.join([str(tmp_path), str(TESTS)])
    result = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
