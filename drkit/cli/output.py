"""What a command writes: data to stdout, logs and errors to stderr, each for people or as JSON, safe for a terminal.

`--log-format` says what goes to stderr: text for people, or one JSON object a line for programs. Each event has `at`,
`level`, `logger`, `message`, and `link`, `topic`, `partition`, `run`: null where it is about none.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import IO, Annotated, Any, ClassVar, cast

import typer
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from drkit.cli.process.interrupts import deferred
from drkit.model.clock import iso, now
from drkit.model.errors import ConfigError, DrkitError, Interrupted, Terminated, error_body
from drkit.model.process import worked_on
from drkit.model.topology import Link, LinkId, TopicPartition

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except for tabs and line ends, and what turns the direction of text round."""
_SHOWN = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Replace each character that a terminal would interpret."""
    return _OBEYED.sub(_SHOWN, text)


@dataclass(frozen=True, slots=True)
class Printable:
    """Something to be rendered, made printable; Rich's own control codes (colours, the cursor) stay."""

    renderable: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol."""
        for segment in console.render(self.renderable, options):
            if segment.control or not _OBEYED.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Rich's protocol."""
        return Measurement.get(console, options, self.renderable)


class PrintableOnly(RenderHook):
    """Makes printable whatever a console prints (not what a live display shows: wrap that itself)."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Rich's protocol."""
        return [Printable(each) for each in renderables]


ABOUT = ("link", "topic", "partition", "run")
_WIDE = 100_000


class LogFormat(StrEnum):
    """How events are written to stderr."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="On stderr: text for people, or one JSON object a line.")
]


def event_line(
    level: str, logger: str, message: str, about: Mapping[str, Any], at: datetime | None = None, **more: Any
) -> str:
    """One event as a line of JSON, without its end. Nothing in it is a control character."""
    said = {key: value for key, value in about.items() if value is not None}
    where = dict.fromkeys(ABOUT) | worked_on() | said
    event = {"at": iso(at or now()), "level": level, "logger": logger, "message": message} | where | more
    return json.dumps(event, default=str)


class JsonLines(logging.Formatter):
    """A log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        more: dict[str, Any] = dict(getattr(record, "numbers", {}))
        if record.exc_info:
            more["trace"] = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC)
        return event_line(record.levelname.lower(), record.name, record.getMessage(), context_of(record), at, **more)


class TextLines(logging.Formatter):
    """A log record as a line of text: when, how grave, what."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = iso(datetime.fromtimestamp(record.created, UTC))
        text = f"{at} {record.levelname:<7} {printable(' '.join(record.getMessage().split()))}"
        return f"{text}\n{printable(self.formatException(record.exc_info))}" if record.exc_info else text


def context_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record is about: what its writer says in `extra`, else the link and the partition that its words name."""
    found: dict[str, Any] = {key: getattr(record, key) for key in ABOUT if getattr(record, key, None) is not None}
    for each in record.args if isinstance(record.args, tuple) else ():
        if isinstance(each, Link | LinkId):
            found.setdefault("link", str(each.id if isinstance(each, Link) else each))
        elif isinstance(each, TopicPartition):
            found.setdefault("topic", each.topic)
            found.setdefault("partition", each.partition)
    return found


class EventLines:
    """A stream for remarks: each line that is written becomes an event."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        """Write what ends; keep what doesn't."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            if line.strip():
                self._stream.write(event_line("info", "drkit", line.strip(), {}) + "\n")
        return len(text)

    def forward(self, line: str, **more: Any) -> None:
        """Another process's line: an event gets more keys, whatever else becomes one."""
        try:
            event = {**json.loads(line), **more}
        except (ValueError, TypeError):
            event = json.loads(event_line("info", "drkit", line.strip(), {}, **more))
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def event(self, level: str, message: str, about: Mapping[str, Any], **more: Any) -> None:
        """Write one event; `about`: what it is about, as far as the thread's context doesn't say so."""
        self._stream.write(event_line(level, "drkit", " ".join(message.split()), about, **more) + "\n")
        self._stream.flush()

    def error(self, error: DrkitError, trace: str | None = None) -> None:
        """An error is one event, its trace a part of it."""
        body = error_body(error) | ({} if trace is None else {"trace": trace})
        self.event(
            "error", error.what, {}, **{key: value for key, value in body.items() if key not in {"what", *ABOUT}}
        )

    def flush(self) -> None:
        """Write out what can be written."""
        self._stream.flush()

    def isatty(self) -> bool:
        """It isn't one."""
        return False


def event_console(stream: IO[str]) -> tuple[Console, EventLines]:
    """A console for remarks whose lines become events."""
    lines = EventLines(stream)
    console = Console(file=lines, width=_WIDE, highlight=False, no_color=True, force_terminal=False)  # type: ignore[arg-type]  # what Rich uses of a file
    console.push_render_hook(PrintableOnly())
    return console, lines


