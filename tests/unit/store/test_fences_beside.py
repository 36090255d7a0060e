"""Which fences of other links keep a link's clients out of a cluster, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drkit.failover.fencing.deny_rules import closing_rules
from drkit.model.clock import now
from drkit.model.offsets import GroupPosition
from drkit.model.runs import FENCES, PART_OF, FenceMethod, FenceRecord, FenceState, RunSummary, mark_of, record_text
from drkit.model.topics.acls import Acl, fence_rules_kind
from drkit.model.topology import Link, LinkId, TopicPolicy
from drkit.observe.poll_problems import fence_problem
from drkit.store import open_store
from drkit.store.api import Store
from drkit.store.fences_beside import command_fences, fences_beside, names_closed, rules_wanted

AT = now()
BERLIN = Link(LinkId("hub", "berlin"), ("a[.].*", "both"))
PARIS = Link(LinkId("hub", "paris"), ("b[.].*", "both"), policy=TopicPolicy.PREFIX)
LINKS = [BERLIN.id, PARIS.id]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Groups mine and shared read by hub->berlin."""
    with closing(open_store(f"sqlite:///{tmp_path / 'drkit.db'}")) as opened:
        captured = [GroupPosition(group, "a.t", 0, 3, "", AT) for group in ("mine", "shared")]
        opened.put_group_positions(BERLIN.id, captured)
        yield opened


def fence(
    store: Store,
    link: Link,
    rules: frozenset[Acl],
    *,
    cluster: str = "hub",
    state: FenceState = FenceState.CLOSED,
    method: FenceMethod = FenceMethod.ACL,
) -> None:
    record = FenceRecord(cluster, 7, "run", state, method, AT, proven=True)
    store.put_notes(link.id, FENCES, {record.name: record_text(record)})
    store.put_notes(link.id, fence_rules_kind(cluster), dict.fromkeys([rule.key for rule in rules], "7"))


def test_rules_on_topics_and_groups_in_common_keep_out_the_clients_of_both(store: Store) -> None:
    allowing = Acl("topic", "both", "literal", "User:*", "*", "all", "allow")
    rules = closing_rules(["b.t", "both"], ["shared", "theirs"]) | {mark_of(PARIS), allowing}
    fence(store, PARIS, rules)
    found = fences_beside(store, BERLIN, LINKS, "hub", None)
    assert found.keys() == {PARIS.id}
    assert found[PARIS.id].denied == closing_rules(["both"], ["shared"])
    assert not found[PARIS.id].by_command
    assert names_closed(found.values()) == "both, group shared"
    assert rules_wanted(store, [PARIS.id], "hub") == rules
    assert rules_wanted(store, [BERLIN.id], "hub") == frozenset()

    assert fences_beside(store, BERLIN, LINKS, "hub", closing_rules(["b.t"], [])) == {}, (
        "they are on the cluster no more"
    )
    problem = fence_problem(store, BERLIN, None, rules, AT, LINKS)
    assert problem is not None
    assert "hub is closed to its clients by rules (both, group shared), for hub->paris" in problem.reason
    assert "drkit fence --lift --cluster hub --yes --link 'hub->paris'" in problem.remedy
    assert fence_problem(store, BERLIN, None, frozenset(), AT, LINKS) is None
    assert fences_beside(store, PARIS, LINKS, "hub", None) == {}, "it is its own"
    assert fences_beside(store, PARIS.reversed(), LINKS, "hub", None) == {}


def test_the_remedy_of_a_fence_names_the_site_run_that_continues_the_one_that_put_it(store: Store) -> None:
    fence(store, BERLIN, closing_rules(["both"], []))
    store.put_run(RunSummary("site", "site", "fenced", AT, AT))
    store.put_run(RunSummary("run", "failover", "fenced", AT, AT, f"{BERLIN.id} planned to berlin{PART_OF}site"))
    problem = fence_problem(store, BERLIN, None, None, AT, LINKS)
    assert problem is not None
    assert "drkit resume site continues it, drkit abandon run gives it up" in problem.remedy


@pytest.mark.parametrize(
    ("state", "method"), [(FenceState.OPEN, FenceMethod.ACL), (FenceState.PENDING, FenceMethod.NONE)]
)
def test_a_fence_that_does_not_stand_keeps_nobody_out(store: Store, state: FenceState, method: FenceMethod) -> None:
    fence(store, PARIS, closing_rules(["both"], []), state=state, method=method)
    assert fences_beside(store, BERLIN, LINKS, "hub", None) == {}
    assert rules_wanted(store, LINKS, "hub") == frozenset()


def test_a_command_keeps_out_everybody(store: Store) -> None:
    fence(store, PARIS, frozenset(), method=FenceMethod.COMMAND)
    found = fences_beside(store, BERLIN, LINKS, "hub", frozenset())
    assert [each.by_command for each in found.values()] == [True]
    assert command_fences(store, LINKS, "hub").keys() == {PARIS.id}
    assert fences_beside(store, BERLIN, LINKS, "berlin", frozenset()) == {}


def test_topics_have_their_names_on_the_cluster_that_is_fenced(store: Store) -> None:
    """What a link with prefixes brings to its target is closed there by another link of that target."""
    lyon = Link(LinkId("lyon", "paris"), (".*",))
    fence(store, lyon, closing_rules(["both", "hub.both"], []), cluster="paris")
    found = fences_beside(store, PARIS, [*LINKS, lyon.id], "paris", None)
    assert found[lyon.id].denied == closing_rules(["hub.both"], [])
