"""Encoding of Kafka's requests and responses, for classes that encode and decode themselves.

Readers take a view and a position in it, and return the value there and the position after it.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Protocol, Self

I16, I32, I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")

_SEVEN_BITS, _FOURTEEN_BITS = 0x7F, 0x3FFF
_ONE_BYTE = [bytes([value]) for value in range(_SEVEN_BITS + 1)]
_TWO_BYTES = struct.Struct("BB").pack


class Decoded(Protocol):
    """A response that decodes itself."""

    @classmethod
    def decode(cls, view: memoryview, at: int) -> Self:
        """Decode a response's bytes from a position on; returns views into them, nothing is copied."""


class Encoded:
    """A request that was encoded by its builder. `parts`: its body, whose bytes are put together only once."""

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[bool] = False
    RESPONSE_TYPE: ClassVar[type[Decoded]]

    def __init__(self, *parts: bytes | memoryview) -> None:
        self.parts = parts


def text(value: str) -> bytes:
    """A string, with its length before it."""
    encoded = value.encode()
    return I16.pack(len(encoded)) + encoded


def count(view: memoryview, at: int) -> tuple[int, int]:
    """The length of an array."""
    (count,) = I32.unpack_from(view, at)
    return count, at + 4


def string(view: memoryview, at: int) -> tuple[str, int]:
    """A string; null is the empty one."""
    (size,) = I16.unpack_from(view, at)
    at += 2
    if size < 0:
        return "", at
    return str(view[at : at + size], "utf-8"), at + size


def unsigned(value: int) -> bytes:
    """An unsigned varint."""
    if value <= _SEVEN_BITS:
        return _ONE_BYTE[value]
    if value <= _FOURTEEN_BITS:
        return _TWO_BYTES(value & 0x7F | 0x80, value >> 7)
    out = bytearray()
    while value > _SEVEN_BITS:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_text(value: str) -> bytes:
    """A compact string (KIP-482)."""
    encoded = value.encode()
    return unsigned(len(encoded) + 1) + encoded


def compact_length(length: int) -> bytes:
    """The length of a compact array, as it is written before its elements."""
    return unsigned(length + 1)


def read_unsigned(view: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint."""
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def compact_count(view: memoryview, at: int) -> tuple[int, int]:
    """The length of a compact array or of compact bytes (KIP-482); -1 for null."""
    byte = view[at]
    if byte <= _SEVEN_BITS:  # nearly always
        return byte - 1, at + 1
    value, at = read_unsigned(view, at)
    return value - 1, at


def compact_string(view: memoryview, at: int) -> tuple[str, int]:
    """A compact string; null is the empty one."""
    size, at = compact_count(view, at)
    size = max(0, size)
    return str(view[at : at + size], "utf-8"), at + size


def tags(view: memoryview, at: int) -> int:
    """The position after a section of tagged fields."""
    if not view[at]:  # nearly always
        return at + 1
    count, at = read_unsigned(view, at)
    for _ in range(count):
        _, at = read_unsigned(view, at)
        size, at = read_unsigned(view, at)
        at += size
    return at


def tagged(view: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    """A section of tagged fields: what is in each, by its tag."""
    if not view[at]:  # nearly always
        return {}, at + 1
    count, at = read_unsigned(view, at)
    found = {}
    for _ in range(count):
        tag, at = read_unsigned(view, at)
        size, at = read_unsigned(view, at)
        found[tag] = view[at : at + size]
        at += size
    return found, at


def no_tags(_: memoryview, at: int) -> int:
    """Where a version has no tagged fields."""
    return at
