"""A plan: a link and a sequence of actions, made from a seed; and the fewest actions that still fail. Pure.

Every choice is made here, none while the plan is played, so an action does the same without the actions before it:
this makes a plan replayable and minimisable.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its kind (a method of `chaos.adversary.actions.Actions`) and its options.

    `early`: before the mirror's first start.
    """

    kind: str
    options: Options = field(default_factory=dict)
    early: bool = False

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.kind}({said})" + (" before the mirror starts" if self.early else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module docstring. `alters`: transform, filter, provenance or nothing; `settings`: the source topic's.

    `committed`: whether the link mirrors only committed records. `audits`: whether its end is audited, too.
    `overrides`: those of the link's `topic_settings`.
    """

    seed: int
    offsets: str
    alters: str
    partitions: int
    settings: dict[str, str]
    actions: tuple[Action, ...]
    numbers: tuple[int, ...]
    committed: bool = True
    audits: bool = False
    overrides: dict[str, str] = field(default_factory=dict)

    def only(self, numbers: Iterable[int]) -> Plan:
        """The same link with some of the actions, by their numbers in the whole plan."""
        wanted = set(numbers)
        kept = [(n, a) for n, a in zip(self.numbers, self.actions, strict=True) if n in wanted]
        return replace(self, actions=tuple(a for _, a in kept), numbers=tuple(n for n, _ in kept))

    def lines(self) -> list[str]:
        """A readable form."""
        settings = f", {json.dumps(self.settings)}" if self.settings else ""
        settings += f", overridden {json.dumps(self.overrides)}" if self.overrides else ""
        link = (
            f"link: offsets {self.offsets}, alters {self.alters or 'nothing'}, "
            f"{'committed' if self.committed else 'all'} records; {self.partitions} partitions{settings}"
            f"{'; audited' if self.audits else ''}"
        )
        return [link, *(f"{n:3} {a}" for n, a in zip(self.numbers, self.actions, strict=True))]


MIRROR_STATES = ("live", "live", "frozen", "frozen", "killed", "stopped")
"""The mirror's state while a broker is down: running, SIGSTOPped, SIGKILLed, ended by SIGTERM."""

_EACH_STATE = tuple(dict.fromkeys(MIRROR_STATES))

FAULT_POINTS = (
    "after_fetch",
    "before_rows",
    "after_rows",
    "before_send",
    "after_send",
    "after_answer",
    "before_watermarks",
    "after_watermarks",
    "after_supersede",
    "before_trim",
    "after_trim",
)
"""The points at which a worker can be killed (`chaos.adversary.fault_points`)."""


def make(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"adversary {seed}")  # noqa: S311 - repeatable, not secret
    partitions = chance.choice([1, 1, 2])
    early = [replace(action, early=True) for action in _early(chance, partitions)]
    aligns = any(action.kind == "fill" for action in early)
    late = _late(chance, partitions, aligns=aligns)
    if seed >= _ACCEPTED_DOWN_FROM:
        late = _accepted_down(seed, late)
    offsets = chance.choice(["preserve", "preserve", "translate"])
    alters = chance.choice(["", "", "", "", "transform", "filter", "provenance"])
    settings = _settings(chance)
    committed = _isolation(chance, late, partitions)
    audited = chance.random() < 0.15  # noqa: PLR2004 - an audit costs as much as a run
    kinds = {each.kind for each in late}
    waits = committed and "open_transaction" in kinds
    refused = _refused(seed, partitions, waits=waits)
    set_back = [] if alters and seed < _ALTERED_FROM else _set_back(seed, partitions, kinds)
    if any(each.options.get("left_out") for each in set_back):  # else a batch's checksum says that it was replaced
        alters, settings = "filter", {**settings, "cleanup.policy": "compact,delete"}
    undone = _undone(seed, partitions)
    overrides, large = _overridden(seed, partitions)
    if large:  # the source takes them compressed as they are, and not otherwise
        settings = {name: value for name, value in settings.items() if name != "compression.type"} | _SMALL
    changed = _changed(seed, partitions)
    aligns = aligns and offsets == "preserve" and not alters
    last = _failed_over(seed, partitions, aligns=aligns) or _held(seed, partitions, kinds)
    actions = (*early, *late, *large, *changed, *refused, *undone, *set_back, *last)
    if last and last[0].options.get("point") == _ALIGNED:  # the worker dies as it aligns the partition
        actions = (*early, *last)
    return Plan(
        seed=seed,
        offsets=offsets,
        alters=alters,
        partitions=partitions,
        settings=settings,
        actions=actions,
        numbers=tuple(range(len(actions))),
        committed=committed,
        audits=audited and not alters,  # altered records can't be audited
        overrides=overrides,
    )


