"""What every verb shares: the common options, one invocation's context, errors turned into exit codes.

A verb is thin: it is a function of an `Invocation`, calls the library, hands a result to the writer. `verb` opens the
invocation, and adds --config, --output, --log-format and --verbose.

    @verb()
    def translate(run: Invocation, group: GroupOption = None) -> None:
        store = run.store()
        run.writer.emit(document, human)
        run.exit(ExitCode.DEVIATION)        # only where the code isn't 0

A verb that does the same for several links, each by itself, ends with one error for all that failed (`combined_error`).
"""

from __future__ import annotations

import copy
import inspect
import logging
import os
import re
import signal
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec, cast

import typer
from rich.text import Text

from drkit.cli.output import (
    NOTHING_DONE,
    LogFormat,
    LogFormatOption,
    OutputMode,
    OutputWriter,
    explain_os_error,
    interruption,
)
from drkit.cli.process.interrupts import TermSignal, acknowledge, mark_finished, masked, reraise_lost
from drkit.model.errors import (
    AuthenticationError,
    ConfigError,
    DrkitError,
    ExitCode,
    OutcomeUnknown,
    PartlyDone,
    StoreMissing,
    error_body,
)
from drkit.model.link_patterns import matching
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.config import Config
    from drkit.kafka.admin.clusters import Clusters
    from drkit.store.api import Store, WholeStore


P = ParamSpec("P")

_MOST = 1e9


def aliases(context: typer.Context, incomplete: str) -> list[str]:
    """The aliases of the clusters in the configuration that the command would read, as far as they begin so.

    It reads the file alone, not the whole configuration (each key press would wait for that to be loaded), and is
    silent where the file can't be read.
    """
    given = context.params.get("config") or os.environ.get("DRKIT_CONFIG") or "drkit.toml"
    try:
        clusters = tomllib.loads(Path(given).read_text(encoding="utf-8-sig")).get("clusters")
    except (OSError, ValueError, RecursionError):
        return []
    return [alias for alias in clusters if alias.startswith(incomplete)] if isinstance(clusters, dict) else []


def bounded(value: float | None) -> float | None:
    """A callback of each option that takes a float: the value, unless it is NaN, infinite, or too great to wait for.

    A minimum alone lets NaN through, and there are seconds that no clock takes.

    Raises:
        typer.BadParameter: it is.
    """
    if value is not None and not abs(value) <= _MOST:
        raise typer.BadParameter(f"{value:g} is not a number of at most {_MOST:,.0f}.")
    return value


ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Configuration file (default: $DRKIT_CONFIG, else ./drkit.toml).")
]
OutputOption = Annotated[OutputMode, typer.Option("--output", "-o", help="For people, or one JSON document on stdout.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more; show the trace of an error.")]
LinkOption = Annotated[
    str | None, typer.Option("--link", help="One link, as source->target (default: all links).", metavar="L")
]
LinksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        help="This link, as source->target, or all whose names match a regular expression; repeat it (default: all).",
        metavar="L",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.1,
        callback=bounded,
        metavar="SECONDS",
        help="How long to wait for a cluster: connecting, handshakes and each answer (default: 5 s; drkit gives up "
        "connecting to a silent cluster after 1 s).",
    ),
]


