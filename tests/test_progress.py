"""Progress is shown on terminals only, and never changes the iterated values."""

import io
import sys
from collections.abc import Iterator

import pytest

from joulecast.progress import tracked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    assert list(tracked(iter("abc"), "letters")) == ["a", "b", "c"]
    assert not log.getvalue()


def test_a_terminal_sees_what_is_done_also_within_another_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    seen = [(outer, inner) for outer in tracked([1, 2], "recipes") for inner in tracked("ab", "folds")]
    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert "recipes" in terminal.getvalue()


def test_an_error_inside_a_bar_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(ValueError, match="broken"):
        list(tracked(fails(), "parts"))
