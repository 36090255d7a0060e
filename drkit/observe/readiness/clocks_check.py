"""Whether the clocks of both clusters agree with each other, and with this machine's.

Kafka tells one time without being written to: that of the active controller (KRaft). Other brokers' times are seen only
in what they stamp themselves, so they aren't known here; with one broker that is also the controller, all is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from drkit.kafka.admin.cluster_description import ControllerClock
from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import MOST_SKEW_SECONDS
from drkit.model.errors import DrkitError
from drkit.model.wording import and_more
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome

CLOCKS = "clocks"
_UNTOLD = "it tells no time (Kafka before 3.3 or with ZooKeeper, or drkit lacks Describe on the cluster)"
_BY_HAND = "compare them by hand (`date -u` on each) before you give a time to `--at`"


@dataclass(frozen=True, slots=True)
class ClusterClock:
    """A cluster's active controller.

    `clock`: None: it isn't known, and `reason` says why. `others`: the brokers that aren't the controller, by node id.
    """

    alias: str
    clock: ControllerClock | None = None
    reason: str = ""
    others: Collection[int] = ()

    @property
    def who(self) -> str:
        """The controller, in words."""
        return f"the active controller of {self.alias}" + (f" (node {self.clock.node})" if self.clock else "")


def clocks_check(status: LinkStatus, clusters: Clusters) -> Check:
    """Ask both clusters, as far as they answer."""
    ids = status.link.id
    there = {ids.source: status.source_reachable, ids.target: status.target_reachable}
    return judged_clocks(
        [
            _asked(alias, clusters) if reached else ClusterClock(alias, reason=f"it {status.unreached(alias)}")
            for alias, reached in there.items()
        ]
    )


def _asked(alias: str, clusters: Clusters) -> ClusterClock:
    admin = clusters.admin(alias, may_be_gone=True)
    try:
        clock = admin.controller_clock()
        others = {broker.node_id for broker in admin.brokers()} - ({clock.node} if clock else set())
    except DrkitError as error:
        return ClusterClock(alias, reason=error.what)
    return ClusterClock(alias, clock, "" if clock else _UNTOLD, others)


def judged_clocks(seen: Sequence[ClusterClock]) -> Check:
    """The check of what was seen. Pure."""
    told = [(each, each.clock) for each in seen if each.clock is not None]
    apart = [
        f"{each.who} is {said}" for each, clock in told if (said := _apart(clock.least, clock.most, "this machine"))
    ]
    apart += [
        f"{one.who} is {said}"
        for (one, first), (other, second) in combinations(told, 2)
        if (said := _apart(first.least - second.most, first.most - second.least, f"that of {other.alias}"))
    ]
    untold = [f"{each.alias}: {each.reason}" for each in seen if each.clock is None]
    untold += [
        f"{each.alias}: its answer took {clock.most - clock.least:.1f} s"
        for each, clock in told
        if max(abs(clock.least), abs(clock.most)) > MOST_SKEW_SECONDS and not _apart(clock.least, clock.most, "")
    ]
    if apart:
        why = "; ".join([*apart, *(f"not known of {each}" for each in untold)])
        remedy = (
            "Set the clocks (NTP): brokers delete records and groups' offsets by theirs, `--at` compares stamps of "
            "producers, or of brokers (LogAppendTime), with the time that you give, and the age of a loss is taken here"
        )
        return Check(CLOCKS, CheckOutcome.WARN, why, remedy)
    if untold:
        why = f"how far they are apart isn't known of {'; of '.join(untold)}"
        return Check(CLOCKS, CheckOutcome.UNKNOWN, why, _BY_HAND.capitalize())
    agreed = " and ".join(each.who for each, _ in told)
    why = f"{agreed}: no more than {MOST_SKEW_SECONDS:g} s from this machine's"
    others = {each.alias: sorted(each.others) for each in seen if each.others}
    return Check(CLOCKS, CheckOutcome.OK, why + _of_others(others))


def _apart(least: float, most: float, than: str) -> str:
    """How far a clock is surely off; "": it is not, or that isn't sure."""
    if least > MOST_SKEW_SECONDS:
        return f"at least {least:,.1f} s ahead of {than}"
    return f"at least {-most:,.1f} s behind {than}" if most < -MOST_SKEW_SECONDS else ""


def _of_others(others: Mapping[str, Sequence[int]]) -> str:
    if not others:
        return ""
    named = "; ".join(f"{and_more([*map(str, nodes)])} of {alias}" for alias, nodes in others.items())
    return f". Kafka tells no time of other brokers ({named}): {_BY_HAND}"