@contextmanager
def logging_to(console: Console, log_format: LogFormat, stream: IO[str], *, verbose: bool) -> Iterator[None]:
    """Send drkit's log to stderr: at a terminal as Rich shows it, else a line for each event.

    As JSON that of every library, too: nothing else is to be on stderr.
    """
    from rich.logging import RichHandler

    handler: logging.Handler
    if log_format is LogFormat.TEXT and console.is_terminal:
        handler = RichHandler(console=console, show_path=verbose, markup=False)
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else TextLines())
    drkit_log = logging.getLogger("drkit")
    heard = logging.getLogger() if log_format is LogFormat.JSON else drkit_log
    before = drkit_log.level
    heard.addHandler(handler)
    drkit_log.setLevel(logging.DEBUG if verbose else logging.INFO)
    try:
        yield
    finally:
        heard.removeHandler(handler)
        drkit_log.setLevel(before)


_ELSEWHERE = "name another place"
_RIGHTS = f"Give drkit permission to use it (ls -ld shows who has it), or {_ELSEWHERE}"
_REASONS = {
    errno.ENOSPC: ("its disk is full", f"Free space there (df -h), or {_ELSEWHERE}; then run the command again"),
    errno.EDQUOT: ("the quota there is used up", f"Free space there, or {_ELSEWHERE}; then run the command again"),
    errno.EFBIG: ("it would be larger than files may be", "Raise the limit (ulimit -f), then run the command again"),
    errno.EROFS: ("its file system is read-only", f"Mount it for writing, or {_ELSEWHERE}"),
    errno.EACCES: ("the operating system denies it", _RIGHTS),
    errno.EPERM: ("the operating system denies it", _RIGHTS),
    errno.ENOENT: ("it isn't there", "Check the path, and create its folder where that is missing"),
    errno.ENOTDIR: ("a part of its path is not a folder", "Check the path"),
    errno.EISDIR: ("it is a folder", "Name a file"),
    errno.EEXIST: ("there is one already", "Name another"),
    errno.ELOOP: ("its symbolic links form a cycle", "Correct the links, or name the file itself"),
    errno.ENAMETOOLONG: ("its name is too long", "Give it a shorter name"),
    errno.EMFILE: ("drkit has too many files open", "Raise the limit (ulimit -n), then run the command again"),
    errno.ENFILE: ("the machine has too many files open", "End what holds them, then run the command again"),
    errno.EIO: ("the disk refuses", "Check the disk (dmesg)"),
}
_OF_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def explain_os_error(error: OSError | UnicodeEncodeError) -> DrkitError | None:
    """The error with its file, reason and remedy; None where it isn't about a file, or not of a known kind.

    A text that can't be written was given on the command line, as bytes that are no UTF-8.
    """
    if isinstance(error, UnicodeEncodeError):
        given = error.object[error.start : error.end]
        return ConfigError(
            f"{given!r} is not text: its bytes are not UTF-8",
            meaning=NOTHING_DONE,
            remedy="Give the name as it is on the cluster",
        )
    reason, remedy = _REASONS.get(error.errno or 0, (None, ""))
    if reason is None:
        return None
    if isinstance(error.filename, str | bytes):
        return DrkitError(f"{os.fsdecode(error.filename)} can't be used: {reason}", remedy=remedy)
    if error.errno not in _OF_OUTPUT:
        return None
    return DrkitError(
        f"stdout accepts no more: {reason}",
        meaning="The result is not written, or incomplete; what the command did remains in effect",
        remedy=f"{remedy}. `drkit runs` lists what was done",
    )


JsonObject = Mapping[str, Any]


class OutputMode(StrEnum):
    """`--output`: for people, or exactly one JSON document on stdout."""

    HUMAN = "human"
    JSON = "json"


def to_json(document: JsonObject, *, indent: int | None = None) -> str:
    """JSON text of a result: instants as ISO-8601 `Z`, enums by value, sets sorted."""
    return json.dumps(document, default=_plain, ensure_ascii=False, indent=indent)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)


_READ_BY_PEOPLE = 200_000
"""The characters up to which a document is indented: only Python's slow encoder can, in seconds for a site."""

_JSON = re.compile(r"(--output|-o)[ =]?json\b")
_JSON_LOG = re.compile(r"--log-format[ =]json\b")


