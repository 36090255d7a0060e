"""The commands of drkit, as its own parser has them: what the reference pages and the man pages are made from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import typer

from drkit.cli.application import VERBS, application
from drkit.cli.help import EXAMPLES

_MARKUP = re.compile(r"(?<!\\)\[/?(?:bold|dim|cyan|green|red|yellow|italic)?(?: [a-z]+)*\](?!\()")
_EXAMPLE = re.compile(r"^Examples?: *", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `value`: what stands for its value, "" of a flag; `default`: "" where there is none to show."""

    names: tuple[str, ...]
    value: str
    help: str
    default: str
    required: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument."""

    name: str
    help: str
    required: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `path` is how it is called, beginning with `drkit`; `subcommands` are the last words of theirs."""

    path: tuple[str, ...]
    paragraphs: tuple[str, ...]
    arguments: tuple[Argument, ...]
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    subcommands: tuple[str, ...]

    @property
    def name(self) -> str:
        """How it is called."""
        return " ".join(self.path)

    @property
    def summary(self) -> str:
        """Its first sentence, without the period."""
        first = self.paragraphs[0] if self.paragraphs else ""
        return re.split(r"(?<=[.:;]) ", first, maxsplit=1)[0].rstrip(".:;")

    @property
    def synopsis(self) -> str:
        """How it is called, in one line."""
        words = [self.name]
        if self.subcommands and not self.arguments:
            words.append("COMMAND")
        if self.options:
            words.append("[OPTIONS]")
        for each in self.arguments:
            word = f"{each.name}…" if each.repeated and not each.name.endswith("…") else each.name
            words.append(word if each.required else f"[{word}]")
        return " ".join(words)


@cache
def commands() -> tuple[Command, ...]:
    """Every command, each verb followed by its subcommands, in the order of `drkit --help`."""
    return tuple(_below(typer.main.get_command(application()), ("drkit",)))


def verbs(all_of_them: Sequence[Command]) -> dict[str, list[Command]]:
    """The commands by verb: the verb's own first."""
    return {verb: [each for each in all_of_them if each.path[1:2] == (verb,)] for verb in VERBS}


def _below(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    subcommands = getattr(command, "commands", {})
    shown = {name: each for name, each in subcommands.items() if not each.hidden}
    if len(path) == 1:
        shown = {name: shown[name] for name in VERBS}
    params = [each for each in command.params if not getattr(each, "hidden", False)]
    paragraphs, told = _paragraphs(command.help or "")
    yield Command(
        path,
        paragraphs,
        tuple(_argument(each) for each in params if each.param_type_name == "argument"),
        tuple(_option(each) for each in params if each.param_type_name == "option"),
        EXAMPLES.get(" ".join(path[1:]), ()) or told,
        tuple(shown),
    )
    for name, each in shown.items():
        yield from _below(each, (*path, name))


def _argument(param: Any) -> Argument:
    name = (param.metavar or (param.name or "").upper()).strip("[]").removesuffix("...")
    return Argument(name, _plain(getattr(param, "help", None) or ""), bool(param.required), param.nargs != 1)


def _option(param: Any) -> Option:
    flag = bool(param.is_flag)
    value = "" if flag else param.metavar or _kind(param.type_descriptor.annotation)
    default = "" if param.required else _default(param, flag=flag)
    return Option(
        names=(*param.opts, *param.secondary_opts),
        value=value,
        help=_plain(param.help or ""),
        default=default,
        required=bool(param.required),
        repeated=bool(param.multiple),
    )


def _default(param: Any, *, flag: bool) -> str:
    """The default, where the help doesn't say it already and there is one."""
    given = param.default
    if given is None or callable(given) or param.show_default is False or "default" in (param.help or "").lower():
        return ""
    if flag:
        if not param.secondary_opts:
            return ""
        return str((param.opts if given else param.secondary_opts)[0])
    if isinstance(given, list | tuple):
        return " ".join(map(_word, given))
    return _word(given)


def _kind(annotation: Any) -> str:
    """What stands for a value of this type: its choices, or the type's name."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(_word(each) for each in annotation)
    return {Path: "PATH", int: "N", float: "NUMBER"}.get(annotation, "TEXT")


def _word(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _paragraphs(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paragraphs of a command's help, each in one line, and the examples that it names itself."""
    found, examples = [], []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        plain = _plain(part)
        if _EXAMPLE.match(plain):
            examples += re.findall(r"`(drkit [^`]+)`", plain)
        elif plain:
            found.append(plain)
    return tuple(found), tuple(examples)


def _plain(text: str) -> str:
    """Help without Rich's markup, in one line."""
    return " ".join(_MARKUP.sub("", text).replace("\\[", "[").split())
