"""Fixtures of several test files: simulated measurement loops, a simulated driver, real measurements if available."""

import asyncio
import contextlib
import copy
import gc
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mlflow_servers import mlflow_server
from simulated_counters import SIMULATION
from simulated_measurements import simulated_dataset

from joulecast.cli import main
from joulecast.datasets import Dataset, save
from joulecast.predictors.physics import operation_numbers
from joulecast.predictors.recipes import ForestRecipe
from joulecast.remote import Client
from joulecast.system.caches import RESULTS
from joulecast.zoo.server import connected
from joulecast.zoo.trainers import train
from joulecast.zoo.training import Loaded, Task, Trained

FAKE_DRIVER = Path(__file__).parent / "metering" / "fake_nvml"
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def _shared(source: str) -> Any:
    """A fixture with the folder of a source's measurements, by its name."""

    @pytest.fixture(scope="session", name=source)
    def folder() -> Path:
        if not (SHARED_DATA / source).is_dir():
            pytest.skip(f"the measurements of {source} are not beside this checkout")
        return SHARED_DATA / source

    return folder


aiconfigurator2026, energaizer2026 = _shared("aiconfigurator2026"), _shared("energaizer2026")
miopen2024, neusight2025 = _shared("miopen2024"), _shared("neusight2025")
nicolai2025, vidur2024 = _shared("nicolai2025"), _shared("vidur2024")


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skips tests where modules are not installed. It does not import them: that takes seconds in each process."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"needs {', '.join(lacking)}")


