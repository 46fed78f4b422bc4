"""The error tree: whole, in one file, and told apart by exit codes."""

from __future__ import annotations

import ast
from pathlib import Path

import joulecast
from joulecast import errors
from joulecast.errors import ERRORS_BY_PROBLEM, InputError, JoulecastError, RefusalError, UnknownNameError, unknown_name

PACKAGE = Path(joulecast.__file__).parent
CLASSES = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, JoulecastError)]


def test_every_error_class_stands_in_errors_py():
    names = {found.__name__ for found in CLASSES}
    with_classes = (path for path in PACKAGE.rglob("*.py") if "class " in path.read_text())
    for path in with_classes:
        for node in ast.walk(ast.parse(path.read_text())):
            bases = (
                {base.id for base in node.bases if isinstance(base, ast.Name)} if isinstance(node, ast.ClassDef) else ()
            )
            assert path.name == "errors.py" or not names & set(bases), f"{path}: {node.name}"


def test_exit_codes_are_unique_and_none_means_success():
    # A class without a code of its own has that of its base: an unknown name is a wrong input.
    own = [found.exit_code for found in CLASSES if "exit_code" in vars(found)]
    assert len(own) == len(CLASSES) - 1
    assert len(set(own)) == len(own)
    assert min(own) >= 1
    assert UnknownNameError.exit_code == InputError.exit_code


def test_the_tree_at_the_top_of_the_file_names_every_class_with_its_code():
    for found in CLASSES:
        if found is not JoulecastError:
            (line,) = [line for line in (errors.__doc__ or "").splitlines() if f"─ {found.__name__} " in line]
            words = line.split("─ ")[1].split()
            assert words[1] == str(found.exit_code)
            assert words[2:3] == ([found.problem] if found in ERRORS_BY_PROBLEM.values() else words[2:3])


def test_a_problem_leads_back_to_its_class():
    assert all(known.problem == name for name, known in ERRORS_BY_PROBLEM.items())
    assert RefusalError(413, "too-large", "too much").problem not in ERRORS_BY_PROBLEM


def test_a_message_has_its_four_parts_and_suggests_close_names():
    error = unknown_name("GPU", "A3O", ["A30", "T4"], hint="list them")
    assert str(error).splitlines() == [
        "unknown GPU",
        "given:   'A3O'",
        "allowed: A30, T4",
        "next:    did you mean A30? list them",
    ]
