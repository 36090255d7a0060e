"""Audits of links that filter and transform: the target is compared with what the link makes of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from drkit.audit.salvage.salvage import salvage
from drkit.model.audit.audit_result import AuditRequest, TopicChoice, Verdict
from drkit.model.errors import ConfigError, Refused
from drkit.model.record import Record as Given
from drkit.model.topology import Link
from tests.support.audits.damage import STAMP, Bench, Record, Stored, damaged, dense, records, seeded
from tests.support.collection.sampling import sampled
from tests.support.links import callables

pytestmark = [pytest.mark.lab, pytest.mark.spark]

CALLABLES = "tests.support.links.callables"
KINDS = ("lost", "corrupted", "duplicated", "foreign", "moved", "swapped")


def altering(bench: Bench, **callables_: str) -> Link:
    return replace(bench.link, **{kind: f"{CALLABLES}:{name}" for kind, name in callables_.items()})


def as_altered(topic: str, source: Sequence[Stored]) -> list[Stored]:
    """What `keeps_two_of_three` and then `redacts` make of these."""
    found = []
    for each in source:
        offset, record = each.offset, each.record
        given = Given(topic, 0, offset, record.stamp, record.key, record.value, record.headers)
        if callables.keeps_two_of_three(given) and (made := callables.redacts(given)) is not None:
            found.append(Stored(offset, Record(made.key, made.value, record.stamp, tuple(made.headers))))
    return found


def found(result) -> set[tuple[str, int | None, int | None]]:
    return {(each.kind.value, each.source_offset, each.target_offset) for each in result.findings}


@pytest.mark.parametrize("full", sampled("damage on an altering link", [False, True], 1))
def test_damage_on_a_filtered_and_transformed_link_is_found_exactly(bench, audit, unique_name, full):
    link = altering(bench, filter="keeps_two_of_three", transform="redacts")
    topic, clean = bench.create(unique_name), bench.create(f"{unique_name}.clean")
    secret = [
        replace(each, value=b"secret %d" % n) if n % 10 == 4 else each
        for n, each in enumerate(records(600, rng=seeded(1)))
    ]
    for each in (topic, clean):
        bench.produce("primary", each, 0, secret, batched=50)
    altered = as_altered(topic, bench.read("primary", topic, 0))
    assert len(altered) == 360
    damage = damaged(altered, dict.fromkeys(KINDS, 3), seeded(2))
    bench.produce("dr", topic, 0, damage.target, batched=50)
    bench.produce("dr", clean, 0, [each.record for each in altered])
    for each in (topic, clean):
        bench.remember(each, {0: dense(altered)})

    result = audit(topic, clean, link=link, full=full)

    damage.explains(found(result))
    of_clean = next(each.counts for each in result.partitions if each.topic == clean)
    assert (of_clean.source_records, of_clean.target_records, of_clean.matched) == (360, 360, 360)
    assert result.incomplete == ()


def test_where_a_callable_has_no_answer_nothing_is_claimed_and_the_rest_is_found(bench, audit, unique_name):
    source = records(60, rng=seeded(3))
    topics = {}
    for name in ("answers_by_chance", "raises_on_some"):
        topic = topics[name] = bench.create(f"{unique_name}.{name}")
        bench.produce("primary", topic, 0, [*source[:20], Record(b"odd", b"odd", STAMP), *source[20:]], batched=10)
        strange = Record(b"whatever", b"it was", STAMP)
        bench.produce("dr", topic, 0, [*source[:7], strange, *source[8:20], strange, *source[20:]])
        bench.remember(topic, {0: {offset: offset for offset in range(61)}})
    for name, why in (("answers_by_chance", "returns another result"), ("raises_on_some", "raised ValueError: no way")):
        result = audit(topics[name], link=altering(bench, transform=name))
        assert found(result) == {("corrupted", 7, 7)}
        assert (result.counts.source_records, result.counts.matched) == (60, 59)
        assert result.verdict is Verdict.DEVIATED
        (reason,) = result.incomplete
        assert "from offset 20 to 20" in reason
        assert why in reason
        assert f"{CALLABLES}:{name}" in reason


def test_what_is_unavailable_says_why_and_what_to_do(bench, audit, spark, unique_name, tmp_path):
    topic = bench.create(unique_name)
    link = altering(bench, filter="keeps_most")
    with pytest.raises(Refused, match="--from-digests is unavailable") as refused:
        audit(topic, link=link, from_digests=True)
    assert "without --from-digests" in (refused.value.remedy or "")
    with pytest.raises(Refused, match="other writers"):
        audit(topic, link=replace(bench.link, provenance=True, shares_target=True))
    with pytest.raises(ConfigError, match="can't be imported"):
        audit(topic, link=replace(bench.link, filter="not_there_at_all:f"))
    request = AuditRequest(link, str(tmp_path / "kept"), (TopicChoice(topic),))
    with pytest.raises(Refused, match="filter alters") as refused:
        salvage(request, bench.store, bench.config, spark)
    assert "drkit audit --link 'primary->dr'" in (refused.value.remedy or "")