@contextlib.contextmanager
def benchmark(name: str) -> Iterator[ModuleType]:
    """A script of benchmarks/ as a module. Processes that it starts can import it, and the scripts beside it."""
    folder = str(Path(__file__).resolve().parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(folder)


@contextlib.contextmanager
def full_disk(most_bytes: int = 100) -> Iterator[None]:
    """Limits the size of this process's files to so many bytes, so that writing fails as it does on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Files whose tests ask the same service, server or database, which is expensive to start or make.
TOGETHER = {
    "page": ("service/test_page", "service/test_page_choosing"),
    "service": ("service/test_client", "service/test_hostile_questions", "service/test_service"),
    "mlflow": ("zoo/test_registry", "zoo/test_tracking", "metering/test_meter", "cli/test_tune", "test_callbacks"),
    "running": ("service/test_running", "service/test_starving"),
}
GROUPS = {f"tests/{file}.py": group for group, files in TOGETHER.items() for file in files}
# What takes longest is begun first, or one process would still run it when the others have finished: these groups, and
# then the files that took more than four seconds of CPU in November 2026, from the longest to the shortest.
LONGEST = ["profiling/test_session", "predictors/board/test_calibrated", "extraction/test_templates"]
LONGEST += ["extraction/test_extraction", "extraction/test_corpus", "extraction/test_assumptions", "test_documentation"]
LONGEST += ["generation/test_fusing", "profiling/test_collection", "cli/test_system_limits", "test_tutorials"]
LONGEST += ["extraction/test_transformers", "traffic/test_simulate", "traffic/test_rates", "test_imports", "test_laws"]
LONGEST += ["metering/test_sensors", "cli/test_check_command", "system/test_damaged_files", "test_promises"]
LONGEST += ["metering/test_machine", "generation/test_towers", "extraction/test_hostile_files"]
BEGUN_FIRST = [*TOGETHER, *(f"tests/{name}.py" for name in LONGEST)]


def group_of(nodeid: str) -> str:
    """Tests of a group run in the same process where they are spread over several (`-n 3`)."""
    file = nodeid.partition("::")[0]
    return GROUPS.get(file, file)


def pytest_configure(config: pytest.Config) -> None:
    """Begin files in the order of the tests: xdist would begin those with many tests first, which are quick ones."""
    config.option.loadscopereorder = False
    gc.disable()  # until all tests are collected: nothing of them is garbage, and looking takes a sixth of the time


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread groups over processes. (Groups of xdist's own, `--dist loadgroup`, are none with pytest 9.2.)"""
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests are spread over processes, begin with what takes longest."""
    if hasattr(config, "workerinput"):
        places = {group: place for place, group in enumerate(BEGUN_FIRST)}
        items.sort(key=lambda item: places.get(group_of(item.nodeid), len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own, for at most five minutes."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), 300))
    return True


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOULECAST_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def without_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models by name are extracted, as if they had no templates."""
    monkeypatch.setattr("joulecast.extraction.sources.answer", lambda name, request: None)


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    return simulated_dataset()


# A small zoo entry for tests that copy or damage it.

ENTRY_NAME = "a30/forest-inference"
SMALL_RECIPE = ForestRecipe(trees=6, folds=3)


def train_small(folder: Path, recipe: ForestRecipe = SMALL_RECIPE) -> Trained:
    data = replace(simulated_dataset(), networks=())
    return train(Task([Loaded(save(data, folder / "d"), data)], recipe, "inference"))


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Trained:
    return train_small(tmp_path_factory.mktemp("small-data"))


@pytest.fixture(scope="session")
def small_entry(small, tmp_path_factory) -> Path:
    return small.save(tmp_path_factory.mktemp("small-zoo"))


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("JOULECAST_CACHE", str(tmp_path / "fresh-cache"))
    return tmp_path / "fresh-cache"


@pytest.fixture(scope="session")
def empty_mlflow_database(tmp_path_factory) -> Path:
    """An SQLite database without runs, for tests to copy: MLflow takes seconds to make its tables."""
    pytest.importorskip("mlflow")
    database = tmp_path_factory.mktemp("tables") / "mlflow.db"
    with connected(f"sqlite:///{database}", "empty database") as mlflow:
        mlflow.search_experiments()
    return database


@pytest.fixture(scope="session")
def mlflow_at(tmp_path_factory, empty_mlflow_database) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    shutil.copy(empty_mlflow_database, folder)
    with mlflow_server(folder) as address:
        yield address


def compiled(source: Path, library: Path, *libraries: str) -> Path:
    """Compile a simulation in C to a shared library; skips the test on machines without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the simulated sensors need a C compiler")
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source), *libraries], check=True)
    return library


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory) -> Path:
    """A library that simulates energy counters in programs that preload it; see simulated_counters.py."""
    return compiled(SIMULATION, tmp_path_factory.mktemp("powercap") / "powercap.so", "-ldl", "-lm")


@pytest.fixture(scope="session")
def driver(tmp_path_factory) -> Path:
    """Folder with a simulated libnvidia-ml.so.1, and a `nvidia-smi` that reads it through the real nvidia-ml-py."""
    folder = tmp_path_factory.mktemp("nvml")
    compiled(FAKE_DRIVER / "nvml.c", folder / "libnvidia-ml.so.1", "-lm")
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\n" + (FAKE_DRIVER / "nvidia_smi.py").read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def beside_driver(driver, tmp_path):
    """Environment of a process on the simulated GPU; settings become variables of the driver."""

    def variables(*, smi: bool = True, nvml: bool = True, **settings: object) -> dict[str, str]:
        return {
            "LD_LIBRARY_PATH": str(driver) if nvml else "",
            "PATH": (f"{driver}:" if smi else "") + os.environ["PATH"],
            "FAKE_NVML_CLOCK_FILE": str(tmp_path / "clock"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            **{name: str(value) for name, value in settings.items()},
        }

    return variables


@pytest.fixture
def on_driver(beside_driver, tmp_path):
    """Run a script on the simulated GPU."""

    def run(text: str, *arguments: str, **settings: object):
        # A file, because the sampler is a spawned process that imports its parent's main module.
        script = tmp_path / "script.py"
        script.write_text(text)
        environment = {**os.environ, **beside_driver(**settings)}
        return subprocess.run(
            [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def call(capsys):
    """Call the command line: exit code, output, errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(list(map(str, arguments)))
        output = capsys.readouterr()
        return caught.value.code, output.out, output.err

    return run


@pytest.fixture
def printed(call):
    """Call the command line where nothing goes wrong: its output."""

    def run(*arguments):
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """A service in a separate process, with default settings."""
    pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
    from service_process import PROFILE, start

    PROFILE.write(tmp_path_factory.mktemp("calibrations") / "desk.json")
    # A long limit, because the machine may be busy. Limits on time have their own tests.
    folder = tmp_path_factory.mktemp("service")
    running = start(folder, "--max-seconds", "600", "--calibrations", str(folder.parent / "calibrations0"))
    yield running
    running.stop()


@pytest.fixture
def started(tmp_path):
    """Starts services of a test, which end with it."""
    from service_process import start

    running = []

    def begin(*options):
        running.append(start(tmp_path, *options))
        return running[-1]

    yield begin
    for each in running:
        each.process.kill()
        each.process.wait()


@pytest.fixture(scope="session")
def client(service):
    """A client of that service."""
    return Client(service.url, timeout_s=600)


@pytest.fixture(scope="session")
def narrow(tmp_path_factory):
    """A service with tokens and tight limits."""
    pytest.importorskip("uvicorn", reason="the service needs joulecast[service]")
    from service_process import NARROW, TOKEN, start

    tokens = f"another-token-entirely {TOKEN}"
    variables = {"JOULECAST_SERVE_TOKENS": tokens, "FORWARDED_ALLOW_IPS": "*"}
    running = start(tmp_path_factory.mktemp("narrow"), *NARROW, **variables)
    running.headers = {"Authorization": f"Bearer {TOKEN}"}
    yield running
    running.stop()


@pytest.fixture(scope="session")
def page(service, tmp_path_factory):
    """The page of the service in a browser."""
    from browser import browsing

    with browsing(service.url, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def rewrite(entry, name, value):
    """Change a file of an entry, and correct its digest in the manifest."""
    data = json.dumps(value).encode() if not isinstance(value, bytes) else value
    (entry / name).write_bytes(data)
    manifest = json.loads((entry / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    (entry / "manifest.json").write_text(json.dumps(manifest))


@lru_cache(maxsize=1)
def physics_caches():
    """The caches of all functions of physics."""
    from joulecast.predictors.physics import clock, fp32_kernels, relative  # noqa: F401  (these import all the others)

    # Not isinstance, which asks lazy modules for their class and makes them warn.
    found = [each for each in gc.get_objects() if type(each) is type(physics_caches)]
    return [each for each in found if (each.__module__ or "").startswith("joulecast.predictors.physics")]


@pytest.fixture(autouse=True)
def nothing_remembered(request, monkeypatch):
    """Clears the caches before each test of physics, so that it does not see results of other tests.

    With them, a fault that mutation testing puts in would go unnoticed, because it runs in a copy of a process that has
    already run the tests.

    It is in this file, because a second conftest.py would hide this one from `from conftest import`.
    """
    if request.path.parent.name in ("physics", "networks", "intervals"):
        RESULTS.clear()
    if request.path.parent.name == "physics":
        for each in physics_caches():
            each.cache_clear()
        monkeypatch.setattr(operation_numbers, "_ROWS", copy.copy(operation_numbers._ROWS))  # A copy has no rows.
