"""Everything a fresh machine with only Python needs: `python3 tasks.py demo` and `python3 tasks.py check`.

All tasks make `.venv` with the exact versions of constraints.txt. Nothing outside this folder is changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
LEAST_PYTHON = (3, 11)


def install(extra: str = "") -> None:
    """Install the checkout, with an extra where one is named, into `.venv`, unless that is what is there."""
    if sys.version_info < LEAST_PYTHON:
        sys.exit(
            f"joulecast needs Python {'.'.join(map(str, LEAST_PYTHON))} or newer; this is {sys.version.split()[0]}"
        )
    asked = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "constraints.txt").read_bytes() + sys.version.encode()
    digest = hashlib.sha256(asked).hexdigest()
    extras = f"[{extra}]" if extra else ""
    stamp = VENV / f"installed-{extra or 'alone'}"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    print(f"installing joulecast{extras} into {VENV}", flush=True)
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    pip = [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # One command for all: torch and torchvision must be chosen together.
    subprocess.run([*pip, "--constraint", "constraints.txt", "--editable", f".{extras}"], cwd=ROOT, check=True)
    stamp.write_text(digest)


def run(*command: str) -> None:
    """Run a program of `.venv`; stop with its exit code where it fails."""
    print("$", *command, flush=True)
    # Two threads that wait for each other are slower than one.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}
    # What Python compiled is kept: each process of the tests would compile all of them again, which takes four seconds.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, env=environment, check=False).returncode
    if code:
        sys.exit(code)


def demo() -> None:
    """Install what predicting needs, which is not torch, and print a prediction."""
    install()
    run("joulecast", "predict", "resnet50", "32,3,224,224", "--gpu", "A30")


def check() -> None:
    """Install what developing needs; check format, lint and types, and run the tests."""
    install("dev")
    run("ruff", "format", "--check", ".")
    run("ruff", "check", ".")
    run("mypy")
    run("mkdocs", "build", "--quiet")  # strict: a link that leads nowhere fails
    # Three processes for two cores, because tests wait for servers and sensors. Each of them needs about 1.5 GB.
    run("python", "-m", "pytest", *(["-n", "3"] if (os.cpu_count() or 1) > 1 else []))


def docs() -> None:
    """Install what documenting needs, and write the documentation as a site into `build/site`."""
    install("docs")
    run("mkdocs", "build", "--quiet")


def notebooks() -> None:
    """Write the notebooks of examples/ from the tutorials; needs nothing but Python."""
    subprocess.run([sys.executable, "docs/notebooks.py"], cwd=ROOT, check=True)


def templates() -> None:
    """Install what developing needs and extract the templates of all models again, which takes an hour."""
    install("dev")
    run("python", "benchmarks/template_making.py")


def golden() -> None:
    """Install what developing needs and renew golden predictions and cards of shipped zoo entries, without training."""
    install("dev")
    run("python", "benchmarks/renew.py")


def mutate() -> None:
    """Install what developing needs and report which faults in physics, put in one at a time, no test notices.

    All 6,000 take about half an hour; names after the task, such as "joulecast.units*", select some.
    """
    install("dev")
    run("mutmut", "run", *sys.argv[2:])
    run("mutmut", "results")


def published() -> None:
    """Install what developing needs and make the page of published tables anew, as far as it is outdated; an hour.

    The sources' files are expected in ../shared/data; "--reduced" after the task needs none, and takes 20 seconds.
    """
    install("dev")
    if "--reduced" in sys.argv:
        run("python", "benchmarks/published.py", "--reduced")
        return
    data = ROOT.parent / "shared" / "data"
    for source in ("nicolai2025", "neusight2025", "energaizer2026"):
        run("joulecast", "datasets", "import", source, str(data / source), "--out", f"build/deeppm-data/{source}")
    run("python", "benchmarks/deeppm.py", "--data", "build/deeppm-data")
    run("python", "benchmarks/published.py")


def zoo() -> None:
    """Install what developing needs, and train any-gpu/kernels and any-gpu/forest anew from published tables; an hour.

    The sources' files are expected in ../shared/data.
    """
    install("dev")
    data, built = ROOT.parent / "shared" / "data", ROOT / "build" / "zoo-data"
    kernels = ("aiconfigurator2026", "vidur2024", "miopen2024", "llmservingsim2026", "aiter2026", "energaizer2026")
    others = ("energaizer2026", "neusight2025", "nicolai2025")
    for source in dict.fromkeys((*kernels, *others)):
        rows = ("--rows", "600000") if source == "aiconfigurator2026" else ()
        run("joulecast", "datasets", "import", source, str(data / source), "--out", str(built / source), *rows)

    def datasets(sources: tuple[str, ...]) -> list[str]:
        cards = sorted(card for source in sources for card in (built / source).rglob("card.json"))
        # What NeuSight measured on AMD's boards is held back, to test predictions of them.
        named = [str(card.parent) for card in cards if not card.parent.match("neusight2025/mi*")]
        return [word for folder in named for word in ("--dataset", folder)]

    run("joulecast", "train-kernels", "--recipe", "kernels", *datasets(kernels))
    run("joulecast", "train", "--no-track", "--recipe", "any-gpu", *datasets(others))
    # What networks add to kernels is found with the new forest.
    run("joulecast", "train-kernels", "--recipe", "kernels", "--networks-only", *datasets(kernels))


TASKS = {
    "demo": demo,
    "check": check,
    "docs": docs,
    "notebooks": notebooks,
    "templates": templates,
    "golden": golden,
    "mutate": mutate,
    "published": published,
    "zoo": zoo,
}
WITH_ARGUMENTS = ("mutate", "published")


def main() -> None:
    """Run the task that is named."""
    if len(sys.argv) < 2 or sys.argv[1] not in TASKS or (len(sys.argv) > 2 and sys.argv[1] not in WITH_ARGUMENTS):
        sys.exit("usage: python3 tasks.py " + " | ".join(f"{name} ({task.__doc__})" for name, task in TASKS.items()))
    TASKS[sys.argv[1]]()


if __name__ == "__main__":
    main()
