"""What every verb shares: the common options, one invocation's context, errors turned into exit codes.

A verb is thin: it opens `command(…)`, calls the library, hands a result to the writer.

    def translate(config: ConfigOption = None, output: OutputOption = OutputMode.HUMAN, verbose: VerboseOption = False):
        with command(config, output, verbose) as run:
            store = run.store()
            run.writer.emit(document, human)
            run.exit(ExitCode.DEVIATION)        # only where the code isn't 0
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from drkit.cli.wiring.output import OutputMode, Writer
from drkit.model.errors import ConfigError, DrkitError, ExitCode, Interrupted, StoreMissing, Terminated
from drkit.model.topology import Link, LinkId

if TYPE_CHECKING:
    from drkit.config import Config
    from drkit.store.api import Store, WholeStore

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Configuration file (default: $DRKIT_CONFIG, else ./drkit.toml).")
]
OutputOption = Annotated[OutputMode, typer.Option("--output", "-o", help="For people, or one JSON document on stdout.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more; show the trace of an error.")]
LinkOption = Annotated[
    str | None, typer.Option("--link", help="One link, as source->target (default: all links).", metavar="L")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.1,
        metavar="SECONDS",
        help="How long to wait for a cluster: connecting, handshakes and each answer (default: 5 s; a cluster that "
        "can't be connected to is given up after 1.5 s).",
    ),
]


class TermSignal(KeyboardInterrupt):
    """SIGTERM came: the verb ends in order, as it does by Ctrl-C."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Have SIGTERM end what is done in the block as Ctrl-C does: what it made for itself is removed."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; another must not cut the end short
        raise TermSignal

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except TermSignal:
        raise  # SIGTERM stays ignored: the process is about to end
    except BaseException:
        signal.signal(signal.SIGTERM, before)
        raise
    else:
        signal.signal(signal.SIGTERM, before)


@dataclass
class Invocation:
    """One run of a verb: its options, and what it opened (closed when the verb ends)."""

    config_path: Path | None
    writer: Writer
    verbose: bool
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

        `create`: make it where there is none; for verbs that are to write first (`drkit mirror`). `recorded`: what is
        changed of a link goes to the copy on its target, too.

        Raises:
            StoreMissing: there is none.
        """
        from drkit.state_topic.recorded_store import StateRecording
        from drkit.store import open_store

        if self._store is None:
            try:
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

        opened = open_whole_store(self.config.store.plain_url, create=False)
        self._stack.callback(opened.close)
        return opened

    def store_if_any(self) -> tuple[Store, StoreMissing | None]:
        """The configured store; an empty one in memory, and why, where there is none: for verbs that look at the
        clusters in the first place, and say what they could not look up.
        """
        from drkit.store import open_store

        try:
            return self.store(), None
        except StoreMissing as error:
            self._store = open_store("sqlite:///:memory:")
            self._stack.callback(self._store.close)
            return self._store, error

    def links(self, selected: str | None) -> list[Link]:
        """The configured links, or the one that `--link` names."""
        return select_links(self.config, selected)

    def exit(self, code: ExitCode) -> NoReturn:
        """End the verb with this exit code."""
        raise typer.Exit(int(code))


def select_links(config: Config, selected: str | None) -> list[Link]:
    """Links of the configuration, or the one named.

    Raises:
        ConfigError: no such link, not a link's name, or none configured.
    """
    links = [link.link() for link in config.links]
    if not links:
        raise ConfigError("no link is configured", remedy="Add a [[links]] section with source and target")
    if selected is None:
        return links
    try:
        wanted = LinkId.parse(selected)
    except ValueError as error:
        raise ConfigError(f"--link: {error}", remedy=f"Known links: {_names(links)}") from None
    found = [link for link in links if link.id == wanted]
    if not found:
        raise ConfigError(f"--link: no link {wanted} is configured", remedy=f"Known links: {_names(links)}")
    return found


def _names(links: Sequence[Link]) -> str:
    return ", ".join(str(link.id) for link in links)


@contextmanager
def command(
    config: Path | None, output: OutputMode, verbose: bool, *, lines: bool = False, unfinished: str = ""
) -> Iterator[Invocation]:
    """Run a verb's body: errors become messages on stderr and exit codes, resources are closed.

    Args:
        config: as `--config` gives it.
        output: as `--output` does.
        verbose: whether errors are shown with their trace.
        lines: the verb writes one JSON object a line, so an error is one line too.
        unfinished: what an interrupt means for what the verb had done.
    """
    writer = Writer.for_mode(output, lines=lines)
    run = Invocation(config, writer, verbose)
    try:
        with run._stack:  # noqa: SLF001  # the invocation's own stack; verbs never see it
            yield run
    except DrkitError as error:
        writer.error(error)
        if verbose:
            traceback.print_exc()
        raise typer.Exit(int(error.exit_code)) from None
    except TermSignal:
        writer.error(Terminated("ended by SIGTERM", meaning=unfinished, remedy="Run the command again"))
        raise typer.Exit(int(ExitCode.TERMINATED)) from None
    except KeyboardInterrupt:
        writer.error(Interrupted("interrupted by the keyboard", meaning=unfinished, remedy="Run the command again"))
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001  # the last resort: a defect must not end in a bare trace
        writer.error(
            DrkitError(
                f"internal error: {type(error).__name__}: {error}",
                meaning="This is a defect of drkit, not of your set-up",
                remedy="Run again with --verbose and report the trace",
            )
        )
        if verbose:
            traceback.print_exc()
        raise typer.Exit(int(ExitCode.FAILED)) from None
