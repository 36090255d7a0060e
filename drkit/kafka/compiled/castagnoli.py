"""Tables for CRC-32C (Castagnoli; RFC 3720), eight bytes a step ("slicing by 8", Kounavis and Berry 2005)."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78
_STEP = 8


def tables() -> list[int]:
    """Eight tables of 256 in a row: what a byte does to the checksum, in table k that with k bytes behind it."""
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    for at in range(256 * (_STEP - 1)):
        crc = found[at]
        found.append(found[crc & 0xFF] ^ (crc >> 8))
    return found
