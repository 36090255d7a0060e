"""Man pages: one for drkit, one for each verb with its subcommands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drkit import __version__
from drkit.model.errors import ExitCode
from tools.manual.commands import Command, commands, verbs
from tools.manual.exit_codes import meanings


def write_man_pages(folder: Path) -> list[Path]:
    """Write `man1/drkit.1` and `man1/drkit-VERB.1` below a folder; returns the files."""
    every = commands()
    section = folder / "man1"
    section.mkdir(parents=True, exist_ok=True)
    pages = {"drkit": _root(every[0], every)} | {
        f"drkit-{verb}": _verb(verb, found) for verb, found in verbs(every).items()
    }
    written = []
    for name, text in pages.items():
        file = section / f"{name}.1"
        file.write_text(text, encoding="utf-8")
        written.append(file)
    return written


def _root(root: Command, every: Sequence[Command]) -> str:
    lines = [*_head("drkit", root.summary), ".SH COMMANDS"]
    for verb, found in verbs(every).items():
        lines += [".TP", f".BR drkit\\-{_text(verb)} (1)", _text(found[0].summary)]
    lines += [
        ".SH FILES",
        ".TP",
        ".I drkit.toml",
        _text("The configuration: --config PATH, else $DRKIT_CONFIG, else ./drkit.toml."),
        *_exit_codes(),
    ]
    return "\n".join(lines) + "\n"


def _verb(verb: str, found: Sequence[Command]) -> str:
    lines = _head(f"drkit-{verb}", found[0].summary)
    for command in found:
        if len(found) > 1:
            lines.append(f'.SH "{_text(command.name.upper())}"')
        else:
            lines.append(".SH DESCRIPTION")
        lines += [".B " + _text(command.synopsis)]
        for paragraph in command.paragraphs:
            lines += [".PP", _text(paragraph)]
        for argument in command.arguments:
            lines += [".TP", f".I {_text(argument.name)}", _text(argument.help)]
        for option in command.options:
            names = ", ".join(f"\\fB{_text(name)}\\fR" for name in option.names)
            value = f" \\fI{_text(option.value)}\\fR" if option.value else ""
            lines += [".TP", f"{names}{value}", _text(_told(option.help, option.default, repeated=option.repeated))]
        if command.examples:
            lines += [".PP", "Examples:", ".PP", ".nf", *(f"    {_text(each)}" for each in command.examples), ".fi"]
    lines += [*_exit_codes(), ".SH SEE ALSO", ".BR drkit (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH "{_text(name.upper())}" 1 "" "drkit {__version__}" "drkit"'
    synopsis = _text("drkit " + name.removeprefix("drkit").lstrip("-")).strip()
    return [
        title,
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary)}",
        ".SH SYNOPSIS",
        f".B {synopsis}",
        "[OPTIONS] \\&…",
    ]


def _exit_codes() -> list[str]:
    said = meanings()
    lines = [".SH EXIT STATUS"]
    for code in ExitCode:
        lines += [".TP", f".B {int(code)}", _text(said[code])]
    return lines


def _told(text: str, default: str, *, repeated: bool) -> str:
    more = ([f"Default: {default}."] if default else []) + (["May be repeated."] if repeated else [])
    return " ".join([text, *more]).strip() or "\\&"


def _text(text: str) -> str:
    """Text as roff takes it: no line that begins with a control character, hyphens that can be copied."""
    found = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{found}" if found.startswith((".", "'")) else found
