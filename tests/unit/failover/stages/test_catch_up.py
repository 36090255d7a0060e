"""A run that waits for the backlog: what ends the wait, and what a look without an answer means."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.failover.context.state_machine import Mode
from drkit.failover.fencing.cluster_fence import FenceProof
from drkit.failover.stages import fence_stages
from drkit.failover.stages.fence_stages import Fence
from drkit.model.errors import NotShown, Refused, Unreachable
from tests.unit.failover.plan.test_plan import a_world
from tests.unit.failover.plan.worlds import Log, world

ENDS = {"t:0": 100}


@dataclass
class Waiting:
    """A run whose looks come one after the other; the last one lasts. `looked`: how many there were."""

    looks: list[Any]
    most: int = 9
    looked: int = 0
    link: Any = None
    estate: Any = None
    said: list[str] = field(default_factory=list)

    def say(self, text):
        self.said.append(text)

    def look(self, *_args, **_more):
        self.looked += 1
        return self.looks[min(self.looked, len(self.looks)) - 1]

    def wait(self, done, _seconds):
        return any(done() for _ in range(self.most))


def look(*, left=0, mirror="a worker", reason=None, denied=None):
    world = a_world(source_reachable=True)
    source = replace(world.source, reachable=reason is None, reason=reason, denied=denied)
    return replace(world, source=source, mirror=mirror, notes=(str(left),))


SILENT = look(reason="connection timed out")


@pytest.fixture
def caught_up(monkeypatch):
    def run(*looks, silent_seconds=1e9, accept_loss=None):
        waiting = Waiting(list(looks))
        monkeypatch.setattr(fence_stages, "observe", waiting.look)
        monkeypatch.setattr(fence_stages, "behind", lambda seen, _ends: ["t:0 (5)"] if seen.notes != ("0",) else [])
        monkeypatch.setattr(fence_stages, "SILENT_SECONDS", silent_seconds)
        stage = Fence("primary", "dr", Mode.UNPLANNED, True, catch_up=True, accept_loss=accept_loss)
        return stage._catch_up(waiting, ENDS), waiting.looked

    return run


def test_one_look_without_an_answer_does_not_end_the_wait(caught_up):
    said, looked = caught_up(look(left=5), SILENT, SILENT, look(left=5), look())
    assert said == "the mirror has copied everything that primary held; "
    assert looked == 5


def test_a_source_that_stays_silent_is_given_up(caught_up):
    said, looked = caught_up(look(left=5), SILENT, silent_seconds=0)
    assert said == "primary stopped answering: records that were not mirrored are lost; "
    assert looked == 2


def test_a_source_that_falls_silent_as_the_time_is_up_is_looked_at_again(caught_up):
    said, _looked = caught_up(*[look(left=5)] * 8, SILENT, SILENT, look())
    assert said == "the mirror has copied everything that primary held; "


def test_a_source_that_answers_between_is_not_gone_by_its_last_look(caught_up):
    looks = [look(left=5), look(left=5), SILENT]
    with pytest.raises(Refused, match=r"an unknown number of records of primary would be lost although it answers"):
        caught_up(*looks * 8, silent_seconds=1e9)


@pytest.mark.parametrize(
    ("reachable", "refused", "gone", "waits"),
    [
        (True, False, True, True),  # one look without an answer says nothing
        (False, False, False, True),
        (False, False, True, False),
        (False, True, False, False),
    ],
)
def test_a_source_that_was_silent_when_the_move_was_planned_is_waited_for_if_it_answers_now(
    reachable, refused, gone, waits
):
    context = SimpleNamespace(estate=SimpleNamespace(reach=lambda _alias: SimpleNamespace(gone=gone)))
    stage = Fence("primary", "dr", Mode.UNPLANNED, reachable, refused, catch_up=True)
    assert stage._waits(context) is waits
    assert not replace(stage, catch_up=False)._waits(context)


@pytest.mark.parametrize("mirror", ["a worker", None])
def test_what_answers_and_refuses_drkit_is_not_gone(caught_up, mirror):
    denied = look(left=5, mirror=mirror, reason="password refused", denied="Correct the password")
    with pytest.raises(Refused, match=r"an unknown number of records .* although it answers .*password refused"):
        caught_up(look(left=5), denied, silent_seconds=0)


def test_ends_that_are_not_shown_once_are_asked_for_again(monkeypatch):
    answers = [Unreachable("no answer", remedy=""), Unreachable("no answer", remedy=""), ENDS]

    def ends_of(_context, _link, *, silent):
        silent["t:0"] = "no leader"
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(fence_stages, "ends_of", ends_of)
    waiting = SimpleNamespace(link=None, wait=Waiting([]).wait)
    assert fence_stages._shown_ends(waiting, {}) == ENDS
    answers[:] = [Unreachable("no answer", remedy="")] * 9
    assert fence_stages._shown_ends(waiting, {}) is None
    answers[:] = [NotShown("denied", remedy="")]
    with pytest.raises(NotShown):
        fence_stages._shown_ends(waiting, {})


@pytest.mark.parametrize(
    ("begun", "accepted", "proven", "said"),
    [
        (False, None, True, None),
        (False, 12, True, "t:0 (12) came after the link was sealed, and is lost; "),
        (True, None, True, "t:0 (12) came after the link was sealed, and is lost; "),
        (False, None, False, ""),  # that it isn't fenced was accepted
    ],
)
def test_a_run_that_sealed_the_link_waits_no_more_and_names_a_way_that_is_open(
    monkeypatch, begun, accepted, proven, said
):
    log = Log("r" * 112, through=100)
    seen = world([replace(log.view(), source_end=112)], [], source_reachable=True)
    monkeypatch.setattr(fence_stages, "observe", lambda *_given, **_more: seen)
    stage = Fence("primary", "dr", Mode.UNPLANNED, True, catch_up=True, accept_loss=accepted)
    context = SimpleNamespace(estate=None, link=None, run="RUN", commit_begun=begun)
    proof = FenceProof(proven=proven, reason="", ends={"t:0": 112} if proven else None)
    if said is None:
        with pytest.raises(Refused, match=r"12 records of primary would be lost .*t:0 \(12\)") as refused:
            stage._since_sealed(context, proof)
        assert "drkit resume RUN --cancel" in refused.value.remedy
    else:
        assert stage._since_sealed(context, proof) == said