@dataclass
class Invocation:
    """One run of a verb: its options, and what it opened (closed when the verb ends)."""

    config_path: Path | None
    writer: OutputWriter
    verbose: bool
    unfinished: Callable[[], str] = field(default=lambda: "")
    """What an interrupt means for what the verb has done so far."""
    partly: PartlyDone | None = None
    """What an interrupt ends the verb with, as it may have changed something. None: it hasn't."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _config: Config | None = None
    _store: Store | None = None

    @property
    def config(self) -> Config:
        """The configuration, read at first use."""
        from drkit.config import load_config

        if self._config is None:
            self._config = load_config(self.config_path)
        return self._config

    def store(self, *, create: bool = False, recorded: bool = True) -> Store:
        """The configured store, opened at first use and closed when the verb ends.

        `create`: make it where there is none; for verbs that write first (`drkit mirror`). `recorded`: what is
        changed of a link goes to the copy on its target, too.

        Raises:
            StoreMissing: there is none.
        """
        from drkit.state_topic.recorded_store import StateRecording
        from drkit.store import open_store

        if self._store is None:
            try:
                with _with_file_name(self.config):
                    self._store = open_store(self.config.store.plain_url, create=create)
            except StoreMissing as error:
                targets = dict.fromkeys(link.target for link in self.config.links)
                raise StoreMissing(error.what, tuple(targets)) from None
            self._stack.callback(self._store.close)
            if recorded:
                recording = StateRecording(self.config, self._store)  # begins only once something of a link is changed
                self._stack.callback(recording.close)
                self._store = recording.store
        return self._store

    def plain_store(self) -> WholeStore:
        """The configured store as its backend has it: for copies of all that it holds.

        Raises:
            StoreMissing: there is none.
        """
        from drkit.store import open_whole_store

        with _with_file_name(self.config):
            opened = open_whole_store(self.config.store.plain_url, create=False)
        self._stack.callback(opened.close)
        return opened

    def store_if_any(self) -> tuple[Store, StoreMissing | None]:
        """The configured store; an empty one in memory, and why, where there is none: for verbs that mainly
        read the clusters, and report what they could not look up.
        """
        from drkit.store import open_store

        try:
            return self.store(), None
        except StoreMissing as error:
            self._store = open_store("sqlite:///:memory:")
            self._stack.callback(self._store.close)
            return self._store, error

    def connecting(self, aliases: Iterable[str], timeout: float | None = None) -> Clusters:
        """Connections to clusters that may be gone, begun now: a dead one is waited for while the rest is loaded.

        They are closed when the verb ends, but for those that another object adopts. `timeout`: as `--timeout` has it.
        """
        from drkit.kafka.admin.clusters import observing

        begun = observing(self.config.clusters, timeout)
        self._stack.callback(begun.close)
        begun.connect_soon(aliases)
        return begun

    def links(self, selected: str | None) -> list[Link]:
        """The configured links, or the one that `--link` names.

        Raises:
            ConfigError: no such link, not a link's name, or none configured.
        """
        links = links_like(self.config, None)
        if selected is None:
            return links
        known = f"Known links: {', '.join(str(link.id) for link in links)}"
        try:
            wanted = LinkId.parse(selected)
        except ValueError as error:
            raise ConfigError(f"--link: {error}", remedy=known) from None
        found = [link for link in links if link.id == wanted]
        if not found:
            raise ConfigError(f"--link: no link {wanted} is configured", remedy=known)
        return found

    def links_like(self, patterns: Sequence[str] | None) -> list[Link]:
        """The configured links, or those that `--link`, given any number of times, names or matches.

        Raises:
            ConfigError: one of them means no link, or none is configured.
        """
        return links_like(self.config, patterns)

    def check_cluster(self, alias: str, option: str = "") -> None:
        """Raise ConfigError unless a cluster of this alias is configured; `option`: what names it."""
        if alias not in self.config.clusters:
            known = ", ".join(sorted(self.config.clusters))
            named = f"{option}: " if option else ""
            raise ConfigError(f"{named}no cluster {alias!r} is configured", remedy=f"Known clusters: {known}")

    def say(self, line: str) -> None:
        """A line on stderr, as it is."""
        self.writer.remark(Text(line))

    def ask(self, question: str) -> str:
        """What is typed at the terminal; nothing where the input ends instead (Ctrl-D)."""
        try:
            if self.writer.events is None:
                return self.writer.log.input(question).strip()
            self.writer.remark(Text.from_markup(question))
            return input().strip()
        except EOFError:
            self.writer.log.print()
            return ""

    def begins_to_change(self, meaning: str, remedy: str = "Run the command again: it finishes what was begun") -> None:
        """From here on an interrupt ends the verb with 7, and says this; for verbs that journal no stages."""
        self.partly = PartlyDone("interrupted while it was changing something", meaning=meaning, remedy=remedy)

    def exit(self, code: ExitCode) -> NoReturn:
        """End the verb with this exit code."""
        raise typer.Exit(int(code))

    def fail(self, error: DrkitError) -> NoReturn:
        """End the verb, whose result is written, by an error that is a part of it."""
        self.writer.error(error)
        self.exit(error.exit_code)


def links_like(config: Config, patterns: Sequence[str] | None) -> list[Link]:
    """Links of the configuration: all, or those that these names and regular expressions mean.

    Raises:
        ConfigError: one of them means no link, or none is configured.
    """
    links = config.required_links()
    return matching(links, patterns) if patterns else links


@contextmanager
def _with_file_name(config: Config) -> Iterator[None]:
    """What is wrong with `store.url` is told with the file, or the variable, that gives it."""
    try:
        yield
    except ConfigError as error:
        if type(error) is not ConfigError:
            raise
        given = next((name for name in os.environ if name.upper() in {"DRKIT_STORE__URL", "DRKIT_STORE"}), None)
        place = config.file if given is None else f"the environment variable {given}"
        raise ConfigError(f"{place}: {error.what}", meaning=error.meaning, remedy=error.remedy) from error


@contextmanager
def _stop_spark_on_interrupt() -> Iterator[None]:
    """An interrupt ends Spark's session, if the verb started one: an answer of its JVM's that is still on its way would
    be taken for the answer to what is asked next."""
    try:
        yield
    except KeyboardInterrupt:
        if (session := sys.modules.get("drkit.audit.spark.session")) is not None:
            session.stop_session(gently=False)
        raise


@contextmanager
def command(
    config: Path | None,
    output: OutputMode,
    verbose: bool,
    log_format: LogFormat,
    *,
    lines: bool = False,
    unfinished: str = "",
    at_once: bool = False,
    service: bool = False,
    drafts: bool = False,
) -> Iterator[Invocation]:
    """Run a verb's body: errors become messages on stderr and exit codes, resources are closed.

    Args:
        config: as `--config` gives it.
        output: as `--output` does.
        verbose: whether errors are shown with their trace.
        log_format: as `--log-format` gives it.
        lines: the verb writes one JSON object a line, so an error is one line too.
        unfinished: what an interrupt means for what the verb had done.
        at_once: a signal ends the verb wherever it is, and nothing in it catches one to continue: then one that some
            library drops is raised again, and what fails after one is its doing.
        service: drkit's log goes to stderr as text, too; of other verbs only as JSON.
        drafts: the verb makes a configuration, and checks the names of variables by that one itself.
    """
    reraise_lost(enabled=at_once)
    writer = OutputWriter.for_mode(output, lines=lines).log_as(log_format)
    run = Invocation(config, writer, verbose, lambda: unfinished)
    logged = writer.logging(verbose=verbose) if service or log_format is LogFormat.JSON else nullcontext()
    try:
        try:
            with logged, run._stack, _stop_spark_on_interrupt():  # noqa: SLF001  # the invocation's own stack; verbs never see it
                if not drafts:
                    _check_variables(config)
                yield run
        finally:
            mark_finished(changed=run.partly is not None)
    except DrkitError as error:
        if (number := masked()) is not None:
            if not isinstance(error, PartlyDone | OutcomeUnknown):
                raise typer.Exit(_interrupted(run, number)) from None
            acknowledge()  # by these two: what was changed matters more than the signal
        at_work = writer.emitted or (lines and run._store is not None)  # noqa: SLF001  # as above
        of_usage = isinstance(error, ConfigError) and not isinstance(error, AuthenticationError)
        if of_usage and not error.meaning and not at_work:
            error.meaning = NOTHING_DONE
        _write_error(writer, error, verbose=verbose)
        raise typer.Exit(int(error.exit_code)) from None
    except KeyboardInterrupt as interrupt:
        number = signal.SIGTERM if isinstance(interrupt, TermSignal) else signal.SIGINT
        raise typer.Exit(_interrupted(run, number)) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001  # the last resort: a defect must not end in a bare trace
        if (number := masked()) is not None:
            raise typer.Exit(_interrupted(run, number)) from None
        found = _known(error)
        defect = DrkitError(
            f"internal error: {type(error).__name__}: {error}",
            meaning="This is a bug of drkit, not of your set-up",
            remedy="Run again with --verbose and report the trace",
        )
        shown = found or defect
        _write_error(writer, shown, verbose=verbose)
        raise typer.Exit(int(shown.exit_code)) from None


def _check_variables(config: Path | None) -> None:
    """Refuse `DRKIT_…` variables that drkit doesn't read, also where the verb reads no configuration."""
    if any(name.upper().startswith("DRKIT_") for name in os.environ):  # else nothing is loaded for it
        from drkit.config.load import check_variables

        check_variables(config)


