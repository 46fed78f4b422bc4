"""Docstrings say what an argument is, not where to look or that it is like another; and their examples run."""

import ast
import doctest
import importlib
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

import joulecast

PACKAGE = Path(joulecast.__file__).parent
ENTRY = re.compile(r"^ {4}(?P<names>\w+(?:, \w+)*): (?P<text>.*)$")
EMPTY_BEGINNINGS = ("Where", "Which", "Of", "The same", "See")
FEW_WORDS = 3


def documented_arguments(docstring: str) -> Iterator[tuple[str, str]]:
    """The entries under "Args:" with their texts, continuation lines joined."""
    _, _, rest = docstring.partition("\nArgs:\n")
    name, words = "", []
    for line in [*rest.splitlines(), "end"]:
        entry = ENTRY.match(line)
        if (entry or (line and not line.startswith("     "))) and name:
            yield name, " ".join(words)
            name, words = "", []
        if entry:
            name, words = entry["names"], [entry["text"]]
        elif line and not line.startswith(" "):
            return
        else:
            words.append(line.strip())


def says_nothing(text: str) -> bool:
    first = text.split(".")[0]
    return len(text.split()) <= FEW_WORDS and any(
        first == beginning or first.startswith((beginning + " ", beginning + ",")) for beginning in EMPTY_BEGINNINGS
    )


def test_no_argument_is_documented_by_where_or_which():
    found = []
    with_arguments = (path for path in sorted(PACKAGE.rglob("*.py")) if "Args:" in path.read_text())
    for path in with_arguments:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                place = f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
                found += [f"{place}: {n}: {text}" for n, text in documented_arguments(docstring) if says_nothing(text)]
    assert not found, "\n".join(found)


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
