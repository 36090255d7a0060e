"""A JSON Schema of `drkit.toml` for editors, made from the models that read it."""

from __future__ import annotations

from typing import Any

from drkit.config.schema.config import CLIENT_PROPERTIES, SECRET_PROPERTIES, Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def toml_schema() -> dict[str, Any]:
    """The schema. What only code can check (names that must be known, places in a URL) isn't in it."""
    schema = Config.model_json_schema()
    tables = schema["$defs"]
    for name in ("ClusterConfig", "FenceConfig"):
        _client(tables[name]["properties"]["client"])
    directory = schema["properties"]["directory"]
    directory["anyOf"] = [{"type": directory.pop("type"), "items": directory["items"]}, directory.pop("items")]
    return {"$schema": DIALECT, "title": "drkit.toml"} | {key: value for key, value in schema.items() if key != "title"}


def _client(schema: dict[str, Any]) -> None:
    """Name the properties that there are; numbers and booleans are as good as their text."""
    table = next((each for each in schema.get("anyOf", ()) if each.get("type") == "object"), schema)
    secret = table.pop("additionalProperties")
    plain = {"anyOf": [*secret["anyOf"], {"type": "boolean"}, {"type": "number"}]}
    plain["anyOf"] = [{"type": "string"} if each.get("type") == "string" else each for each in plain["anyOf"]]
    table["properties"] = {name: secret if name in SECRET_PROPERTIES else plain for name in sorted(CLIENT_PROPERTIES)}
    table["additionalProperties"] = False