def verb(
    *,
    lines: bool = False,
    unfinished: str = "",
    at_once: bool = False,
    service: bool = False,
    drafts: bool = False,
    config_help: str | None = None,
) -> Callable[[Callable[Concatenate[Invocation, P], None]], Callable[..., None]]:
    """Make a verb of a function: it is called with an `Invocation`, and options are added for what that is made from.

    `lines`, `unfinished`, `at_once`, `service` and `drafts` are as in `command`. `config_help`: the help of --config,
    where it isn't the usual one.
    """
    config_option = (
        ConfigOption if config_help is None else Annotated[Path | None, typer.Option("--config", help=config_help)]
    )

    def decorate(function: Callable[Concatenate[Invocation, P], None]) -> Callable[..., None]:
        def opened(
            *, config: Path | None, output: OutputMode, log_format: LogFormat, verbose: bool, **options: Any
        ) -> None:
            with command(
                config,
                output,
                verbose,
                log_format,
                lines=lines,
                unfinished=unfinished,
                at_once=at_once,
                service=service,
                drafts=drafts,
            ) as run:
                call(run, **options)

        call: Callable[..., None] = function
        own = inspect.signature(function, eval_str=True)
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, default, annotation in (
                ("config", None, config_option),
                ("output", OutputMode.HUMAN, OutputOption),
                ("log_format", LogFormat.TEXT, LogFormatOption),
                ("verbose", False, VerboseOption),
            )
        ]
        found = cast("Any", opened)  # Typer reads these two
        found.__signature__ = own.replace(parameters=[*list(own.parameters.values())[1:], *shared])
        found.__annotations__ = {}
        found.__name__, found.__doc__ = function.__name__, function.__doc__
        return opened

    return decorate


