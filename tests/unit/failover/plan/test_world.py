"""What a look at the world has learned."""

from dataclasses import replace

from drkit.failover.snapshot.snapshot import ClusterView
from tests.unit.failover.plan.worlds import Log, position, world


def test_news_are_positions_that_the_store_does_not_hold_so():
    stood = [position(3, group="a"), position(5, group="b"), position(7, group="c")]
    moved = stood[1]._replace(offset=6)
    marked = stood[2]._replace(metadata="other")
    came = position(1, group="d")
    found = replace(world([Log("r" * 10).view()], [stood[0], moved, marked, came], source_reachable=True), stored=stood)
    assert found.news() == [moved, marked, came]


def test_a_source_that_did_not_answer_has_no_news():
    assert world([Log("r" * 10).view()], [position(3)], positions_live=False).news() == []


def test_of_a_source_whose_coordinators_answer_in_part_only_those_groups_count_as_read():
    moved, silent = position(6, group="a"), position(5, group="b")
    seen = world([Log("r" * 10).view()], [moved, silent], source_reachable=True, positions_live=False)
    seen = replace(seen, read_groups=frozenset({"a"}), unread_reason="part of the group coordinators is down")
    assert seen.news() == [moved]
    assert (seen.is_live("a", moved.tp), seen.is_live("b", silent.tp)) == (True, False)


def test_a_target_that_shows_too_little_is_not_called_gone():
    denied = ClusterView(
        "dr", reachable=False, reason="it does not show drkit the topic t", denied="Grant DESCRIBE on t"
    )
    refused = denied.refusal()
    assert "does not answer" not in str(refused)
    assert "dr is up" in refused.meaning
    assert refused.remedy == "Grant DESCRIBE on t"
    assert "does not answer" in ClusterView("dr", reachable=False, reason="timeout").refusal().what
