"""Docstrings say what an argument is, not where to look or that it is like another; and their examples run."""

import doctest
import importlib
import re
import runpy
from pathlib import Path

import pytest

import joulecast

PACKAGE = Path(joulecast.__file__).parent
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


PROGRAMS = sorted((PACKAGE.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_example_programs_run(program, capsys):
    for library in ("torch", "optuna"):
        if library in program.read_text():
            pytest.importorskip(library)
    runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out
    assert any(unit in printed for unit in (" J", " mJ"))


TEXTS = [
    PACKAGE.parent / "CONTRIBUTING.md",
    PACKAGE.parent / "README.md",
    *sorted((PACKAGE.parent / "docs").glob("*.md")),
]
NAMED_FILE = re.compile(r"`((?:\w+/)+[\w.*-]+\.(?:py|toml))`")


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_files_that_texts_name_exist(text):
    places = (PACKAGE.parent, PACKAGE, PACKAGE / "predictors")
    named = NAMED_FILE.findall(text.read_text())
    assert [name for name in named if not any(list(place.glob(name)) for place in places)] == []
