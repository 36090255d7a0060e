"""`drkit evidence`: export the signed evidence of a run or a drill; verify a bundle; make a key."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.wiring.context import Invocation, bounded, verb
from drkit.model.clock import now
from drkit.model.errors import ConfigError, ExitCode
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, ALLOW_REWIND
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.config.schema.config import EvidenceConfig
    from drkit.drill.results.archive import Drills
    from drkit.evidence import verifier
    from drkit.evidence.run_evidence import BundleContent
    from drkit.evidence.statements import ExportStatements

_PAGE = "report.html"
evidence_app = typer.Typer(
    no_args_is_help=True,
    help="Export the evidence of a run or a drill as a signed bundle; verify one.",
)

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run of `drkit runs`, or a drill of `drkit drill history` (`last`: the newest)."
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="A new or empty folder, or one that holds this run's bundle.")
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key", metavar="FILE", help="Sign with this private key (default: evidence.key, else one of drkit's)."
    ),
]
TrustedOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The public key (PEM) that must have signed it.")
]


@evidence_app.command("export")
@verb()
def export(
    invocation: Invocation,
    run: RunArgument,
    out: OutOption,
    key: KeyOption = None,
    witness: Annotated[str | None, typer.Option("--witness", metavar="NAME", help="Who witnessed it.")] = None,
    purpose: Annotated[
        str | None, typer.Option("--purpose", metavar="WORD", help="drill, recovery, … (default: by the run's kind).")
    ] = None,
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="Why it was run, in a sentence.")] = None,
    runbook: Annotated[
        Path | None, typer.Option("--runbook", metavar="FILE", help="The runbook that was followed.")
    ] = None,
    findings: Annotated[
        Path | None, typer.Option("--findings", metavar="FILE", help="TOML: owner, due and retest of findings.")
    ] = None,
    drills: Annotated[
        Path | None, typer.Option("--drills", help="Folder of kept drills (default: in the user's state directory).")
    ] = None,
) -> None:
    """Write the signed bundle of a run or drill, and verify it. Exits 1 where it doesn't verify, and says why."""
    from drkit.drill.results.archive import Drills, default_drills
    from drkit.evidence import verifier
    from drkit.evidence.bundle import write_bundle
    from drkit.evidence.signing import open_signer
    from drkit.evidence.statements import ExportStatements, read_findings

    settings = _settings(invocation)
    statements = ExportStatements(
        witness=witness or settings.witness,
        purpose=purpose,
        why=why,
        runbook=runbook or settings.runbook,
        findings=read_findings(findings),
    )
    content = _content(invocation, run, Drills(drills or default_drills()), statements)
    signer, made = open_signer(settings, key)
    if made is not None:
        invocation.writer.log.print(
            f"[bold]A key was made:[/] {made}. Hand out {made}.pub once, by another way than the bundles",
            soft_wrap=True,
        )
    written = write_bundle(out, content, signer)
    found = verifier.verify(out, signer.public_pem)
    document = {
        "run": written.document["run"],
        "kind": written.document["kind"],
        "verdict": written.document["verdict"],
        "folder": str(out),
        "changed": written.changed,
        "files": [
            {"name": name, "sha256": digest, "bytes": written.sizes[name]}
            for name, digest in sorted(written.digests.items())
        ],
        **_verified(found),
    }
    invocation.writer.emit(document, lambda console: _show_export(console, document, out))
    if found.problems:
        invocation.exit(ExitCode.FAILED)


@evidence_app.command("verify")
@verb(config_help="Accepted as everywhere; not needed here.")
def verify(
    invocation: Invocation,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The bundle.")],
    key: TrustedOption = None,
    anchors: Annotated[
        Path | None,
        typer.Option("--anchors", metavar="FILE", help="Heads of journals that did not come with the bundle."),
    ] = None,
) -> None:
    """Verify a bundle, as tools/verify_evidence.py does. Exits 1 where it is refused, with every reason."""
    from drkit.evidence import verifier

    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", remedy="Name the folder of a bundle")
    try:
        trusted = None if key is None else key.read_bytes()
    except OSError as error:
        raise ConfigError(f"--key: {key} can't be read: {error.strerror}", remedy="Name a PEM file") from None
    try:
        heads = None if anchors is None else verifier.read_anchors(anchors)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--anchors: {anchors} can't be read: {error}", remedy="Name a file of anchors (docs/journal.md)"
        ) from None
    own_key = key is not None and verifier.is_inside(folder, key)
    found = verifier.verify(folder, trusted, own_key=own_key, anchors=heads)
    document = {
        "run": found.run,
        "kind": found.kind,
        "verdict": found.verdict,
        "folder": str(folder),
        **_verified(found),
    }
    invocation.writer.emit(document, lambda console: _show_verified(console, document))
    if found.problems:
        invocation.exit(ExitCode.FAILED)


@evidence_app.command("key")
@verb(config_help="Accepted as everywhere; not needed here.")
def key_pair(
    invocation: Invocation,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The private key; FILE.pub is the public one.")],
) -> None:
    """Make an Ed25519 key pair for signing bundles. Existing files are not overwritten."""
    from drkit.evidence import verifier
    from drkit.evidence.signing import make_key

    public = make_key(out)
    _, keyid = verifier.public_key(public.read_bytes())
    document = {"private_key": str(out), "public_key": str(public), "key": keyid}
    invocation.writer.emit(
        document,
        lambda console: console.print(
            f"{escape(str(out))} signs (keep it secret); {escape(str(public))} verifies. Key {keyid}",
            soft_wrap=True,
        ),
    )


