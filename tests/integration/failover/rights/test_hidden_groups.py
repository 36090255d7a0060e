"""A group that the source lists, and whose offsets drkit may not read there, is taken from where it was captured; that
is said, with a bound of what it reads again, and no planned move begins over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drkit.failover.context.state_machine import Mode
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.topics.acls import Acl
from tests.support.clusters.secured import put
from tests.support.commands.rights import Grants, as_exact, printed
from tests.support.links.estates import OwnLink, mirror, texts

pytestmark = pytest.mark.lab


@pytest.fixture
def exact(own: OwnLink, secure_lab: Lab, grants: Grants) -> Iterator[OwnLink]:
    """The same link as the user `exact`, who has the rights of all commands and no other."""
    mine = as_exact(own, secure_lab)
    grants.give(printed(mine))
    yield mine
    mine.store.close()


def test_a_group_whose_offsets_are_hidden_is_not_read_live(own: OwnLink, exact: OwnLink) -> None:
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("first", 500))
    hidden = own.commit("primary", "billing", topic, {0: 100})
    shown = own.commit("primary", "shipping", topic, {0: 100})
    mirror(exact)
    rule = Acl("group", hidden, "literal", "User:exact", "*", "describe", "deny")
    put(own, "primary", rule)
    try:
        for group in ("billing", "shipping"):
            own.commit("primary", group, topic, {0: 450})
        with exact.estate() as estate:
            plan = make_plan(estate, PlanRequest("dr"))
            planned = make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED))
    finally:  # a failback of the next test looks at all groups
        with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
            admin.delete_acls([rule])
    placed = {each.group: each for each in plan.placed}
    assert (placed[shown].source_offset, placed[shown].reread) == (450, 0)
    assert (placed[hidden].source_offset, placed[hidden].reread, placed[hidden].reread_at_most) == (100, None, 400)
    assert "may have read on since its position was captured" in (placed[hidden].reason or "")
    assert any(f"drkit lacks Describe on 1 group of primary: {hidden} (to " in each for each in plan.warnings)
    (told,) = (each for each in planned.obstacles if "can't all be read" in each.what)
    assert f"offsets of {hidden}: " in told.what
    assert "grant drkit's principal DESCRIBE" in told.remedy
