"""Which inputs run code: a Python file that the user names, and what Dask workers are sent. SECURITY.md says so."""

import ast
from pathlib import Path

import joulecast

PACKAGE = Path(joulecast.__file__).parent
RUNS = {"eval", "exec", "compile", "__import__", "run_path", "run_module", "exec_module", "load_module", "find_class"}
RUNS |= {"spec_from_file_location", "SourceFileLoader", "create_function"}
UNPICKLES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "torch", "np", "numpy", "hub", "jit"}
UNPICKLES |= {"yaml"}
PICKLES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "runpy", "dask", "distributed"}
FILE_OF_THE_USER = "extraction/own_file.py"
DASK = {"system/cluster.py"}
LISTED = {"extraction/isolated_worker.py", "extraction/models/torchvision_models.py"}
LISTED |= {"__init__.py", "cli/__init__.py", "cli/options.py"}
NOT_THIS = ("re.", "torch.compile", "relu.", "torch.nn.ReLU().eval", "model.eval")


def found_in(tree):
    """What runs code, imports modules by a name that is computed, or unpickles; and imports of libraries for that."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            parts = text.split(".")
            if parts[-1] in RUNS and not text.startswith(NOT_THIS):
                yield "code", ast.unparse(node)
            if parts[-1] in ("load", "loads") and len(parts) > 1 and parts[-2] in UNPICKLES:
                yield "pickle", ast.unparse(node)
            if parts[-1] == "import_module" and not isinstance(node.args[0], ast.Constant):
                yield "module", ast.unparse(node)
        elif isinstance(node, ast.Import):
            yield from (("import", each.name) for each in node.names if each.name.split(".")[0] in PICKLES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLES and not node.level:
            yield "import", str(node.module)


def test_only_files_of_the_user_and_dask_run_code():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for kind, what in found_in(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(kind, {}).setdefault(path.relative_to(PACKAGE).as_posix(), set()).add(what)
    assert found.pop("code").keys() == {FILE_OF_THE_USER}
    imports = found.pop("import")
    assert imports.pop(FILE_OF_THE_USER) == {"runpy"}
    assert imports.keys() <= DASK
    # These import modules that are listed beside them, not what a file or a request names.
    assert found.pop("module").keys() <= LISTED
    assert found == {}


def test_the_search_finds_what_runs_code():
    tried = ["eval(x)", "pickle.load(f)", "torch.load(f)", "importlib.import_module(name)", "import pickle", "exec(x)"]
    assert all(list(found_in(ast.parse(each))) for each in tried)
    assert not list(found_in(ast.parse("json.loads(x); re.compile(y); importlib.import_module('onnx')")))
