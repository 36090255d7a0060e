"""Earlier audits as metrics: the last of each link, what it found, how long ago."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from drkit.cli.wiring.audit_journal import Failure, keep_run, new_run
from drkit.model.audit.audit_result import AuditResult, Counts, PlacementBasis
from drkit.model.errors import Unreachable
from drkit.model.topology import LinkId
from drkit.observe.audit_history import last_audits
from drkit.observe.metrics.status_metrics import LastAuditCollector
from drkit.store import open_store

FIRST = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
CLEAN = Counts(source_records=5, target_records=5, matched=5)
BAD = Counts(source_records=5, target_records=3, matched=3, lost=2)


def result(link: str, counts: Counts) -> AuditResult:
    return AuditResult(LinkId.parse(link), counts, (), (), 0, "/x/findings.parquet", PlacementBasis.MAPPING, FIRST, 1.0)


def test_the_last_audit_of_each_link_is_a_metric():
    store = open_store("sqlite:///:memory:")
    for hour, results, failures in (
        (0, [result("a->b", CLEAN), result("b->c", BAD)], []),
        (1, [result("a->b", BAD)], []),
        (2, [result("x->y", CLEAN)], [Failure(LinkId("b", "c"), Unreachable("b does not answer"))]),
        (3, [result("d->c", CLEAN)], []),  # the way back of c->d
    ):
        at = FIRST + timedelta(hours=hour)
        keep_run(store, new_run(at), results, failures, at)

    found = {each.link: each for each in last_audits(store, ["a->b", "b->c", "c->d", "never->was"])}

    assert {link: (each.verdict, each.began.hour) for link, each in found.items()} == {
        "a->b": ("deviated", 5),
        "b->c": ("failed", 6),
        "d->c": ("clean", 7),
    }
    verdict, age, records = LastAuditCollector(lambda: list(found.values())).collect()
    told = {tuple(sample.labels.values()): sample.value for family in (verdict, records) for sample in family.samples}
    assert told["a->b", "deviated"] == told["b->c", "failed"] == told["d->c", "clean"] == 1
    assert told["a->b", "clean"] == 0
    assert (told["a->b", "lost"], told["a->b", "matched"], told["d->c", "lost"]) == (2, 3, 0)
    assert ("b->c", "lost") not in told  # nothing is known of it
    assert len(age.samples) == 3
    store.close()


def test_an_audit_of_a_part_that_found_nothing_says_nothing_of_the_rest():
    """An alert on lost records of one topic cleared where another topic was audited."""
    store = open_store("sqlite:///:memory:")
    part = replace(result("a->b", CLEAN), whole=False)
    for hour, found in enumerate((result("a->b", BAD), part, replace(result("x->y", CLEAN), whole=False))):
        at = FIRST + timedelta(hours=hour)
        keep_run(store, new_run(at), [found], [], at)
    assert [(each.link, each.verdict) for each in last_audits(store, ["a->b", "x->y"])] == [("a->b", "deviated")]
    worse = replace(result("x->y", BAD), whole=False)
    keep_run(store, new_run(FIRST + timedelta(hours=9)), [worse], [], FIRST + timedelta(hours=9))
    assert [(each.link, each.verdict) for each in last_audits(store, ["x->y"])] == [("x->y", "deviated")]
    store.close()


def test_without_a_store_that_answers_there_are_no_samples():
    def look():
        raise Unreachable("the store does not answer")

    assert [family.samples for family in LastAuditCollector(look).collect()] == [[], [], []]
