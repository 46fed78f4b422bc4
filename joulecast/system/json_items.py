"""Reads the items of a list in a large JSON object one by one, so that the whole of it is never in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

_MOST_ITEM = 16 << 20
"""Characters of an item, or of a value beside the list. A list of empty lists takes twenty times as many bytes."""

_SPACE = " \t\n\r"


class JsonItems:
    """The items of one list of a JSON object; the other values of the object are in `others` after iterating.

    Raises:
        TypeError, ValueError, RecursionError: While iterating: it is not a JSON object, or an item is too long or deep.
    """

    def __init__(self, pieces: Iterable[bytes], key: str) -> None:
        self.others: dict[str, Any] = {}
        self.found = False
        self._key = key
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._at, self._ended = "", 0, False

    def __iter__(self) -> Iterator[Any]:
        self._expect("{")
        while True:
            key = self._value()
            if not isinstance(key, str):
                raise TypeError("a key of the object is not a text")
            self._expect(":")
            if key == self._key and not self.found and self._next() == "[":
                self.found = True
                yield from self._items()
            else:
                self.others[key] = self._value()
            if self._separator("}"):
                return

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        if self._next() == "]":
            self._expect("]")
            return
        while True:
            yield self._value()
            if self._separator("]"):
                return

    def _separator(self, end: str) -> bool:
        """Go beyond a comma or the end of a list or an object; whether it was the end."""
        mark = self._next()
        if mark not in (",", end):
            raise ValueError(f"{mark!r} stands where a comma or {end} should be")
        self._at += 1
        return mark == end

    def _expect(self, mark: str) -> None:
        next_mark = self._next()
        if next_mark != mark:
            raise ValueError(f"{next_mark!r} stands where {mark} should be")
        self._at += 1

    def _next(self) -> str:
        """The next character that is not a space."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                raise ValueError("it ends too early")

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError:
                if len(self._text) - self._at > _MOST_ITEM:
                    raise ValueError(f"a value has more than {_MOST_ITEM:,} characters, or is not JSON") from None
                if not self._more():
                    raise
                continue
            # A number at the end of the text may go on in the next piece.
            if end < len(self._text) or not self._more():
                self._at = end
                return value

    def _more(self) -> bool:
        """Append about as much text as is left, at least a piece; whether there was any."""
        if self._ended:
            return False
        left = self._text[self._at :]
        fresh: list[str] = []
        wanted = len(left)
        while not self._ended and (not fresh or wanted > 0):
            piece = next(self._pieces, None)
            self._ended = piece is None
            text = self._decode.decode(piece or b"", self._ended)
            wanted -= len(text)
            if text:
                fresh.append(text)
        self._text, self._at = "".join([left, *fresh]), 0
        return bool(fresh)
