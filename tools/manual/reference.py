"""The reference pages that are made from the code at each build, and kept nowhere else."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from drkit.model.errors import DrkitError, ExitCode
from tools.manual.commands import Command, Option, commands, verbs
from tools.manual.exit_codes import meanings
from tools.manual.metrics import metrics
from tools.manual.schema_tables import Key, keys, resolved, type_of

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
CONFIGURATION = "drkit.toml"
COMMON = {"--config", "--output", "--verbose"}
"""Options that every command takes: told once."""


def pages() -> dict[str, str]:
    """The pages as Markdown, by their names in the folder `reference`; `index.md` lists them."""
    found = {
        "commands.md": _commands_index(),
        **{f"commands/{verb}.md": _verb(of_verb) for verb, of_verb in verbs(commands()).items()},
        "configuration-keys.md": _configuration(),
        "metrics.md": _metrics(),
        "json.md": _json_index(),
        **{f"json/{name}.md": _schema(name, schema) for name, schema in _schemas().items()},
        "exit-codes.md": _exit_codes(),
    }
    return {name: text.rstrip() + "\n" for name, text in found.items()}


def top_pages() -> list[str]:
    """The pages that stand beside each other; the others are below them."""
    return ["commands", "configuration-keys", "metrics", "json", "exit-codes"]


# --- commands -------------------------------------------------------------------------------------


def _commands_index() -> str:
    every = commands()
    common = next(each for each in every if each.path == ("drkit", "status")).options
    lines = [
        "# Commands",
        "",
        "```sh",
        "drkit --help",
        "drkit failover --help",
        "```",
        "",
        "| command | |",
        "|---|---|",
        *(f"| [`drkit {verb}`](commands/{verb}.md) | {_cell(of[0].summary)} |" for verb, of in verbs(every).items()),
        "",
        "Every command takes these options:",
        "",
        *_options([each for each in common if COMMON & set(each.names)]),
    ]
    return "\n".join([*lines, "", *_toctree([f"commands/{verb}" for verb in verbs(every)])])


def _verb(found: list[Command]) -> str:
    lines: list[str] = []
    for number, command in enumerate(found):
        lines += [f"{'#' if number == 0 else '##'} {command.name}", ""]
        lines += [line for paragraph in command.paragraphs for line in (_prose(paragraph), "")]
        lines += ["```", command.synopsis, "```", ""]
        if command.examples:
            lines += ["```sh", *command.examples, "```", ""]
        if command.subcommands:
            lines += [f"Commands: {', '.join(f'`{each}`' for each in command.subcommands)}.", ""]
        lines += _arguments(command)
        own = [option for option in command.options if not COMMON & set(option.names)]
        lines += _options(own)
    lines.append("`--config`, `--output` and `--verbose` are [every command's](../commands.md).")
    return "\n".join(lines)


def _arguments(command: Command) -> Iterator[str]:
    for each in command.arguments:
        yield from (f"`{each.name}`", f": {_prose(each.help) or 'see above'}", "")


def _options(found: list[Option]) -> Iterator[str]:
    for each in found:
        names = ", ".join(f"`{name}{' ' + each.value if each.value else ''}`" for name in each.names)
        more = [f"Default: `{each.default}`."] if each.default else []
        more += ["Needed."] if each.required else []
        more += ["May be repeated."] if each.repeated and "repeat" not in each.help else []
        yield from (names, f": {' '.join([_prose(each.help), *more]).strip() or 'no more to say'}", "")


# --- configuration --------------------------------------------------------------------------------


def _configuration() -> str:
    schema = json.loads((SCHEMAS / f"{CONFIGURATION}.schema.json").read_text(encoding="utf-8"))
    lines = [
        "# Configuration keys",
        "",
        "Every key of `drkit.toml`, from its schema. What they are for: [configuration](../docs/configuration.md).",
        "",
        "```toml",
        "[objectives]",
        "rpo_seconds = 5",
        "```",
        "",
    ]
    for name, raw in schema["properties"].items():
        heading, part = _section(name, raw, schema)
        lines += [f"## `{heading}`", ""]
        said = " ".join(str(part.get("description", "")).split())
        lines += [_prose(said), ""] if said else []
        lines += _key_list(list(keys({**part, "$defs": schema["$defs"], "title": schema["title"]})))
    return "\n".join(lines)


def _section(name: str, raw: dict[str, Any], schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The heading of a top-level key as TOML has it, and the schema of one of its tables."""
    found = resolved(raw, schema)
    if isinstance(found.get("items"), dict):
        return f"[[{name}]]", dict(resolved(found["items"], schema))
    if isinstance(found.get("additionalProperties"), dict):
        return f"[{name}.ALIAS]", dict(resolved(found["additionalProperties"], schema))
    for kind in found.get("anyOf", ()):
        if isinstance(kind.get("items"), dict):
            return f"[[{name}]]", dict(resolved(kind["items"], schema))
    return f"[{name}]", dict(found)


