"""The promises of CONTRIBUTING, tested on a copy of the package.

A GPU is one entry in one file, an operation kind one row and one runner, a recipe one file and one row.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import joulecast
from joulecast.system.resources import shipped

PACKAGE = Path(joulecast.__file__).parent
TESTS = Path(__file__).resolve().parent

Run = Callable[[str], None]


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Run]:
    """A copy of the package with its zoo, and a function that runs Python code with that copy."""
    package = tmp_path / "joulecast"
    # With the compiled files of Python, because it would compile every file again otherwise.
    shutil.copytree(PACKAGE, package)
    for entry in ("a30/forest-inference", "any-gpu/forest", "any-gpu/kernels"):
        if (shipped("zoo") / entry).is_dir():
            shutil.copytree(shipped("zoo") / entry, package / "_shipped" / "zoo" / entry)

    def run(code: str) -> None:
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(TESTS)])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-2000:]

    return package, run


def replace(path: Path, old: str, new: str) -> None:
    """Edit a file as a contributor would: `old` occurs once."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_a_gpu_is_one_entry_in_one_file(copied):
    package, run = copied
    file = package / "hardware" / "gpus" / "ada.toml"
    (l40s,) = [each for each in file.read_text().split("[[gpu]]\n") if each.startswith('name = "NVIDIA L40S"')]
    figures = {"name": '"NVIDIA Imagined 100"', "aliases": '["Imagined"]', "chip": '"AD999"', "sms": "100"}
    figures |= {"power_limit_w": "300", "power_range_w": "[150, 300]"}
    figures |= {"peak_flops": "{ fp32 = 64.5e12, tf32 = 129e12, fp16 = 258e12, bf16 = 258e12 }"}
    lines = [line for line in l40s.splitlines() if line.split(" = ")[0] not in figures]
    entry = "\n".join([f"{name} = {value}" for name, value in figures.items()] + lines)
    file.write_text(f"{file.read_text()}\n[[gpu]]\n{entry}\n")
    run(
        "import joulecast\n"
        "here = joulecast.predict('resnet50', (8, 3, 224, 224), 'imagined')\n"
        "l40s = joulecast.predict('resnet50', (8, 3, 224, 224), 'L40S')\n"
        "assert here.gpu == 'NVIDIA Imagined 100' and here.power_w <= 300\n"
        "assert 1 < here.time_s / l40s.time_s < 142 / 100  # fewer multiprocessors, the same memory\n"
        "assert joulecast.best('resnet50', (8, 3, 224, 224), gpus=['imagined'])[0].alias == 'Imagined'"
    )


def test_an_operation_kind_is_one_row_and_one_runner(copied):
    package, run = copied
    replace(
        package / "operations" / "kinds.py",
        '    "relu": unary(1, saves_nothing),\n',
        '    "relu": unary(1, saves_nothing),\n    "smooth_relu": unary(3),\n',
    )
    replace(
        package / "profiling" / "runners.py",
        '    "linear": _over(nn.Linear, -1),\n',
        '    "linear": _over(nn.Linear, -1),\n    "smooth_relu": _module(nn.Softplus),\n',
    )
    run(
        "import joulecast, torch\n"
        "from joulecast.profiling.timing import time_operation\n"
        "operation = joulecast.Operation('smooth_relu', [(32, 64, 56, 56)])\n"
        "assert operation.flops == 3 * 32 * 64 * 56 * 56\n"
        "assert operation.bytes_read == operation.bytes_written == 4 * 32 * 64 * 56 * 56\n"
        "assert time_operation(operation, torch.device('cpu'), seconds=0.01).time_s > 0\n"
        "for gpu in ('A30', 'T4'):\n"
        "    found = joulecast.predict_operations([operation], gpu)\n"
        "    assert found.source == ('modelled',) and found.energy_j[0] > 0"
    )


RECIPE_IMPORT = "from .ridge import RidgeRecipe, fit_ridge, stored_ridge"
RECIPE_ROW = '    "ridge": OneGpuForm(RidgeRecipe, fit_ridge, stored_ridge),\n'
RECIPE_USE = """
from pathlib import Path
import sys
from conftest import train_small
from simulated_measurements import simulated_operations
from joulecast.zoo.trainers import TRAINERS
from joulecast.predictors.fitting.forms import load_recipe
from joulecast.zoo.entry import load_any

folder = Path(sys.argv[1])
(folder / "ridge.toml").write_text('predictor = "ridge"\\npenalty = 0.5\\nfolds = 3')
recipe = load_recipe(folder / "ridge.toml")
assert recipe.penalty == 0.5 and type(recipe) in TRAINERS
trained = train_small(folder, recipe)
stored = load_any(trained.save(folder / "zoo"))
operations = simulated_operations()
before, after = trained.predictor.operations.predict(operations), stored.operations.predict(operations)
assert stored.name.endswith("/ridge-inference")
assert before.time_s.tolist() == after.time_s.tolist() and before.power_w.tolist() == after.power_w.tolist()
"""


def test_a_recipe_is_one_file_and_one_row(copied):
    package, run = copied
    regressors = package / "predictors" / "regressors"
    shutil.copy(TESTS / "predictors" / "ridge.py", regressors / "ridge.py")
    replace(regressors / "fitted_trees.py", "from .trees import", f"{RECIPE_IMPORT}\nfrom .trees import")
    replace(
        regressors / "fitted_trees.py", "Mapping[str, OneGpuForm] = {\n", f"Mapping[str, OneGpuForm] = {{\n{RECIPE_ROW}"
    )
    run(RECIPE_USE)
