"""Whether a fence on which a run rests has been taken away since: seen before the run goes on."""

from types import SimpleNamespace

import pytest

from drkit.failover.run import service
from drkit.model.errors import Unreachable
from drkit.model.topics.acls import Acl, fence_rules_kind, others_rules_kind
from drkit.model.topology import Link, LinkId

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
RULE = Acl("topic", "t", "literal", "User:*", "*", "write", "deny")


def estate(kind, rules):
    def admin(_alias, *, may_be_gone):
        assert may_be_gone
        if rules is None:
            raise Unreachable("no answer", remedy="")
        return SimpleNamespace(acls=lambda: frozenset(rules), cluster_id=lambda: None)

    notes = {kind: {RULE.key: "1"}}
    return SimpleNamespace(store=SimpleNamespace(notes=lambda _link, kind: notes.get(kind, {})), admin=admin)


@pytest.mark.parametrize("kind", [fence_rules_kind("primary"), others_rules_kind("primary")])
@pytest.mark.parametrize(("rules", "gone"), [({RULE}, False), (set(), True), (None, False)])
def test_rules_of_the_fence_and_those_of_others_on_which_it_rests_are_looked_for(kind, rules, gone, monkeypatch):
    monkeypatch.setattr(service, "check_source_cluster", lambda *_given: None)
    assert service._rules_are_gone(estate(kind, rules), LINK, "primary") is gone


def test_without_rules_nothing_is_asked():
    assert not service._rules_are_gone(estate("another", None), LINK, "primary")