@dataclass(slots=True)
class OutputWriter:
    """Where a verb's result goes.

    `console` is stdout for people; `log` is stderr, for progress and remarks in either mode, in `log_format`; `events`
    gets errors if that is JSON. `lines`: each JSON object is one line, errors too. `emitted`: the result is
    written; `wrote`: by any writer of this process.
    """

    mode: OutputMode
    console: Console
    log: Console
    lines: bool = False
    emitted: bool = False
    log_format: LogFormat = LogFormat.TEXT
    events: EventLines | None = None
    wrote: ClassVar[bool] = False

    @classmethod
    def for_mode(cls, mode: OutputMode, *, lines: bool = False) -> OutputWriter:
        """The writer on this process's stdout and stderr."""
        if mode is OutputMode.HUMAN and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that isn't UTF-8 lacks ▶
        console = _StdoutConsole(highlight=False)
        log = Console(file=cast("IO[str]", _StderrStream()), highlight=False)
        for each in (console, log):
            each.push_render_hook(PrintableOnly())
        return cls(mode, console, log, lines)

    def log_as(self, log_format: LogFormat) -> OutputWriter:
        """Write remarks, and errors, in this format from now on; returns itself."""
        self.log_format = log_format
        if log_format is LogFormat.JSON and self.events is None:
            self.log, self.events = event_console(cast("IO[str]", _StderrStream()))
        return self

    def logging(self, *, verbose: bool) -> AbstractContextManager[None]:
        """In the block drkit's log goes to stderr, too."""
        return logging_to(self.log, self.log_format, cast("IO[str]", _StderrStream()), verbose=verbose)

    def remark(self, text: Text, level: str = "info", **about: Any) -> None:
        """A line on stderr, or an event; `about`: what of `ABOUT` the thread's context doesn't say."""
        if self.events is None:
            self.log.print(text, soft_wrap=True)
        else:
            self.events.event(level, text.plain, about)

    def emit(self, document: JsonObject | Callable[[], JsonObject], human: Callable[[Console], None]) -> None:
        """Write the result once: `document` as JSON, or `human(console)`. Whole, whatever signal comes meanwhile.

        `document`: where it takes time to make, what makes it.
        """
        with deferred():
            if self.mode is OutputMode.JSON:
                try:
                    _write_json(document() if callable(document) else document, indent=2)
                except BrokenPipeError:  # its reader has gone: what was done, and the code for it, stay
                    drop_stdout()
            else:
                human(self.console)
            self.emitted = OutputWriter.wrote = True

    def line(self, document: JsonObject) -> None:
        """Write one JSON object as one line (`drkit status --watch --output json`)."""
        _write_json(document)

    def line_if_read(self, document: JsonObject) -> None:
        """The same, dropped where stdout takes nothing (a closed pipe, a full disk): a mirror goes on."""
        try:
            _write_json(document)
        except BrokenPipeError:
            drop_stdout()
        except OSError:
            pass

    @property
    def unread(self) -> bool:
        """Whether the reader of what is written for people has gone."""
        return isinstance(self.console, _StdoutConsole) and self.console.unread

    def error(self, error: DrkitError, trace: str | None = None) -> None:
        """Write what happened, what it means and what to do; in JSON mode the document on stdout too.

        Not after the result, which says in JSON itself what failed: stdout holds one document. `trace`: of the
        exception, where it is to be shown.
        """
        if self.events is not None:
            self.events.error(error, trace)
        said = (("error:", "bold red", error.what), ("  means:", "dim", error.meaning), ("  do:", "bold", error.remedy))
        for word, style, text in said:
            if text and self.events is None:
                self.log.print(Text.assemble((word, style), " ", text), soft_wrap=True)
        if self.mode is OutputMode.JSON and (self.lines or not self.emitted):
            with suppress(OSError):  # what is told may be that stdout takes nothing
                _write_json({"error": error_body(error)}, indent=None if self.lines else 2)
        if trace is not None and self.events is None:
            with suppress(OSError):
                sys.stderr.write(printable(trace))


def drop_stdout() -> None:
    """Nobody reads stdout any more: what is written to it from now on is dropped."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _StdoutConsole(Console):
    """stdout for people. Where its reader has gone (`| head`), what is written is dropped: a failover goes on, and ends
    with its own code. Rich itself would end the process with 1."""

    unread = False

    def on_broken_pipe(self) -> None:
        """Drop this, and what follows."""
        self.unread = True
        drop_stdout()


class _StderrStream:
    """stderr. Writes that fail (a full disk, a closed pipe) are dropped: no command fails for remarks."""

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what can be written."""
        with suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def _write_json(document: JsonObject, *, indent: int | None = None) -> None:
    text = to_json(document)
    if len(text) > _READ_BY_PEOPLE:
        indent = None
    if indent is not None:
        text = to_json(document, indent=indent)
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # another locale's encoding, or an argument that is no text: JSON has escapes
        sys.stdout.write(json.dumps(json.loads(text), indent=indent) + "\n")
    sys.stdout.flush()


def writer_for(arguments: Sequence[str]) -> OutputWriter:
    """The writer that a command line asks for, before it is understood."""
    mode = OutputMode.JSON if _JSON.search(" ".join(arguments)) else OutputMode.HUMAN
    writer = OutputWriter.for_mode(mode, lines=bool(arguments) and (arguments[0] == "mirror" or "--watch" in arguments))
    writer.log_as(LogFormat.JSON if _JSON_LOG.search(" ".join(arguments)) else LogFormat.TEXT)
    return writer


NOTHING_DONE = "Nothing was done"
"""What an error of the configuration, or of options, means: each is checked before anything is begun."""
NOTHING_CHANGED = "Nothing was changed"
"""What a signal means before a verb that changes clusters or the store has begun to."""


def interruption(number: int, meaning: str, remedy: str = "Run the command again") -> DrkitError:
    """The error that a signal ends a command with."""
    if number == signal.SIGTERM:
        return Terminated("ended by SIGTERM", meaning=meaning, remedy=remedy)
    return Interrupted("interrupted by the keyboard", meaning=meaning, remedy=remedy)