def _late(chance: random.Random, partitions: int, *, aligns: bool) -> list[Action]:
    """The actions while the link is mirrored."""
    kinds = chance.choices(list(_MAKERS), weights=[weight for weight, _ in _MAKERS.values()], k=chance.randint(2, 5))
    begin = {"count": chance.choice([120, 300, 1_500]), "per_batch": chance.choice([1, 10])}
    late = [Action("produce", _batch(chance, partitions) | begin)]
    if aligns and chance.random() < 0.4:  # noqa: PLR2004 - two of five
        point = {"point": chance.choice(_ALIGNING), "pass_by": chance.choice([0, 0, 1])}
        late.insert(0, Action("kill_at", _batch(chance, partitions) | point))
    for kind in kinds:
        if kind == "quiet" and late[-1].kind == "quiet":
            continue
        action = Action(kind, _MAKERS[kind][1](chance, partitions))
        if kind == "accept":
            if action.options["needed"] and not any(each.kind in _HALTS for each in late):
                continue  # nothing is halted
            if late[-1].kind != "quiet":
                late.append(Action("quiet"))
        late.append(action)
        if chance.random() < 0.5:  # noqa: PLR2004 - every other time
            late.append(Action("produce", _batch(chance, partitions)))
        if kind in _JUDGED_AFTER and chance.random() < 0.4:  # noqa: PLR2004 - a quiet point costs seconds
            late.append(Action("quiet"))
    while late[-1].kind == "quiet":  # the end is one
        late.pop()
    return late


_REFUSED_FROM = 10_000
"""Seeds from here on include records that the target refuses; the plans of lower seeds don't change."""

_SET_BACK_FROM = 20_000
"""Seeds from here on include the restore of a whole cluster, too."""

_ALTERED_FROM = 45_000
"""Seeds from here on include it on links that alter records, too."""

_SHORTER_FROM = 50_000
"""Seeds from here on include a restored cluster that grows by less than it had lost, and one of whose lost records a
filter had left out all."""

_LEFT_OUT_FROM = 55_000
"""Seeds from here on include one that holds only left-out records where it held the last mirrored ones of a compacted
topic."""

_RESTARTED_FROM = 65_000
"""Seeds from here on include one whose broker was restarted since the copy, and one that is restored twice."""

_REMOVED_LATER_FROM = 67_000
"""Seeds from here on include one that loses its tail before it is restored, and one whose retention removes, once a
mirror has seen that it was restored, what showed it."""

_ACCEPTED_DOWN_FROM = 60_000
"""Seeds from here on may accept a topic while the mirror is down."""

_UNDONE_FROM = 40_000
"""Seeds from here on include purges that a broker's crash undoes, too."""

_OVERRIDDEN_FROM = 100_000
"""Seeds from here on include links that override settings of their topics."""

_CHANGED_FROM = 101_000
"""Seeds from here on include settings that are changed on either side, and a store that is lost."""

_FAILED_OVER_FROM = 102_000
"""Seeds from here on may end with a failover."""

_ALIGNED = "before_trim"
_ALIGNING = ("after_rows", "after_send", "after_answer", "before_trim", "after_trim")
_HALTS = frozenset({"cut", "lose_disk", "recreate", "set_target", "restore_store"})
_JUDGED_AFTER = frozenset({"cut", "lose_disk", "purge", "recreate", "freeze", "kill_at", "restore_store", "set_target"})


