"""Keys and values of records as people can read them."""

from __future__ import annotations

import json


def shown_bytes(value: bytes | None, most: int = 80) -> str:
    """Bytes for people, on one line: text as it is, else hexadecimal; `most` characters of it, then how long it is."""
    if value is None:
        return "null"
    try:
        text = value.decode()
        if not text.isprintable():
            text = json.dumps(text, ensure_ascii=False)
    except UnicodeDecodeError:
        text = "0x" + value[:most].hex()
    return text if len(text) <= most else f"{text[:most]} … {len(value):,} bytes"
