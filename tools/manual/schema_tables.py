"""JSON Schemas as tables: one row for each key, below what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_DEEPEST = 7
_SECRETS = {"#/$defs/SecretFromEnv": '{ env = "NAME" }', "#/$defs/SecretFromFile": '{ file = "PATH" }'}
"""How a secret is written that stands elsewhere; its keys aren't told of every place that may hold one."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its path (`links[].source`), type, default (None: none is named), whether it has to be there."""

    path: str
    type: str
    default: str | None
    required: bool
    says: str


def keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """Every key of an object's schema, depth first. A reference is followed once on its way down."""
    yield from _keys(schema, prefix, schema, ())


def resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of a schema with its reference followed; what is beside the reference wins."""
    reference = part.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return part
    found: Any = root
    for word in reference[2:].split("/"):
        found = found[word]
    return {**resolved(found, root), **{name: value for name, value in part.items() if name != "$ref"}}


def _keys(part: Mapping[str, Any], prefix: str, root: Mapping[str, Any], on_the_way: tuple[str, ...]) -> Iterator[Key]:
    if len(on_the_way) > _DEEPEST:
        return
    required = set(part.get("required", ()))
    for name, raw in part.get("properties", {}).items():
        found = resolved(raw, root)
        default = json.dumps(raw["default"], ensure_ascii=False) if "default" in raw else None
        path = prefix + (f'"{name}"' if "." in name else name)
        yield Key(
            path, type_of(raw, root), default, name in required, " ".join(str(found.get("description", "")).split())
        )
        for below, suffix in _inside(raw, root):
            reference = str(below.get("$ref", below.get("title", path + suffix)))
            if reference not in on_the_way:
                yield from _keys(resolved(below, root), f"{path}{suffix}.", root, (*on_the_way, reference))


def _inside(raw: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The objects that a value holds: itself, its items, its values by name, one of its kinds."""
    if raw.get("$ref") in _SECRETS:
        return
    found = resolved(raw, root)
    if "properties" in found:
        yield raw, ""
    if isinstance(found.get("items"), dict):
        for below, suffix in _inside(found["items"], root):
            yield below, f"[]{suffix}"
    if isinstance(found.get("additionalProperties"), dict):
        for below, suffix in _inside(found["additionalProperties"], root):
            yield below, f".NAME{suffix}"
    seen: set[str] = set()
    for kind in (*found.get("anyOf", ()), *found.get("oneOf", ())):
        for below, suffix in _inside(kind, root):
            body = json.dumps(below, sort_keys=True)
            if body not in seen and "[]" not in suffix:  # a list of what may stand alone has the same keys
                seen.add(body)
                yield below, suffix


def type_of(raw: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """A value's type in words: `integer or null`, `list of string`, `"a" or "b"`."""
    if raw.get("$ref") in _SECRETS:
        return _SECRETS[raw["$ref"]]
    found = resolved(raw, root)
    values = found.get("enum") or ([found["const"]] if "const" in found else [])
    if values:
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
    kinds = found.get("anyOf") or found.get("oneOf")
    if kinds:
        return " or ".join(dict.fromkeys(type_of(each, root) for each in kinds))
    named = found.get("type")
    if isinstance(named, list):
        return " or ".join(named)
    if named == "array" and isinstance(found.get("items"), dict):
        return f"list of {type_of(found['items'], root)}"
    return {"array": "list", "object": "table" if root.get("title") == "drkit.toml" else "object"}.get(
        str(named), str(named or "anything")
    )