def _held(seed: int, partitions: int, kinds: set[str]) -> list[Action]:
    """The last action in one plan of eight. It has its own random choices, so that all others stay the same.

    Not with transactions: a cut may remove a marker and leave its records, which nobody can read then.
    """
    if kinds & {"transaction", "open_transaction"}:
        return []
    chance = random.Random(f"adversary held {seed}")  # noqa: S311 - as above
    if chance.random() >= 0.125:  # noqa: PLR2004 - one of eight
        return []
    records = chance.choice([20, 60, 200])
    regrow = chance.choice([0, 2 * records, 2 * records + 100])
    return [Action("hold", {**_place(chance, partitions), "records": records, "regrow": regrow})]


def _set_back(seed: int, partitions: int, kinds: set[str]) -> list[Action]:
    """In half of the plans from `_SET_BACK_FROM` on: the restore of a whole cluster. It has its own random choices, and
    not with transactions, as above.
    """
    chance = random.Random(f"adversary set back {seed}")  # noqa: S311 - as above
    if seed < _SET_BACK_FROM or kinds & {"transaction", "open_transaction"} or chance.random() >= 0.5:  # noqa: PLR2004
        return []
    between = chance.choice([20, 60, 200])
    options = {
        "side": chance.choice(["source", "source", "target"]),
        **_place(chance, partitions),
        "between": between,
        "regrow": chance.choice([0, between, 2 * between, 2 * between + 100]),
        "mirror": chance.choice(MIRROR_STATES),
        "stamp": chance.choice(["now", "old"]),
        "caught_up": chance.random() < 0.8,  # noqa: PLR2004 - mostly what was mirrored is lost
    }
    if seed >= _SHORTER_FROM:
        options["regrow"] = chance.choice([between // 4, between // 2, between, between, 2 * between + 100])
        options["what"] = chance.choice(["plain", "left_out"])
    if seed >= _LEFT_OUT_FROM and options["side"] == "source":
        options["left_out"] = chance.choice([0, options["regrow"] * 3 // 4])
    if seed >= _RESTARTED_FROM and options["side"] == "source":
        options["restarts"] = chance.choice([0, 1, 2])
        options["again"] = chance.choice([0, 0, between, 2 * between])
    later = []
    if seed >= _REMOVED_LATER_FROM and options["side"] == "source":
        options["cut_before"] = chance.choice([0, 0, between // 2])
    if "cut_before" in options and chance.random() < 0.5:  # noqa: PLR2004 - half
        place = {"side": "source", "partition": options["partition"]}
        later = [
            Action("quiet"),
            Action("purge", {**place, "part": chance.choice([0.7, 1.0, 1.0])}),
            Action("produce", _batch(chance, partitions)),
            Action("kill", {"back": True}),
        ]
    return [Action("set_back", options), *later]


def _overridden(seed: int, partitions: int) -> tuple[dict[str, str], list[Action]]:
    """In half of the plans from `_OVERRIDDEN_FROM` on: overrides of the link; and, where these concern the compression,
    batches that are too large for the topic as soon as a broker compresses them in another way. They have their own
    random choices, as above."""
    chance = random.Random(f"adversary overridden {seed}")  # noqa: S311 - as above
    if seed < _OVERRIDDEN_FROM or chance.random() >= 0.5:  # noqa: PLR2004 - half of them
        return {}, []
    name, value = chance.choice(
        [
            ("compression.type", "uncompressed"),
            ("compression.type", "uncompressed"),
            ("compression.type", "gzip"),
            ("compression.type", "lz4"),
            ("max.message.bytes", "10000"),
            ("max.message.bytes", "2000000"),
            ("retention.bytes", "1000000000"),
            ("segment.bytes", "1048576"),
        ]
    )
    if name != "compression.type":
        return {name: value}, []
    even = {"codec": "zstd", "per_batch": 1_000, "even": 100, "batch_bytes": 100_000}
    large = [Action("produce", _batch(chance, partitions) | {"count": chance.choice([600, 2_000])} | even)]
    return {name: value}, large


def _changed(seed: int, partitions: int) -> list[Action]:
    """In half of the plans from `_CHANGED_FROM` on: a setting by which records may be removed is changed on one side,
    or the store is lost. They have their own random choices, as above."""
    chance = random.Random(f"adversary changed {seed}")  # noqa: S311 - as above
    if seed < _CHANGED_FROM or chance.random() >= 0.5:  # noqa: PLR2004 - half of them
        return []
    found = []
    for kind in chance.choice([("set_removing",), ("lose_store",), ("set_removing", "lose_store")]):
        mirror = chance.choice(_EACH_STATE)
        if kind == "set_removing":
            side = chance.choice(["source", "target"])
            name, value = chance.choice(_REMOVING[side])
            found.append(Action(kind, {"side": side, "name": name, "value": value, "mirror": mirror}))
        else:
            options = {"mirror": "live" if mirror == "frozen" else mirror}
            found.append(Action(kind, _batch(chance, partitions) | options))
        found.append(Action("produce", _batch(chance, partitions)))
    return found


REMOVES_ALL = frozenset({("retention.bytes", "0"), ("retention.ms", "1")})
_REMOVING = {
    "source": [
        ("retention.bytes", "0"),
        ("retention.bytes", "50000000"),
        ("retention.ms", "1"),
        ("segment.bytes", "1048576"),
        ("segment.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
    ],
    "target": [
        ("retention.bytes", "0"),
        ("segment.ms", "1000"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
    ],
}


def _failed_over(seed: int, partitions: int, *, aligns: bool) -> list[Action]:
    """In a quarter of the plans from `_FAILED_OVER_FROM` on: the source dies, and the link is failed over. It has its
    own random choices, as above."""
    chance = random.Random(f"adversary failed over {seed}")  # noqa: S311 - as above
    if seed < _FAILED_OVER_FROM or chance.random() >= 0.25:  # noqa: PLR2004 - a quarter
        return []
    point = chance.choice(["", "", "after_send", "before_watermarks"])
    options = {
        "part": chance.choice([0.0, 0.3, 0.7, 1.0]),
        "point": _ALIGNED if aligns and chance.random() < 0.5 else point,  # noqa: PLR2004 - half
        "mirror": chance.choice(["live", "killed"]),
    }
    return [Action("fail_over", _batch(chance, partitions) | options)]


def _accepted_down(seed: int, late: Sequence[Action]) -> list[Action]:
    """The actions, with a state of the mirror in each acceptance. It has its own random choices, as above."""
    chance = random.Random(f"adversary accepted {seed}")  # noqa: S311 - as above
    states = ("live", "killed", "stopped")
    return [
        replace(each, options={**each.options, "mirror": chance.choice(states)}) if each.kind == "accept" else each
        for each in late
    ]


def _undone(seed: int, partitions: int) -> list[Action]:
    """In half of the plans from `_UNDONE_FROM` on: a purge, which the crash of its broker undoes and which may come a
    second time; an operator reads and acknowledges at each quiet point. It has its own random choices, as above."""
    chance = random.Random(f"adversary undone {seed}")  # noqa: S311 - as above
    if seed < _UNDONE_FROM or chance.random() >= 0.5:  # noqa: PLR2004 - half of them
        return []
    place = {"side": chance.choice(["source", "source", "target"]), **_place(chance, partitions)}
    part = chance.choice([0.7, 1.0])
    found = [
        Action("produce", _batch(chance, partitions) | {"partition": place["partition"]}),
        Action(
            "purge_missed",
            {**place, "part": part, "count": chance.choice([20, 60]), "mirror": chance.choice(_EACH_STATE)},
        ),
        Action("quiet"),
        Action("undo_purge", {**place, "mirror": chance.choice(MIRROR_STATES)}),
    ]
    for kind, odds in (("quiet", 0.7), ("purge", 0.6)):
        if chance.random() < odds:
            found.append(Action(kind, {**place, "part": part} if kind == "purge" else {}))
    return found


def _refused(seed: int, partitions: int, *, waits: bool) -> list[Action]:
    """In half of the plans from `_REFUSED_FROM` on: records that the target refuses, between others. It has its own
    random choices, as above.

    Not if the plan `waits` for a transaction that stays open: nothing after it is read, so nothing can be refused.
    """
    chance = random.Random(f"adversary refused {seed}")  # noqa: S311 - as above
    if seed < _REFUSED_FROM or waits or chance.random() >= 0.5:  # noqa: PLR2004 - half of them
        return []
    by = chance.choice(["mirror", "mirror", "target"])
    found = [
        Action(
            "refuse",
            {
                **_place(chance, partitions),
                "by": by,
                "before": chance.choice([1, 60, 300, 3_000]),
                "large": chance.choice([1, 1, 3]),
                "behind": chance.choice([1, 60, 1_500, 5_000]),
                "codec": chance.choice(["none", "lz4", "zstd", "snappy", "gzip"]),
                "per_batch": chance.choice([1, 10, 10, 50]),
                "size": chance.choice([0, 20, 100]),
                "mirror": chance.choice(MIRROR_STATES),
            },
        )
    ]
    for kind, odds in (("quiet", 0.5), ("hand_over", 0.4), ("relent", 0.6 if by == "mirror" else 0.0)):
        if chance.random() < odds:
            found.append(Action(kind))
    if chance.random() < 0.5:  # noqa: PLR2004 - every other time
        found.append(Action("produce", _batch(chance, partitions)))
    while found[-1].kind == "quiet":  # the end is one
        found.pop()
    return found


def _early(chance: random.Random, partitions: int) -> list[Action]:
    """The actions on the source before the link exists."""
    what = chance.choice(["nothing", "nothing", "few", "purged", "many"])
    if what == "nothing":
        return []
    if what == "few":
        return [Action("produce", _batch(chance, partitions))]
    partition = chance.randrange(partitions)
    count = chance.choice([50, 400, 3_000]) if what == "purged" else chance.choice([130_000, 300_000])
    fill = {"partition": partition, "count": count}
    return [Action("fill", fill), Action("purge", {"side": "source", "partition": partition, "part": 1.0})]


def _isolation(chance: random.Random, late: list[Action], partitions: int) -> bool:
    """Whether the link mirrors only committed records; may add a transaction that stays open to the actions."""
    committed = chance.random() >= 0.15  # noqa: PLR2004 - one of seven doesn't
    if chance.random() < (0.1 if committed else 0.7):
        late.insert(chance.randint(1, len(late)), Action("open_transaction", _transaction(chance, partitions)))
    return committed


_SMALL = {"max.message.bytes": "20000"}


def _settings(chance: random.Random) -> dict[str, str]:
    found: dict[str, str] = {}
    codec = chance.choice(["producer", "producer", "producer", "lz4", "gzip", "snappy", "uncompressed", "zstd"])
    if codec != "producer":
        found["compression.type"] = codec
    if chance.random() < 0.2:  # noqa: PLR2004 - one of five
        found |= _SMALL
    return found


def _batch(chance: random.Random, partitions: int) -> Options:
    return {
        "partition": chance.randrange(partitions),
        "count": chance.choice([1, 7, 60, 120, 300, 300, 1_500]),
        "codec": chance.choice(["none", "lz4", "zstd", "snappy", "gzip"]),
        "per_batch": chance.choice([1, 10, 10, 1_000]),
        "stamp": chance.choice(["now", "now", "now", "old", "ahead"]),
        "what": chance.choice(["plain", "plain", "keyless", "headers", "tombstones"]),
    }


def _place(chance: random.Random, partitions: int) -> Options:
    return {"partition": chance.randrange(partitions)}


def _produce(chance: random.Random, partitions: int) -> Options:
    return _batch(chance, partitions)


def _transaction(chance: random.Random, partitions: int) -> Options:
    batch = _batch(chance, partitions)
    return {"commit": chance.random() < 0.6, **batch, "count": min(batch["count"], 60)}  # noqa: PLR2004 - three of five


def _cut(chance: random.Random, partitions: int) -> Options:
    records = chance.choice([1, 20, 20, 60, 60, 200, 2_000])
    return {
        "side": chance.choice(["source", "target"]),
        **_place(chance, partitions),
        "records": records,
        "regrow": chance.choice([0, records // 2, 2 * records, 2 * records + 100, 2 * records + 500]),
        "caught_up": chance.random() < 0.8,  # noqa: PLR2004 - mostly what was mirrored is cut
        "mirror": chance.choice(MIRROR_STATES),
        "stamp": chance.choice(["now", "old"]),
        "cleanly": chance.random() < 0.7,  # noqa: PLR2004 - a killed broker takes longer to start
    }


def _lose_disk(chance: random.Random, partitions: int) -> Options:
    return {k: v for k, v in _cut(chance, partitions).items() if k != "records"}


def _purge(chance: random.Random, partitions: int) -> Options:
    side = chance.choice(["source", "source", "target"])
    return {"side": side, **_place(chance, partitions), "part": chance.choice([0.3, 0.7, 1.0])}


def _recreate(chance: random.Random, _: int) -> Options:
    return {"side": chance.choice(["source", "source", "target"]), "mirror": chance.choice(MIRROR_STATES)}


def _set_target(chance: random.Random, _: int) -> Options:
    name, value = chance.choice(
        [
            ("compression.type", "zstd"),
            ("compression.type", "gzip"),
            ("compression.type", "uncompressed"),
            ("max.message.bytes", "2000"),
            ("max.message.bytes", "300"),
            ("message.timestamp.type", "LogAppendTime"),
            ("retention.ms", "1"),
            ("segment.bytes", "1048576"),
        ]
    )
    return {"name": name, "value": value}


def _nothing(_: random.Random, __: int) -> Options:
    return {}


def _freeze(chance: random.Random, partitions: int) -> Options:
    return {
        **_place(chance, partitions),
        "count": chance.choice([3_000, 30_000, 60_000]),
        "per_batch": chance.choice([1, 50]),
    }


def _kill(chance: random.Random, _: int) -> Options:
    return {"back": chance.choice([True, True, False])}


def _kill_at(chance: random.Random, partitions: int) -> Options:
    batch = _batch(chance, partitions)
    return {"point": chance.choice(FAULT_POINTS), "pass_by": chance.choice([0, 0, 1, 3]), **batch}


def _restart(chance: random.Random, _: int) -> Options:
    return {"side": chance.choice(["source", "target"]), "cleanly": chance.random() < 0.5}  # noqa: PLR2004 - half


def _grow(_: random.Random, partitions: int) -> Options:
    return {"by": 1 if partitions else 0}


def _accept(chance: random.Random, _: int) -> Options:
    needed, purged, twice = chance.random() < 0.6, chance.random() < 0.4, chance.random() < 0.5  # noqa: PLR2004 - chances
    return {"needed": needed, "purged": purged, "twice": twice}


_MAKERS: dict[str, tuple[int, Callable[[random.Random, int], Options]]] = {
    "produce": (10, _produce),
    "transaction": (6, _transaction),
    "cut": (18, _cut),
    "lose_disk": (7, _lose_disk),
    "purge": (8, _purge),
    "recreate": (4, _recreate),
    "set_target": (6, _set_target),
    "forget_producers": (5, _nothing),
    "freeze": (6, _freeze),
    "kill": (4, _kill),
    "kill_at": (14, _kill_at),
    "restart": (3, _restart),
    "copy_store": (5, _nothing),
    "restore_store": (5, _nothing),
    "grow": (3, _grow),
    "accept": (8, _accept),
    "quiet": (6, _nothing),
}
"""Each kind's weight, and the function that makes its options."""


T = TypeVar("T")


def minimise(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A subsequence that still fails, and doesn't without any one of its items.

    Args:
        items: a failing sequence.
        fails: whether a subsequence fails.
    """
    kept = list(items)
    parts = 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        for at in range(0, len(kept), size):
            rest = kept[:at] + kept[at + size :]
            if fails(rest):
                kept, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return kept