def _key_list(found: Iterable[Key]) -> Iterator[str]:
    for each in found:
        default = "Needed." if each.required else "" if each.default is None else f"Default: `{each.default}`."
        yield from (
            f"`{each.path}`",
            f": {' '.join(filter(None, [f'`{each.type}`.', default, _prose(each.says)]))}",
            "",
        )


# --- metrics --------------------------------------------------------------------------------------


def _metrics() -> str:
    lines = [
        "# Metrics",
        "",
        (
            "What each process serves to Prometheus, asked of its collectors. What is worth an alert: "
            "[observability](../docs/observability.md#metrics). What isn't known is left out, never 0."
        ),
        "",
        "```sh",
        "drkit serve &",
        "curl -s http://127.0.0.1:9404/metrics",
        "```",
        "",
    ]
    for served_by, found in metrics().items():
        lines += [f"## {served_by}", "", "| metric | kind | labels | |", "|---|---|---|---|"]
        lines += [f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {_cell(each.says)} |" for each in found]
        lines.append("")
    return "\n".join(lines)


# --- JSON -----------------------------------------------------------------------------------------


def _schemas() -> dict[str, dict[str, Any]]:
    return {
        file.name.removesuffix(".schema.json"): json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(SCHEMAS.glob("*.schema.json"))
        if not file.name.startswith(CONFIGURATION)
    }


def _json_index() -> str:
    found = _schemas()
    lines = [
        "# JSON documents",
        "",
        "```sh",
        "drkit status --output json",
        "```",
        "",
        (
            "Times are ISO-8601 UTC with `Z`; durations are seconds; what isn't known is `null`. "
            "The words are defined in [the outside contract](../docs/contract.md#words)."
        ),
        "",
        "| document | schema |",
        "|---|---|",
        *(
            f"| [{_cell(str(schema.get('title', name)))}](json/{name}.md) | "
            f"[{name}.schema.json](../docs/schemas/{name}.schema.json) |"
            for name, schema in found.items()
        ),
    ]
    return "\n".join([*lines, "", *_toctree([f"json/{name}" for name in found])])


def _schema(name: str, schema: dict[str, Any]) -> str:
    said = " ".join(str(schema.get("description", "")).split())
    lines = [f"# {_prose(str(schema.get('title', name)))}", "", *([_prose(said), ""] if said else [])]
    lines += [f"The schema itself: [{name}.schema.json](../../docs/schemas/{name}.schema.json).", ""]
    kinds = [resolved(kind, schema) for kind in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    bodies = [schema] if "properties" in schema else [kind for kind in kinds if "properties" in kind]
    if not bodies:
        return "\n".join([*lines, f"It is {type_of(schema, schema)}."])
    for number, body in enumerate(bodies, 1):
        if len(bodies) > 1:
            lines += [f"## {_prose(str(body.get('title', f'Form {number}')))}", ""]
        found = list(keys({**schema, **body}))
        rows = [f"| `{key.path}` | {_cell(key.type)} | {_cell(key.says)} |" for key in found]
        lines += ["| key | type | |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


# --- exit codes -----------------------------------------------------------------------------------


def _exit_codes() -> str:
    said = meanings()
    ending: dict[ExitCode, list[str]] = {}
    for error in _errors(DrkitError):
        ending.setdefault(error.exit_code, []).append(f"`{error.__name__}`")
    lines = [
        "# Exit codes and errors",
        "",
        "```sh",
        "drkit failover --to dr --dry-run; echo $?",
        "```",
        "",
        "| code | meaning | kinds of errors that end with it |",
        "|---|---|---|",
        *(f"| {int(code)} | {_cell(said[code])} | {', '.join(ending.get(code, []))} |" for code in ExitCode),
        "",
        "An error is a [document](json/error.md) too, with `--output json`. Its `kind`:",
        "",
    ]
    for error in _errors(DrkitError):
        first = " ".join((inspect.getdoc(error) or "").split("\n\n")[0].split())
        lines += [f"`{error.__name__}` ({int(error.exit_code)})", f": {_prose(first)}", ""]
    return "\n".join(lines)


def _errors(kind: type[DrkitError]) -> Iterator[type[DrkitError]]:
    """The error classes of `drkit.model.errors`, the general ones first."""
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == DrkitError.__module__:
            yield from _errors(each)


# --- Markdown -------------------------------------------------------------------------------------


def _toctree(names: list[str]) -> list[str]:
    return ["```{toctree}", ":hidden:", "", *names, "```"]


def _prose(text: str) -> str:
    """Text that may hold `code`, with nothing else of it taken for markup."""
    parts = text.split("`")
    return "`".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    for sign in "\\*_[]<>{}$":
        text = text.replace(sign, f"\\{sign}")
    return text


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")
