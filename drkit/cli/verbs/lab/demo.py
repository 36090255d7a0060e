"""`drkit demo`: the whole story on a real lab, ending with the evidence."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from drkit.cli.wiring.context import Invocation, bounded, verb
from drkit.model.errors import DrkitError, ExitCode

_SVG_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""Rich's own template links a web font; a picture in a README loads nothing."""


class StoreChoice(StrEnum):
    """The store of the demo's lab."""

    CASSANDRA = "cassandra"
    SQLITE = "sqlite"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("demo")(demo)


@verb(config_help="Not read: the demo's lab writes its own, into its folder.")
def demo(
    run: Invocation,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab up and say what to try next.")] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The lab's folder (default: a temporary one).", metavar="D")
    ] = None,
    store: Annotated[StoreChoice, typer.Option("--store", help="Where offsets are kept.")] = StoreChoice.CASSANDRA,
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=9, help="Brokers of each cluster.")] = 1,
    rate: Annotated[
        float, typer.Option("--rate", min=100, callback=bounded, help="Records a second to produce.")
    ] = 12_000,
    kill_after: Annotated[
        int, typer.Option("--kill-after", min=1000, max=900_000, help="Records acknowledged when the primary dies.")
    ] = 240_000,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Also save the evidence as a picture.", metavar="FILE")
    ] = None,
) -> None:
    """Play a disaster and its end on real clusters with real data; exit 0 only if every claim holds.

    Two Kafka clusters and Cassandra start on this machine; flights are produced, read by three
    consumer groups and mirrored; the primary is killed in mid-stream; the groups fail over to a
    time; the primary comes back and is audited; failback moves everything back.
    """
    from drkit.config.environment import forget_foreign_secrets
    from drkit.config.extras import Extra, require
    from drkit.demo.evidence import evidence_document, print_evidence  # heavy, this verb's alone
    from drkit.demo.picture import Picture  # as above
    from drkit.demo.story import Script, Story  # as above
    from drkit.lab.toolchain import ensure  # as above

    forget_foreign_secrets()
    require(Extra.LAB, "`drkit demo`")
    sets = ("kafka", "cassandra") if store is StoreChoice.CASSANDRA else ("kafka",)
    ensure(*sets)  # before the clock starts: the first time it downloads
    folder = directory or Path(tempfile.mkdtemp(prefix="drkit-demo-"))
    script = Script(rate=rate, kill_after=kill_after, store=store.value, brokers=brokers)
    began = time.monotonic()
    error = None
    with Picture(run.writer.log) as picture:
        story = Story(folder, script, picture)
        try:
            story.play()
        except DrkitError as failure:
            error = str(failure)
        finally:
            story.close()
            if not keep:
                _take_down(story.lab, folder, remove=directory is None)
    document = evidence_document(story.findings, story.claims, time.monotonic() - began, error)
    run.writer.emit(document, lambda console: print_evidence(console, document))
    if svg is not None:
        picture_file = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, highlight=False)
        print_evidence(picture_file, document)
        picture_file.save_svg(str(svg), title="drkit demo", code_format=_SVG_FORMAT)
    if keep:
        _say_what_next(run, story.lab, folder)
    if document["verdict"] != "held":
        run.exit(ExitCode.FAILED)


def _take_down(lab: object, folder: Path, *, remove: bool) -> None:
    from drkit.lab import Lab  # heavy, this verb's alone

    if isinstance(lab, Lab):
        lab.down()
    if remove:
        shutil.rmtree(folder, ignore_errors=True)


def _say_what_next(run: Invocation, lab: object, folder: Path) -> None:
    if lab is None:
        return
    say = run.writer.log.print
    say(f"\nThe lab is still up in {folder}. Try:", soft_wrap=True)
    say(f"  export DRKIT_CONFIG={folder / 'drkit.toml'}", soft_wrap=True)
    for line in (
        "drkit status --watch",
        "drkit doctor --to dr",
        "drkit translate --group flights-lagging",
        "drkit runs",
        "drkit failover --to dr --planned --dry-run",
        "drkit serve",
    ):
        say(f"  {line}")
    say(f"  drkit lab down --dir {folder}", soft_wrap=True)
