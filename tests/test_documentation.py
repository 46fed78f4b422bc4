"""Pages and docstrings: their commands are understood, their Python runs, files that they name exist."""

import doctest
import importlib
import re
import runpy
import shlex
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from documented import BLOCK, ROOT, blocks, example_names

from joulecast.cli import application
from joulecast.predictors.board.profile import BoardProfile
from joulecast.profiling.command import _parser

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / folder / "README.md" for folder in ("datasets", "mlflow", "profiling")] + [
    ROOT / "profiling/gpu-first.md"
]
SPAN = re.compile(r"`((?:joulecast [a-z]|timeout \d+ |python (?:-m joulecast\.profiling|benchmarks/))[^`]*)`")


@cache
def application_of(name: str) -> Any:
    """The command or the group of commands with a name."""
    return typer.main.get_command(application(name))


def options_in(words: list[str]) -> set[str]:
    """The options in a command, without the command that it runs itself."""
    own = takewhile(lambda word: word != "--", words)
    return {word.partition("=")[0] for word in own if word.startswith("--")} - {"--help"}


def options_of_script(path: str) -> set[str]:
    """The options that a script of benchmarks/ names."""
    return set(re.findall(r"(?<=add_argument\(\")--[\w-]+", (ROOT / path).read_text(encoding="utf-8")))


def parsed(command: str, *, completely: bool) -> None:
    """Parse a command without running it. One that a text only mentions may lack arguments; its options must exist."""
    words = [word for word in shlex.split(command, comments=True) if word not in ("...", "…")]
    words = words[2:] if words[0] == "timeout" else words
    if words[0] == "python" and words[1] != "-m":
        assert not words[1].startswith("benchmarks/") or options_in(words) <= options_of_script(words[1]), command
        return
    words = ["collect", *words[3:]] if words[:3] == ["python", "-m", "joulecast.profiling"] else words[1:]
    words = list(takewhile(lambda word: not re.match(r"\$\(|[>|&]", word), words))
    if words[0] == "collect":
        assert options_in(words) <= _parser("joulecast collect")._option_string_actions.keys(), command
        if completely:
            _parser("joulecast collect").parse_args(words[1:])
        return
    if words[0] == "check":  # takes the options of predict as well
        own = {"--ref", "--against", "--budget"}
        assert own >= options_in(words) - {
            each for param in application_of("predict").commands["predict"].params for each in param.opts
        }
        return
    found = application_of(words[0])
    place = 0
    while (commands := getattr(found, "commands", None)) is not None:
        named = words[place] if place < len(words) else None
        if named not in commands and "run" not in commands:
            assert named is None or named.isupper(), command
            return
        place += named in commands
        found = commands[named if named in commands else "run"]
    assert options_in(words[place:]) <= {option for each in found.params for option in each.opts}, command
    if completely:
        found.make_context(found.name, words[place:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_documentation_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(block["code"] for block in BLOCK.finditer(text) if block["language"] == "sh")
    for line in shell.replace("\\\n", " ").splitlines():
        # Text may stand for what the reader knows: `train ... --register`, or files that another command finds.
        if line.startswith(("joulecast ", "python benchmarks/")):
            parsed(line, completely=not re.search(r"\.\.\.|\$\(|--help", line))
    for command in SPAN.findall(" ".join(text.split())):
        parsed(command, completely=False)


def test_commands_of_the_script_for_a_first_gpu_exist() -> None:
    lines = (ROOT / "profiling/gpu-first.sh").read_text(encoding="utf-8").replace("$minutes", "4").splitlines()
    found = [re.sub(r"^collect \w+ \d+", "joulecast collect", line) for line in lines if line.startswith("collect ")]
    steps = (
        re.sub(" -- .*", " -- true", line.partition("python3 -m joulecast ")[2])
        for line in lines
        if line.startswith("step ")
    )
    found += [f"joulecast {step}" for step in steps if step]
    assert len(found) == 8
    for command in found:
        parsed(command, completely=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_of_the_documentation_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    days = ("2026-11-23", "2026-11-23")
    BoardProfile("NVIDIA H100 80GB HBM3", {}, {}, {}, days, 40, {"DRAM": 1.1}).write(tmp_path / "mine.json")
    script = tmp_path / f"{page.stem}.py"
    text = page.read_text(encoding="utf-8")
    script.write_text("\n".join(code for language, code in blocks(text) if language == "python"), encoding="utf-8")
    runpy.run_path(str(script), init_globals=example_names())


# Docstrings say what an argument is, not where to look or that it is like another; and their examples run.

PACKAGE = ROOT / "joulecast"
SAYS_NOTHING = re.compile(
    r"^ +[a-z]\w*(?:, \w+)*: (?:Where|Which|Of|The same|See)\b,?(?: [\w`]+,?){0,2}\.$", re.MULTILINE
)


def test_no_argument_is_documented_by_where_or_which():
    assert len(SAYS_NOTHING.findall("    gpu: Where.\n    a, b: Of each.\n    c: See `Work`.\n    d: Seed.")) == 3
    found = [(path.name, SAYS_NOTHING.findall(path.read_text("utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))]
    assert [each for each in found if each[1]] == []


WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]
ELSEWHERE = {"meter.py": "needs a power sensor", "client.py": "needs a service: tests/service/test_client.py"}


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.name)
def test_examples_of_docstrings_run(path):
    if path.name in ELSEWHERE:
        pytest.skip(ELSEWHERE[path.name])
    name = ".".join(["joulecast", *path.relative_to(PACKAGE).with_suffix("").parts])
    module = importlib.import_module(name)
    tests = [test for test in doctest.DocTestFinder().find(module, name) if test.examples]
    assert tests
    for test in tests:
        results = doctest.DocTestRunner(verbose=False).run(test)
        assert results.failed == 0, test.name


PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_example_programs_run(program, capsys):
    for library in ("torch", "optuna"):
        if library in program.read_text():
            pytest.importorskip(library)
    runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out
    assert any(unit in printed for unit in (" J", " mJ"))


NAMED_FILE = re.compile(r"`((?:\w+/)+[\w.*-]+\.(?:py|toml))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name_exist(page):
    places = (ROOT, PACKAGE, PACKAGE / "predictors")
    named = NAMED_FILE.findall(page.read_text())
    assert [name for name in named if not any(list(place.glob(name)) for place in places)] == []


# Rows of README's table of errors -> how the same row begins in docs/accuracy.md.
ERRORS = {
    "A30, inference, by name": "inference, 20 measurements",
    "A30, training, by name": "training, 28 measurements",
    "A100, by chip": "A100, inference",
    "A10, by chip": "A10, inference",
    "training steps published by others": "the same, 16 held back | 10 % |",  # the goal
    "MPT on 8 to 128 A100": "MPT on 8 to 128 A100: 25 steps held back | 12 % |",
}


@pytest.mark.parametrize("row", ERRORS)
def test_readme_states_the_errors_of_the_page_of_accuracy(row):
    def errors(path: str, row: str) -> list[str]:
        lines = (ROOT / path).read_text("utf-8").splitlines()
        (line,) = (line for line in lines if line.startswith(f"| {row}") and "%" in line)
        return re.findall(r"[\d.]+(?= %|;|\))", line.removeprefix(f"| {row}"))

    found, known = errors("README.md", row), errors("docs/accuracy.md", ERRORS[row])
    assert found == known[: len(found)]
