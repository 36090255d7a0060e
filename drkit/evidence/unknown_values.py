"""Unknown values: null in the document, with the reason under `unknown`, by JSON pointer (RFC 6901). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unknown:
    """The placeholder of an unknown value."""

    reason: str


def known(value: Any, reason: str) -> Any:
    """The value, or the reason why it is unknown."""
    return Unknown(reason) if value is None else value


def with_reasons(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with null for each unknown value, and `unknown` with the reasons."""
    reasons: dict[str, str] = {}
    settled: dict[str, Any] = _replace_unknowns(document, "", reasons)
    return {**settled, "unknown": reasons}


def _replace_unknowns(value: Any, pointer: str, reasons: dict[str, str]) -> Any:
    if isinstance(value, Unknown):
        reasons[pointer] = value.reason
        return None
    if isinstance(value, Mapping):
        return {key: _replace_unknowns(each, f"{pointer}/{_escaped(str(key))}", reasons) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_unknowns(each, f"{pointer}/{number}", reasons) for number, each in enumerate(value)]
    return value


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
