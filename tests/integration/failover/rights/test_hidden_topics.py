"""A topic of the old primary that drkit may not see any more, in the middle of a planned move: somebody has opened it
behind the fence, and clients write to it. None of that may count as nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from drkit.failover.context.state_machine import Mode, State
from drkit.failover.fencing.deny_rules import closing_rules
from drkit.failover.journal.journal import StageRecord
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import resume_run, run_failover
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.topics.acls import Acl
from tests.support.clusters.secured import allow, denials, killed_at, put, verb, write
from tests.support.commands.rights import Grants, as_exact, printed
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def exact(own: OwnLink, secure_lab: Lab, grants: Grants) -> Iterator[OwnLink]:
    """The same link as the user `exact`, who has the rights of all commands and no other."""
    mine = as_exact(own, secure_lab)
    grants.give(printed(mine))
    put(own, "primary", allow(own.name, "topic", "all"))
    yield mine
    mine.store.close()


@contextmanager
def opened_and_hidden(own: OwnLink, lab: Lab, topic: str) -> Iterator[None]:
    """The fence's rule on the topic is gone, `app` writes there, and drkit doesn't see it."""
    (rule,) = closing_rules([topic], [])
    hides = Acl("topic", topic, "literal", "User:exact", "*", "describe", "deny")
    with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
        assert admin.delete_acls([rule]) == {}
        put(own, "primary", hides)
        try:
            wait_until(lambda: write(lab, "primary", topic) == "written", what="a writer of the topic")
            yield
        finally:
            admin.delete_acls([hides])


@pytest.fixture
def topics(own: OwnLink, exact: OwnLink) -> tuple[str, str]:
    """Two topics, all of them mirrored, and a group on the first."""
    seen, hidden = own.create("primary", "seen"), own.create("primary", "hidden")
    for each in (seen, hidden):
        own.produce("primary", each, texts("x", 5))
    own.commit("primary", "g", seen, {0: 1})
    mirror(exact)
    return seen, hidden


def test_what_may_have_been_written_to_a_topic_that_is_hidden_at_the_end_is_no_0(
    own: OwnLink, exact: OwnLink, topics: tuple[str, str], secure_lab: Lab
) -> None:
    _, hidden = topics
    killed_at(exact, "planned", ("verify", "outcome", "after"))
    with opened_and_hidden(own, secure_lab, hidden), exact.estate() as estate:
        result = resume_run(estate, exact.store.runs()[0].run, None)
        assert result.error is None
        assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (0, True)
        assert f"drkit can't see {hidden} on primary" in (result.evidence.rpo_reason or "")
        assert result.evidence.fenced is None
        assert f"drkit can't see {hidden} on primary" in (result.machine.facts.fence_reason or "")
        assert closing_rules([hidden], []) <= denials(own, "primary"), "it is closed again"
        assert write(secure_lab, "primary", hidden) == "TOPIC_AUTHORIZATION_FAILED"
        (link,) = verb(exact, "status", schema="status")["links"]
    told = [(each["kind"], each["topic"]) for each in link["problems"]]
    assert ("source_topic_denied", hidden) in told


@pytest.mark.parametrize("after", ["drain", "translate"])
def test_a_planned_move_that_can_t_read_a_topic_any_more_moves_nothing(
    own: OwnLink, exact: OwnLink, topics: tuple[str, str], secure_lab: Lab, after: str
) -> None:
    _, hidden = topics
    with ExitStack() as open_until_then, exact.estate() as estate:

        def watch(stage: str, record: StageRecord | None, _text: str) -> None:
            if stage == after and record is not None:
                open_until_then.enter_context(opened_and_hidden(own, secure_lab, hidden))

        result = run_failover(
            estate, make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED)), accept_unfenced=False, watch=watch
        )
    assert result.error is not None
    assert f"what primary holds of {hidden}:0" in result.error.what
    assert result.machine.state is State.CANCELLED
    assert own.committed("dr", f"{own.name}.g") == {}