@evidence_app.command("approve")
@verb()
def approve(
    invocation: Invocation,
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help="A plan file of --out, or a digest that --dry-run shows.")
    ],
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key of the operator who approves.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The approval to write; none is overwritten.")],
    hours: Annotated[
        float, typer.Option("--valid-hours", min=0.1, max=168, callback=bounded, help="How long it holds.")
    ] = 12,
    accept_unfenced: Annotated[bool, typer.Option(ACCEPT_UNFENCED, help="Even without a fence.")] = False,
    accept_loss: Annotated[
        str | None,
        typer.Option(ACCEPT_LOSS, metavar="N|unknown", help="Even with this loss; a plan file has its own."),
    ] = None,
    accept_salvage_only: Annotated[
        bool, typer.Option(ACCEPT_SALVAGE_ONLY, help="Even if some records will be in the salvage only.")
    ] = False,
    allow_rewind: Annotated[bool, typer.Option(ALLOW_REWIND, help="Even if positions move back.")] = False,
) -> None:
    """Approve a plan where `approvals` are required: sign its digest, and the flags that it may be executed with."""
    from drkit.cli.verbs.failover.failover import accepted_loss
    from drkit.config.schema.config import EvidenceConfig
    from drkit.evidence.approvals import approval_of
    from drkit.evidence.signing import open_signer

    given = {ACCEPT_UNFENCED: accept_unfenced, ACCEPT_SALVAGE_ONLY: accept_salvage_only, ALLOW_REWIND: allow_rewind}
    flags = {flag for flag, there in given.items() if there}
    flags |= set() if accept_loss is None else {f"{ACCEPT_LOSS} {accepted_loss(accept_loss)}"}
    digest, told = _plan_to_approve(plan, flags)
    signer, _ = open_signer(EvidenceConfig(), key)
    envelope, said = approval_of(digest, flags, signer, now(), timedelta(hours=hours))
    try:
        with out.open("xb") as file:
            file.write(envelope)
    except OSError as error:
        raise ConfigError(f"--out: {out} can't be written: {error.strerror or error}", remedy="Name another") from None
    document = {"approval": str(out), "plan": told, **said}
    invocation.writer.emit(document, lambda console: _show_approved(console, document))


def _plan_to_approve(plan: str, flags: set[str]) -> tuple[str, str | None]:
    """The digest of a plan, and in words what it is; its own flags are added."""
    from drkit.cli.wiring.site_outcome import read_if_site_plan
    from drkit.failover.plan.approvals import flags_of
    from drkit.failover.plan.failover_plan import read_plan

    if re.fullmatch("[0-9a-f]{64}", plan):
        return plan, None
    site = read_if_site_plan(Path(plan))
    plans = (read_plan(Path(plan)),) if site is None else site.plans
    for each in plans:
        flags |= flags_of(each, ())
    moves = [
        f"{each.kind} of {each.link} to {each.target.alias} (cluster {each.target.cluster_id}), {each.mode}: "
        f"{counted(len(each.placed), 'position')}"
        for each in plans
    ]
    return plans[0].digest if site is None else site.digest, "; ".join(moves)


def _show_approved(console: Console, document: dict[str, Any]) -> None:
    what = document["plan"] or f"the plan {document['digest']}"
    flags = f", with {' '.join(document['allows'])}" if document["allows"] else ""
    console.print(f"approved: {escape(what)}{escape(flags)}", soft_wrap=True)
    console.print(
        f"  {escape(document['approval'])} holds until {document['until']}; signed by key {document['key'][:16]}…",
        soft_wrap=True,
    )


def _settings(invocation: Invocation) -> EvidenceConfig:
    """`[evidence]`; nothing of it where there is no configuration: a drill's evidence needs none."""
    from drkit.config.load import find_config
    from drkit.config.schema.config import EvidenceConfig

    if invocation.config_path is None and not find_config(None).exists():
        return EvidenceConfig()
    return invocation.config.evidence


def _content(invocation: Invocation, run: str, drills: Drills, statements: ExportStatements) -> BundleContent:
    from drkit.evidence.drill_evidence import gather_drill
    from drkit.evidence.run_evidence import gather_run

    if run == "last" or run.startswith("drill-"):
        return gather_drill(drills, drills.find(run), statements)
    return gather_run(invocation.config, invocation.store(), run, statements)


def _verified(found: verifier.Verified) -> dict[str, Any]:
    return {"verified": not found.problems, "key": found.key, "problems": found.problems, "notes": found.notes}


def _show_export(console: Console, document: dict[str, Any], out: Path) -> None:
    word = "written" if document["changed"] else "already there, unchanged"
    console.print(
        f"{document['kind']} {document['run']}: {counted(len(document['files']), 'file')} in "
        f"{escape(str(out))} {word}; read {escape(str(out / _PAGE))}",
        soft_wrap=True,
    )
    _show_verified(console, document)


def _show_verified(console: Console, document: dict[str, Any]) -> None:
    for problem in document["problems"]:
        console.print(f"[bold red]refused:[/] {escape(problem)}", soft_wrap=True)
    for note in document["notes"]:
        console.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)
    if document["verified"]:
        console.print(
            f"[green]verified:[/] {document['kind']} {document['run']}, verdict {document['verdict']}, signed by key "
            f"{document['key']}",
            soft_wrap=True,
        )


def register(app: typer.Typer) -> None:
    """Add `drkit evidence`."""
    app.add_typer(evidence_app, name="evidence")
