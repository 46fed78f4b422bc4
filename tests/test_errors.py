"""The error tree: whole, in one file, and told apart by exit codes."""

import ast
from functools import cache
from pathlib import Path

import joulecast
from joulecast import errors
from joulecast.errors import ERRORS_BY_PROBLEM, InputError, JoulecastError, RefusalError, UnknownNameError, unknown_name

PACKAGE = Path(joulecast.__file__).parent
CLASSES = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, JoulecastError)]
NAMES = {found.__name__ for found in CLASSES}


@cache
def syntax_trees():
    """Path in the package -> syntax tree, of the files that name an error."""
    texts = {path.relative_to(PACKAGE): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    return {str(path): ast.parse(text) for path, text in texts.items() if "Error" in text}


def test_every_error_class_stands_in_errors_py():
    for path, tree in syntax_trees().items():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and path != "errors.py"]
        for node in classes:
            assert not NAMES & {ast.unparse(base) for base in node.bases}, f"{path}: {node.name}"


def test_exit_codes_are_unique_and_none_means_success():
    # A class without a code of its own has that of its base: an unknown name is a wrong input.
    own = [found.exit_code for found in CLASSES if "exit_code" in vars(found)]
    assert len(own) == len(CLASSES) - 1
    assert len(set(own)) == len(own)
    assert min(own) >= 1
    assert UnknownNameError.exit_code == InputError.exit_code


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


# Errors for which there is nothing to show that was given.
WITHOUT_GIVEN = {
    "this takes more memory than this process may have",
    "the predictors are being loaded",
    "the service failed with an internal error",
    "the body is not declared as JSON",
    "the answer takes too long",
}
NOBODY_READS = "the client disconnected before its answer was ready"


@cache
def raised_errors():
    """Each call in the package that makes an error of joulecast: where it stands, its words, its keywords."""
    found = []
    for path, tree in syntax_trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
                parts = {keyword.arg: keyword.value for keyword in node.keywords}
                if None not in parts:  # `**parts` passes an error on, whose parts stand where it was made.
                    found.append((f"{path}:{node.lineno}", ast.unparse(node), parts))
    return found


def test_every_error_says_what_was_given_and_what_to_do():
    assert len(raised_errors()) > 400
    for place, call, parts in raised_errors():
        if "MissingDependencyError(" in call or "is missing{more}" in call:
            assert "hint" in parts, place  # A package or a field is missing, so there is nothing to show.
        elif NOBODY_READS not in call:
            assert "given" in parts or any(words in call for words in WITHOUT_GIVEN), f"{place} lacks what was given"
            assert {"allowed", "hint"} & parts.keys(), f"{place} lacks what is allowed, or the next step"


def test_the_next_step_is_not_the_cause():
    """What a parser or the system said belongs to what was given: "next: No such file" is no step."""
    for place, _, parts in raised_errors():
        if "hint" in parts and ast.unparse(parts["hint"]) != "error.hint":
            names = {node.id for node in ast.walk(parts["hint"]) if isinstance(node, ast.Name)}
            assert "error" not in names, place