def _known(error: Exception) -> DrkitError | None:
    """An error that no part of drkit explained, where it is the operating system's, or an extra isn't installed."""
    if isinstance(error, ModuleNotFoundError):
        from drkit.config.extras import extra_of_import

        return extra_of_import(error)
    return explain_os_error(error) if isinstance(error, OSError | UnicodeEncodeError) else None


def _write_error(writer: OutputWriter, error: DrkitError, *, verbose: bool) -> None:
    """Write an error, with --verbose followed by the trace of the exception that is being handled."""
    writer.error(error, traceback.format_exc() if verbose else None)


def _interrupted(run: Invocation, number: int) -> int:
    """Say that a signal ended the verb; the exit code."""
    acknowledge()
    ended: DrkitError
    if run.writer.emitted:
        whole = "The command was done, and its result is written"
        ended = interruption(number, whole, "") if run.partly is None else PartlyDone("interrupted", meaning=whole)
    elif run.partly is not None:
        ended = run.partly
    else:
        ended = interruption(number, run.unfinished())
    run.writer.error(ended)
    return int(ended.exit_code)


def listen_address(listen: str, option: str) -> tuple[str, int]:
    """HOST:PORT taken apart.

    Raises:
        ConfigError: it is something else; the message names the option.
    """
    host, _, port = listen.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:  # noqa: PLR2004  # the highest port
        raise ConfigError(f"{option}: {listen!r} is not HOST:PORT", remedy=f"For example {option} 127.0.0.1:9404")
    return host.strip("[]"), int(port)


def set_client_logs(*, verbose: bool) -> None:
    """Show what the clients log with `--verbose` only: it repeats what drkit says itself, once a try."""
    for client in ("kafka", "aiokafka"):
        logging.getLogger(client).setLevel(logging.WARNING if verbose else logging.CRITICAL)
    logging.getLogger("drkit.librdkafka").setLevel(logging.DEBUG if verbose else logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class LinkFailure:
    """A link for which it could not be done, and why. `again`: the command for this link alone."""

    link: LinkId
    error: DrkitError
    again: str


def failure_documents(failures: Sequence[LinkFailure]) -> list[dict[str, Any]]:
    """The `failures` of a document: each error, with its link."""
    return [{"link": str(each.link), **error_body(each.error)} for each in failures]


def combined_error(failures: Sequence[LinkFailure], done: int) -> DrkitError | None:
    """What the operator is told, whose class gives the exit code; None: no link failed.

    Args:
        failures: the links that failed.
        done: for how many links it was done.

    Returns:
        Where nothing was done, the first link's error, naming all that failed. Else `PartlyDone`, or `OutcomeUnknown`
        where of each that failed no more than the outcome isn't known.
    """
    if not failures:
        return None
    first = failures[0].error
    why = and_more([f"{each.link}: {each.error.what}" for each in failures], separator="; ")
    again = "; ".join(each.again for each in failures)
    remedy = f"{first.remedy.rstrip('. ')}; then {again}" if first.remedy else again
    if not done:
        combined = copy.copy(first)
        combined.what, combined.remedy = why, remedy
        return combined
    kind = OutcomeUnknown if all(isinstance(each.error, OutcomeUnknown) for each in failures) else PartlyDone
    return kind(
        f"{len(failures)} of {counted(len(failures) + done, 'link')} failed: {why}",
        meaning=f"It is done for the other {done}",
        remedy=remedy,
    )
