"""Keys and values of records as text: for people, and for JSON."""

from __future__ import annotations

import base64
import json
import unicodedata
from contextlib import suppress

_OF_TEXT = frozenset("\t\n\r")
"""Control characters that text has, too."""


def shown_bytes(value: bytes | None, most: int = 80) -> str:
    """Bytes for people, on one line: text as it is, else hexadecimal; `most` characters of it, then how long it is.

    Numbers, Avro and Protobuf often decode as UTF-8: what holds control characters that no text has is no text.
    """
    if value is None:
        return "null"
    text: str | None = None
    with suppress(UnicodeDecodeError):
        text = value.decode()
    if text is None or any(unicodedata.category(each) == "Cc" and each not in _OF_TEXT for each in text):
        text = "0x" + value[:most].hex()
    elif not text.isprintable():
        text = json.dumps(text, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]} … {len(value):,} bytes"


def base64_text(value: bytes | None) -> str | None:
    """Bytes as JSON has them; None where there are none."""
    return None if value is None else base64.b64encode(value).decode()
