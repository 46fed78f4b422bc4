"""Reads and writes Protocol Buffers, as far as ONNX files need them. What is read is not trusted.

The reader knows no schema: it yields what is there, in bounds, and refuses what cannot be (groups, lengths beyond the
end, numbers of more than 64 bits). Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_MOST_VARINT_BYTES = 10


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned number, and where it ends.

    Raises:
        ValueError: It goes on beyond the end, or beyond 64 bits.
    """
    value = 0
    for i in range(_MOST_VARINT_BYTES):
        if at + i >= len(data):
            break
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at + i + 1
    raise ValueError("a number that has no end")


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field of a message; bytes are not copied.

    Raises:
        ValueError: The bytes are not a message.
    """
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has no number")
        if wire_type == VARINT:
            value, at = read_varint(data, at)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            size, at = read_varint(data, at)
        elif wire_type in (FIXED32, FIXED64):
            size = 4 if wire_type == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire_type} does not exist")
        if size > len(data) - at:
            raise ValueError("a field is longer than the message")
        yield number, wire_type, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """A number of type int64: negative ones are written as their two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def repeated_integers(data: memoryview) -> NDArray[np.int64]:
    """Numbers of one repeated int64 field with a tag of one byte: tag, number, tag, number.

    The highest bit is clear in the last byte of every tag and of every number, and set in all other bytes. So all ends
    are found at once, those of tags and numbers in turn.

    Raises:
        ValueError: The bytes are incomplete, or contain another field.
    """
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array < 0x80)
    tags, last = ends[0::2], ends[1::2]
    lengths = last - tags
    if len(tags) != len(last) or len(ends) == 0 or last[-1] != len(array) - 1 or tags[0] != 0:
        raise ValueError("a repeated field is incomplete")
    if np.any(array[tags] != array[0]) or np.any(tags[1:] != last[:-1] + 1) or lengths.max() > _MOST_VARINT_BYTES:
        raise ValueError("another field lies between the values of a repeated field")
    values = np.zeros(len(tags), np.uint64)
    for i in range(int(lengths.max())):
        there = lengths > i
        values[there] |= (array[tags[there] + 1 + i].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * i)
    return values.view(np.int64)


def repeated_floats(data: memoryview) -> NDArray[np.float32]:
    """Numbers of one repeated float field with a tag of one byte.

    Raises:
        ValueError: The bytes are incomplete, or contain another field.
    """
    array = np.frombuffer(data, np.uint8)
    if len(array) == 0 or len(array) % 5:
        raise ValueError("a repeated field is incomplete")
    rows = array.reshape(-1, 5)
    if np.any(rows[:, 0] != rows[0, 0]):
        raise ValueError("another field lies between the values of a repeated field")
    return np.ascontiguousarray(rows[:, 1:]).view("<f4").reshape(-1).astype(np.float32)


# Functions that write.


def varint(value: int) -> bytes:
    """A number that is not negative."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number_field(number: int, value: int) -> bytes:
    """A field with a number that is not negative."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, *parts: bytes) -> bytes:
    """A field with bytes, a text or a message, put together from its parts."""
    data = b"".join(parts)
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def packed_integers(values: NDArray[np.int64]) -> bytes:
    """Numbers that are not negative, one after the other as a packed field holds them."""
    unsigned = values.astype(np.uint64)
    widest = max(1, -(-int(unsigned.max(initial=0)).bit_length() // 7))
    # A row for each number, a column for each seven bits of it; what is above its highest bit is left out.
    rest = unsigned[:, None] >> (7 * np.arange(widest, dtype=np.uint64))
    more = (rest > 0x7F).astype(np.uint8) << 7
    there = rest > 0
    there[:, 0] = True
    septets = rest.astype(np.uint8) & 0x7F | more
    return septets[there].tobytes()
