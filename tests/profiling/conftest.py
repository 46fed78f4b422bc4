"""A simulated GPU driver: the real nvidia-ml-py, and a `nvidia-smi` written with it, on a library built from C."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_nvml")


@pytest.fixture(scope="session")
def driver(tmp_path_factory) -> Path:
    """Folder with libnvidia-ml.so.1 and nvidia-smi."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the simulated driver needs a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(FAKE / "nvml.c")]
    subprocess.run([*command, "-lm"], check=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\n" + (FAKE / "nvidia_smi.py").read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def on_driver(driver, tmp_path):
    """Run a script on the simulated GPU; settings become environment variables of the driver."""

    def run(text: str, *arguments: str, smi: bool = True, nvml: bool = True, **settings: object):
        # A file, because the sampler is a spawned process that imports its parent's main module.
        script = tmp_path / "script.py"
        script.write_text(text)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(driver) if nvml else "",
            "PATH": (f"{driver}:" if smi else "") + os.environ["PATH"],
            "FAKE_NVML_CLOCK_FILE": str(tmp_path / "clock"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            **{name: str(value) for name, value in settings.items()},
        }
        return subprocess.run(
            [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, check=False
        )

    return run
