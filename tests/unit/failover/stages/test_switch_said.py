"""What a failback's switch says: also where it is resumed, and where the cluster left behind is slow.

The store is a real one; no cluster is asked.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from drkit.failover.context.interfaces import Salvaged
from drkit.failover.context.state_machine import Mode
from drkit.failover.failback.removing_settings import KeptSetting
from drkit.failover.stages import failback_stages
from drkit.failover.stages.failback_stages import ReverseLink
from drkit.model.errors import PartlyDone, Unreachable
from drkit.model.link_state import Direction
from drkit.model.topics.standby import SOURCE_SETTINGS
from drkit.model.topology import TopicPartition
from tests.unit.failover.stages import test_stood_still
from tests.unit.failover.stages.test_stood_still import BACK, LINK, TOPIC, decided

context = test_stood_still.context
SWITCH = ReverseLink(LINK, "primary:9092", "primary", (TOPIC,))


@pytest.fixture
def switching(context, monkeypatch, tmp_path):
    """A switch that finds late writes on dr, and a group that has not read everything; `stops`: where its attempts
    stop, one after the other. Returns what one says."""
    decided(context.estate.store, LINK, Direction.REVERSED)
    stops, established = [], [context.facts]

    def stopping(name, result):
        def call(*_, **__):
            if stops and stops[0] == name:
                stops.pop()
                raise PartlyDone(f"stopped at {name}")
            return result

        return call

    fence = SimpleNamespace(open=lambda: "", admit_mirror=lambda: "")
    for name, found in {
        "kept_for_unread": [KeptSetting("retention.ms", "5", "7", "billing", TopicPartition("t", 0), 2)],
        "restore_configs": None,
        "reverse_record": SimpleNamespace(),
        "save_reversed": None,
        "ClusterFence": fence,
        "release": "",
        "publish": SimpleNamespace(reason=""),
    }.items():
        monkeypatch.setattr(failback_stages, name, stopping(name, found))
    monkeypatch.setattr(
        failback_stages,
        "find_late_writes",
        lambda context, **_: (replace(context.facts, late={"t:0": (3, 5)}), "; 2 offsets were written to dr"),
    )
    salvages = []

    def salvage(_link, _topics, _positions, out, _say):
        out.mkdir()
        salvages.append(out)
        return Salvaged(str(out), {"t": 2})

    ports = SimpleNamespace(salvager=SimpleNamespace(salvage=salvage), salvage_root=tmp_path)

    def attempt(stop=None):
        stops[:] = [stop] if stop else []
        begun = replace(
            context, facts=established[-1], ports=ports, establish=lambda facts, _carried: established.append(facts)
        )
        return SWITCH.execute(begun).reason

    yield attempt
    assert len(salvages) == 1


@pytest.mark.parametrize("stop", [None, "restore_configs", "reverse_record", "publish"])
def test_a_resumed_switch_says_what_it_kept_before(switching, tmp_path, stop):
    """Once it has activated the link it does nothing of that again."""
    if stop:
        with pytest.raises(PartlyDone, match=stop):
            switching(stop)
    said = switching()
    assert "; 2 offsets were written to dr; 2 records of these topics kept in" in said
    assert f"drkit salvage --out {tmp_path}/RUN-late --replay-to TOPIC" in said
    assert "t keeps retention.ms 7 (billing has not read 2 offsets of t:0" in said


@pytest.mark.parametrize("mode", Mode)
def test_a_slow_dr_is_waited_for_unless_it_is_gone_and_is_named_where_its_settings_are_the_noted_ones(
    context, monkeypatch, mode
):
    gone = []

    def silent(_alias, *, may_be_gone=False):
        def settings(*_, **__):
            gone.append(may_be_gone)
            raise Unreachable("dr does not answer")

        return SimpleNamespace(topic_configs=settings)

    monkeypatch.setattr(context.estate, "admin", silent)
    context = replace(context, facts=replace(context.facts, mode=mode))
    found, unseen = SWITCH._live_settings(context)
    assert found == {}
    assert unseen == (
        "dr does not answer: its settings count as they were noted last, and nothing is noted of t, which have their "
        "own settings back"
    )
    context.estate.store.put_notes(BACK, SOURCE_SETTINGS, {"t": '{"retention.ms": "7"}'})
    found, unseen = SWITCH._live_settings(context)
    assert found == {"t": {"retention.ms": "7"}}
    assert unseen == "dr does not answer: its settings count as they were noted last"
    assert gone == [mode is Mode.UNPLANNED] * 2
