"""The measurements (`bench/clients.json`), and their tables in docs/clients.md: `python -m bench.clients.table`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from bench.processes import ROOT
from bench.report import markdown


@dataclass(frozen=True, slots=True)
class Waited:
    """The measurements of one client in one disaster.

    `finds_by`: how it finds the cluster: `dns`, `address`, or, started again, by a directory's kind; `read_seconds`,
    `write_seconds`: from the disaster to its first good read and write on dr; None: not within the limit.
    `read_again`, `never_read`: records, by what its group saw and what dr holds; None where it read nothing on dr.
    `not_run`: why it was not measured.
    """

    kind: str
    settings: str
    finds_by: str
    restarted: bool
    read_seconds: float | None = None
    write_seconds: float | None = None
    read_again: int | None = None
    never_read: int | None = None
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Disaster:
    """One disaster with all its clients.

    `way`: `killed` or `vanished`; `published_seconds`: from the disaster to when the directory named dr;
    `failover_seconds`: to the end of `drkit failover`; `limit_seconds`: how long the run waited for clients.
    """

    way: str
    finds_by: str
    published_seconds: float
    failover_seconds: float
    limit_seconds: float
    clients: Sequence[Waited]


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run. `titles`, `settings`: of each kind; `not_run`: what this machine lacks."""

    machine: Mapping[str, str | int | float]
    titles: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Mapping[str, str | int]]]
    not_run: Mapping[str, str]
    disasters: Sequence[Disaster] = ()

    def write(self, path: Path) -> None:
        """Write the results."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `write` wrote."""
        return TypeAdapter(cls).validate_json(path.read_bytes())


RESULTS = ROOT / "bench" / "clients.json"
PAGE = ROOT / "docs" / "clients.md"
_BEGIN, _END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
_STAYS = ("dns", "address")
_Disasters = dict[tuple[str, str], Disaster]


def tables(results: Results) -> str:
    """All measurements, as Markdown."""
    disasters = {(each.way, each.finds_by): each for each in results.disasters}
    ways = list(dict.fromkeys(each.way for each in results.disasters))
    parts = [_machine(results), _never_restarted(results, disasters, ways), _restarted(results, disasters, ways)]
    parts += [_kept(results), _not_run(results)]
    return "\n".join(part for part in parts if part)


def page_with(page: str, measured: str) -> str:
    """The page, with these tables instead of its own."""
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{measured}\n{rest[rest.index(_END) :]}"


def _machine(results: Results) -> str:
    machine = results.machine
    return (
        f"One run of {machine['at']}: {machine['cores']} cores ({machine['cpu']}), brokers and clients on them, load"
        f" average {machine['load_before']} before it began; Kafka {machine['kafka']}, Java {machine['java']}.\n"
    )


def _never_restarted(results: Results, disasters: _Disasters, ways: list[str]) -> str:
    """Clients that are never restarted: a column for each way to lose primary, and to find dr."""
    columns = [(way, by) for way in ways for by in _STAYS if (way, by) in disasters]
    heads = [f"{way}, {'a name in DNS' if by == 'dns' else 'an address that moves'}" for way, by in columns]
    rows = [
        [title, settings, *(_cell(disasters[each], kind, settings, each[1]) for each in columns)]
        for kind, title in results.titles.items()
        for settings in results.settings[kind]
    ]
    return _table(["client, never restarted", "settings", *heads], [disasters[each] for each in columns], rows)


def _restarted(results: Results, disasters: _Disasters, ways: list[str]) -> str:
    """Clients that a supervisor restarts by what a directory says: a column for each way to lose primary."""
    found = {way: disasters[way, "restart"] for way in ways if (way, "restart") in disasters}
    clients = dict.fromkeys(
        (one.kind, one.settings, one.finds_by) for disaster in found.values() for one in disaster.clients
    )
    rows = [[results.titles[one[0]], one[2], *(_cell(each, *one) for each in found.values())] for one in clients]
    return _table(["client, started again", "by", *found], list(found.values()), rows)


def _table(heads: list[str], disasters: list[Disaster], rows: list[list[str]]) -> str:
    if not disasters:
        return ""
    published = ["*dr published*", "", *(f"*{each.published_seconds:.1f}*" for each in disasters)]
    return markdown(heads, [published, *rows], len(heads))


def _cell(disaster: Disaster, kind: str, settings: str, by: str) -> str:
    found = [one for one in disaster.clients if (one.kind, one.settings, one.finds_by) == (kind, settings, by)]
    if not found or found[0].not_run is not None:
        return "not run"
    return f"{_seconds(found[0].read_seconds, disaster)} / {_seconds(found[0].write_seconds, disaster)}"


def _seconds(seconds: float | None, disaster: Disaster) -> str:
    return f"**not within {disaster.limit_seconds:.0f}**" if seconds is None else f"{seconds:.1f}"


def _all(results: Results) -> Iterable[Waited]:
    return (one for disaster in results.disasters for one in disaster.clients)


def _kept(results: Results) -> str:
    read = [one for one in _all(results) if one.never_read is not None]
    never = sum(one.never_read or 0 for one in read)
    again = max((one.read_again or 0 for one in read), default=0)
    return (
        f"Of {len(read)} groups that read on dr, records that a group passed over: {never}; records that one read again"
        f": {again} at most.\n"
    )


def _not_run(results: Results) -> str:
    reasons = dict(results.not_run)
    reasons |= {f"{results.titles[one.kind]} by {one.finds_by}": one.not_run for one in _all(results) if one.not_run}
    return "".join(f"- Not run: {what}: {why}.\n" for what, why in reasons.items())


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), tables(Results.load(RESULTS))), encoding="utf-8")
    sys.exit(0)
