"""Progress is shown on terminals only, and never changes the iterated values."""

import io
import sys
from collections.abc import Iterator

import pytest

from joulecast import progress
from joulecast.progress import timed, tracked


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


@pytest.mark.parametrize(
    ("seconds", "code", "says"),
    [
        (4.9, 0, ""),
        (57.4, 0, "took 57 s\n"),
        (200, None, "took 3 min 20 s\n"),
        (119.6, 0, "took 2 min 0 s\n"),
        (57, 2, ""),
    ],
)
def test_what_took_long_says_so_unless_it_failed(
    monkeypatch: pytest.MonkeyPatch, seconds: float, code: int | None, says: str
) -> None:
    terminal, clock = Terminal(), iter((100.0, 100.0 + seconds))
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with pytest.raises(SystemExit), timed():
        sys.exit(code)
    assert terminal.getvalue() == says
