"""What is said of a cluster's fence when the mirror is let in: only what is there now."""

from types import SimpleNamespace

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.fencing import cluster_fence
from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record
from drkit.failover.fencing.deny_rules import closing_rules
from drkit.model.clock import now
from drkit.model.errors import NoAuthorizer, Refused, Unreachable
from drkit.model.runs import FENCES, FenceMethod, FenceRecord, FenceState, record_text
from drkit.model.topics.acls import fence_rules_kind
from drkit.model.topology import LinkId
from drkit.store import open_store

LINK = LinkId("primary", "dr")
RULES = closing_rules(["orders"], ["billing"])


class Probe:
    """Brokers that let drkit write, and an ordinary client or not."""

    let_in = False
    principal = "User:anybody"

    def __init__(self, _cluster, config, **_more):
        self.ordinary = config == "ordinary"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def may_write(self, topics):
        return {1: frozenset(topics) if self.let_in or not self.ordinary else frozenset()}


@pytest.fixture
def fence(monkeypatch):
    """A function that closes the primary by a method, and lets the mirror in where these ACLs are there now."""
    store = open_store("sqlite:///:memory:")
    config = Config.model_validate(
        {
            "clusters": {alias: {"bootstrap_servers": f"{alias}:1"} for alias in ("primary", "dr")},
            "store": {"url": "sqlite:///none"},
            "links": [{"source": "primary", "target": "dr"}],
        }
    )
    monkeypatch.setattr(cluster_fence, "WriteProbe", Probe)
    monkeypatch.setattr(type(config.clusters["primary"]), "writer", lambda _self: "ordinary")
    with ClusterContext(config, store) as estate:

        def admit(method, there):
            def acls():
                if isinstance(there, Exception):
                    raise there
                return there

            admin = SimpleNamespace(acls=acls, topics=lambda *_: {"orders": None})
            monkeypatch.setattr(estate, "admin", lambda _alias, **_more: admin)
            record = FenceRecord("primary", 1, "run", FenceState.CLOSED, method, now(), proven=True)
            store.put_notes(LINK, FENCES, {record.name: record_text(record)})
            if method is FenceMethod.ACL:
                store.put_notes(LINK, fence_rules_kind("primary"), {rule.key: "1" for rule in RULES})
            acting = SimpleNamespace(
                estate=estate,
                link=config.links[0].link(),
                run="run",
                lease=SimpleNamespace(check=lambda: None),
                say=print,
            )
            said = ClusterFence(acting, "primary").admit_mirror()
            return said, fence_record(store, LINK, "primary").proven

        yield admit
    store.close()


def test_a_super_user_s_mirror_is_let_in_while_the_rules_are_there(fence):
    said, proven = fence(FenceMethod.ACL, RULES)
    assert said == "primary stays closed to all but super users, of whom drkit is one"
    assert proven


@pytest.mark.parametrize(
    "there", [frozenset(), NoAuthorizer("none"), frozenset(list(RULES)[:1])], ids=["none", "no authorizer", "one"]
)
def test_rules_that_are_gone_close_nothing(fence, there):
    """Somebody removed them, or another cluster answers at the address."""
    said, proven = fence(FenceMethod.ACL, there)
    assert said.startswith("primary is open to clients: ")
    assert not proven


@pytest.mark.parametrize("let_in", [False, True])
def test_a_command_s_fence_holds_only_where_an_ordinary_client_is_turned_away_now(fence, monkeypatch, let_in):
    monkeypatch.setattr(Probe, "let_in", let_in)
    said, proven = fence(FenceMethod.COMMAND, frozenset())
    assert ("is open to clients" in said) is let_in
    assert proven is not let_in


def test_rules_that_are_not_shown_are_not_told_as_gone(fence):
    said, proven = fence(FenceMethod.ACL, Refused("primary doesn't show its ACLs"))
    assert said == "whether primary is closed to clients isn't shown: primary doesn't show its ACLs"
    assert not proven


def test_an_ordinary_client_that_gets_no_answer_shows_no_open_cluster(fence, monkeypatch):
    def silent(probe, topics):
        if probe.ordinary:
            raise Unreachable("primary does not answer")
        return {1: frozenset(topics)}

    monkeypatch.setattr(Probe, "may_write", silent)
    said, proven = fence(FenceMethod.COMMAND, frozenset())
    assert said.startswith("whether primary is closed to clients isn't shown")
    assert not proven
