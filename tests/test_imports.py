"""Importing changes nothing and loads nothing heavy; imports point one way; the public names are what they say."""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import joulecast

PACKAGE = Path(joulecast.__file__).parent
HEAVY = {"torch", "torchvision", "transformers", "timm", "mlflow", "sklearn", "pandas", "pyarrow", "matplotlib", "onnx"}
HEAVY |= {"safetensors", "scipy", "xgboost", "fastapi", "orjson", "uvicorn", "pydantic"}
ORDER, *_ = re.findall(
    r"```text\n(.*?)```", (PACKAGE.parent / "CONTRIBUTING.md").read_text().partition("## Layout")[2], re.DOTALL
)
# Packages in the order of imports: each may import itself and those before it.
ROOMS = [*re.findall(r"\w+", ORDER), "__main__"]
# The same inside predictors/; its own modules stand at CORE.
CORE = "core"
PREDICTOR_ROOMS = [
    *("formats", "physics", "intervals", CORE, "board", "networks", "regressors", "model", "transformer"),
    *("fitting", "evaluation"),
]


# Packages that predicting with a GPU's own predictor does not need. They are half of the code.
UNUSED = ("accounting", "remote", "datasets.", "energy.", "generation", "metering", "queries", "runs", "traffic")
UNUSED += tuple(
    f"predictors.{room}" for room in ("networks.on_cpu", "measured", "model", "transformer", "fitting", "evaluation")
)


def all_modules_after(code: str) -> list[str]:
    script = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def modules_after(code: str) -> set[str]:
    return {name.split(".")[0] for name in all_modules_after(code)}


def test_no_file_of_python_is_too_long_to_be_read_at_once():
    files = [path for folder in ("joulecast", "tests") for path in (PACKAGE.parent / folder).rglob("*.py")]
    assert {path.name for path in files if len(path.read_text().splitlines()) > 400} == set()


def test_a_command_imports_what_it_needs():
    code = (
        "import joulecast.cli\n"
        "try: joulecast.cli.main(['predict', 'resnet18', '1,3,64,64', '--gpu', 'A30'])\n"
        "except SystemExit: pass"
    )
    unused = tuple(f"joulecast.{room}" for room in UNUSED)
    assert [name for name in all_modules_after(code) if name.startswith(unused)] == []


def test_importing_and_predicting_are_light(tmp_path, monkeypatch):
    monkeypatch.setenv("JOULECAST_CACHE", str(tmp_path))
    code = (
        "import joulecast as j\n"
        "o = j.Operation('linear', [(512, 512)], {'out_features': 512})\n"
        "j.predict_operations([o], 'A30'); j.predict([(o, 3)], None, 'A30')\n"
        "j.predict([(o, 3)], None, 'L40S', predictor='any-gpu/transformer')\n"
        "j.predict('resnet50', (3, 3, 97, 131), 'A30'); j.predict('gpt2', (2, 7), 'A30', precision='fp32')\n"
        "j.extract('llama3_8b', (8, 1), cache_length=511, precision='bf16')"
    )
    assert not modules_after(code) & HEAVY


def test_collecting_needs_torch_and_numpy_only():
    modules = modules_after("import joulecast.profiling.session, joulecast.profiling.timing")
    assert "torch" in modules
    assert not modules & {"onnxruntime", "typer", "pyarrow", "sklearn", "mlflow", "matplotlib", "torchvision"}


def test_public_names_exist_and_are_all():
    assert all(hasattr(joulecast, name) for name in joulecast.__all__)
    code = "import joulecast, json; print(json.dumps(dir(joulecast)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    submodules = {path.stem for path in PACKAGE.iterdir()}
    names = {name for name in json.loads(result.stdout) if not name.startswith("_")}
    assert names - submodules == set(joulecast.__all__)


@cache
def imports(path: Path) -> list[list[str]]:
    """The modules of joulecast that a file imports, also inside functions, in parts and without `joulecast`."""
    package = ["joulecast", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [name for name in [*base, *(node.module or "").split(".")] if name]
            if names[:1] == ["joulecast"]:
                found += [[*names[1:], alias.name] for alias in node.names]
    return found


def test_imports_point_one_way():
    wrong, inner_rooms = [], set()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0].removesuffix(".py")
        if room not in ROOMS:
            assert room == "__init__", f"{path} belongs to no room"
            continue
        allowed = set(ROOMS[: ROOMS.index(room) + 1])
        above = {names[0] for names in imports(path)} & set(ROOMS) - allowed
        if room == "predictors":
            above |= {names[0] for names in imports(path)} & {
                "extraction",
                "metering",
                "profiling",
            }  # at the same level
            inner_rooms.add(inner := parts[1] if len(parts) > 2 else CORE)
            others = {names[1] for names in imports(path) if names[0] == "predictors"}
            others = {other if other in PREDICTOR_ROOMS else CORE for other in others}
            above |= others - set(PREDICTOR_ROOMS[: PREDICTOR_ROOMS.index(inner) + 1])
        wrong += [f"{path.relative_to(PACKAGE)} imports {other}" for other in above]
    assert not wrong
    assert inner_rooms == set(PREDICTOR_ROOMS)


def module_of(path: Path) -> str:
    return ".".join(["joulecast", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside functions and those for type checkers count, too. A circle would be an error that names it."""
    modules = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    imported: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = {
            ".".join(["joulecast", *names[:end]]) for names in imports(path) for end in (len(names), len(names) - 1)
        }
        # A package imports its modules to list what is public; a module imports its package by being in it.
        imported[name] = {other for other in found & modules.keys() if modules[other].name != "__init__.py"}
    TopologicalSorter({name: others - {name} for name, others in imported.items()}).prepare()


def test_predicting_opens_no_connection(tmp_path):
    """ONNX Runtime would write the id of this device into the home folder, and look up a host."""
    code = (
        "import joulecast as j\n"
        "many = [(j.Operation('linear', [(n, 512)], {'out_features': 512}), 1) for n in range(1, 1500)]\n"
        "j.predict(many, None, 'A30', predictor='xgboost')\n"
        "import os, sys; assert 'onnxruntime' in sys.modules and 'ORT_DISABLE_TELEMETRY' not in os.environ"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    subprocess.run([sys.executable, "-c", code], env={**environment, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []
