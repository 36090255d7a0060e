"""Whether settings by which a source removes more than before were set there, so that the target may follow.

Controllers that are restored alone from an older copy give out older settings, while every topic's log is whole; the
target may hold all that the source's shorter retention would remove. A broker never forgets what it has applied of the
controllers' log, and learns of another log only by starting anew (`source_growth`). So such a change is followed where
one broker has told both, what was followed before and what there is now, by one connection, which shows one process.
What it told before the source had another value in between doesn't count: cut off from the controllers since, it may
tell what came in between, as may controllers of that time.

What was followed last of each topic is noted in the store: a mirror that starts, or another worker that leads, compares
with that. Whatever nothing shows is held, with a problem, until a broker shows it after all, an operator accepts
exactly these values, or the source removes no more than the target any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.topic_requests import Teller
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.link_state import FOLLOWED_SETTINGS, SETTINGS_HELD
from drkit.model.topics.removing import REMOVING, FollowedSettings, HeldSettings, changed_to_remove_more
from drkit.model.topics.standby import SettingChanges
from drkit.model.topology import Link
from drkit.store.api import LinkStore

LOOKS = 3
"""For so many looks a broker that told what was followed may lag behind the one that tells what there is now, or not
answer."""
_REMEMBERED = 64
"""Of how many values of a topic's settings it is remembered who told them."""
_KINDS = frozenset({SETTINGS_HELD})


@dataclass(frozen=True, slots=True)
class _Change:
    """Settings of a topic: those that the source has now, that were followed before, and that the target has."""

    now: dict[str, str]
    followed: dict[str, str]
    target: dict[str, str]


class RemovingChanges:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        source: whose brokers are asked.
        store: the notes, for as long as this worker leads.
        problems: where held settings go.
    """

    def __init__(self, link: Link, source: ClusterAdmin, store: LinkStore, problems: Problems) -> None:
        self._link = link
        self._source = source
        self._store = store
        self._problems = problems
        self._told: dict[str, dict[tuple[str, str], dict[int, int]]] = {}
        """By topic and value of a setting: which broker told it last by which connection, since looks show this value
        and no other."""
        self._looked: dict[str, dict[str, str]] = {}
        """By topic: the settings of the last look that showed them."""
        self._followed: dict[str, FollowedSettings] | None = None
        self._held: dict[str, HeldSettings] | None = None
        self._lagging: dict[str, int] = {}
        """For how many looks brokers that told what was followed have not told what there is now, or not answered, by
        topic."""
        self._staying: dict[str, frozenset[str]] = {}
        """The settings that don't follow, by topic: those of lagging brokers, too, of which there is no problem yet."""

    def saw(self, look: TopicSnapshot) -> None:
        """Note who told what. Whoever doesn't lead does so, too: it may lead next, and then has this."""
        told = {topic: known for topic, known in self._told.items() if topic in look.states or topic in look.source}
        looked = {topic: self._looked[topic] for topic in told}
        for topic, settings in look.source_settings.items():
            known, before = told.setdefault(topic, {}), looked.get(topic, {})
            looked[topic] = _removing(settings)
            for setting in looked[topic].items():
                since = known.pop(setting, {}) if setting in before.items() else {}
                known[setting] = since | dict(look.source_tellers)  # the latest last
            for former in list(known)[:-_REMEMBERED]:
                del known[former]
        self._told, self._looked = told, looked

    def read_again(self) -> None:
        """Another worker leads, and changes the notes."""
        self._followed = self._held = None
        self._lagging.clear()
        self._staying.clear()

    def withheld(self, look: TopicSnapshot, wanted: Mapping[str, SettingChanges]) -> dict[str, frozenset[str]]:
        """The settings that don't follow now, by source topic. Notes those that do.

        Args:
            look: both sides.
            wanted: what is to be put, by source topic, of each of which both sides' settings are known; of a topic that
                isn't compacted yet, what will be.
        """
        self.saw(look)
        if self._link.shares_target:
            return {}  # nothing follows there
        if self._followed is None:
            notes = self._store.notes(self._link.id, FOLLOWED_SETTINGS)
            self._followed = {topic: FollowedSettings.read(text) for topic, text in notes.items()}
        changes = {
            topic: change for topic, settings in wanted.items() if (change := self._change(look, topic, settings))
        }
        if changes or self._held is None:
            notes = self._store.notes(self._link.id, SETTINGS_HELD)
            self._held = {topic: HeldSettings.read(text) for topic, text in notes.items()}
        stay = self._undecided(look, changes, self._held)
        self._note_followed(look, wanted, {topic: changes[topic] for topic in stay}, self._followed)
        for topic in stay:
            if self._lagging.get(topic, LOOKS) >= LOOKS:
                self._hold(topic, changes[topic], self._held)
        self._settle(wanted.keys() - stay, self._held)
        staying = {topic: frozenset(changes[topic].now) for topic in stay}
        self._staying = {topic: keys for topic, keys in self._staying.items() if topic not in wanted} | staying
        return staying

    def as_followed(self, topic: str, settings: Mapping[str, str]) -> dict[str, str]:
        """The source's settings of a topic, with the former values of those that don't follow."""
        held, known = (self._held or {}).get(topic), (self._followed or {}).get(topic)
        keys = self._staying.get(topic, frozenset()) | (held.settings.keys() if held is not None else set())
        if not keys or known is None:
            return dict(settings)
        return {**settings, **{key: known.settings[key] for key in keys if key in known.settings}}

    def _known(self, look: TopicSnapshot, topic: str) -> FollowedSettings | None:
        """What was followed last of this topic, not of a former one of its name."""
        known = (self._followed or {}).get(topic)
        return known if known is not None and known.topic_id == look.ready[topic].state.source_topic_id else None

    def _change(self, look: TopicSnapshot, topic: str, settings: SettingChanges) -> _Change | None:
        known = self._known(look, topic)
        if known is None:
            return None
        target = look.target_settings[look.ready[topic].state.target_topic]
        own = _following(look, topic, settings)
        former = {key: value for key, value in known.settings.items() if key in own}
        keys = changed_to_remove_more({**_removing(target), **own}, target, former)
        if not keys:
            return None
        now, followed, there = ({key: each[key] for key in keys} for each in (own, {**own, **former}, target))
        return _Change(now, followed, there)

    # -- deciding ----------------------------------------------------------------------------------

    def _undecided(
        self, look: TopicSnapshot, changes: Mapping[str, _Change], held: Mapping[str, HeldSettings]
    ) -> set[str]:
        """The topics of which these changes don't follow: nothing shows that somebody made them, nor did an operator
        accept them. What is held is asked about, too: a broker that answers later shows it as well."""
        accepted = {
            topic
            for topic, change in changes.items()
            if topic in held and held[topic].accepted and held[topic].settings == change.now
        }
        shown, lagging = self._ask(
            {topic: change for topic, change in changes.items() if topic not in accepted}, look.source_tellers
        )
        self._lagging = {topic: self._lagging.get(topic, 0) + 1 for topic in lagging}
        return changes.keys() - shown - accepted

    def _ask(self, changes: Mapping[str, _Change], looked: Collection[Teller]) -> tuple[set[str], set[str]]:
        """The topics of which one broker has told, by one connection, what was followed and what there is now; and
        those of which one that told the former tells something else now, or doesn't answer.

        Args:
            changes: by topic.
            looked: who told what there is now.
        """
        shown, tellers = set(), {}
        for topic, change in changes.items():
            told = self._told.get(topic, {})
            by = [{Teller(*each) for each in told.get(setting, {}).items()} for setting in change.followed.items()]
            found: set[Teller] = set.intersection(*by)
            if found & set(looked):
                shown.add(topic)
            elif found:
                tellers[topic] = found
        nodes = {teller.node for found in tellers.values() for teller in found}
        answers = self._source.topic_configs_of(tellers, keys=REMOVING, nodes=nodes) if nodes else {}
        lagging = set()
        for topic, found in tellers.items():
            now = [told.settings.get(topic, {}) for told in answers.values() if told.teller in found]
            if any(changes[topic].now.items() <= settings.items() for settings in now):
                shown.add(topic)
            elif now or any(teller.node not in answers for teller in found):
                lagging.add(topic)
        return shown, lagging

    def _note_followed(
        self,
        look: TopicSnapshot,
        judged: Mapping[str, SettingChanges],
        staying: Mapping[str, _Change],
        followed: dict[str, FollowedSettings],
    ) -> None:
        fresh = {}
        for topic in look.ready.keys() & look.source_settings.keys():
            known = self._known(look, topic)
            if topic not in judged and known is not None:
                continue  # the target's settings aren't known
            settings = _removing(look.source_settings[topic])
            if known is not None:  # what isn't put, as the link overrides or excludes it, isn't followed
                following = _following(look, topic, judged[topic])
                settings |= {key: value for key, value in known.settings.items() if key not in following}
            if topic in staying:
                settings |= staying[topic].followed
            fresh[topic] = FollowedSettings(look.ready[topic].state.source_topic_id, settings)
        fresh = {topic: each for topic, each in fresh.items() if followed.get(topic) != each}
        if fresh:
            self._store.put_notes(
                self._link.id, FOLLOWED_SETTINGS, {topic: each.note() for topic, each in fresh.items()}
            )
            followed.update(fresh)

    # -- telling -----------------------------------------------------------------------------------

    def _hold(self, topic: str, change: _Change, held: dict[str, HeldSettings]) -> None:
        source, target = self._link.id.source, self._link.id.target
        told = "; ".join(
            f"{key} is {value} on {source}"
            + (
                f", where {change.followed[key]} was followed"
                if value != change.followed[key]
                else ", and takes effect"
            )
            + f", and stays {change.target[key]} on {target} for now"
            for key, value in sorted(change.now.items())
        )
        self._problems.put(
            SETTINGS_HELD,
            topic,
            None,
            f"{told}: more would be removed there, and nothing shows that somebody set it. {source}, or its "
            f"controllers, may have been restored from an older copy with older settings, and {target} may hold all "
            f"that is left (drkit believes a change where a broker of {source} told both values by one connection)",
            f"If it is meant: `drkit link acknowledge '{self._link.id}' {SETTINGS_HELD} --topic {topic}` puts it on "
            f"{target} (--all-topics in its place: of every topic that is held). If not, set on {source} what is "
            f"(kafka-configs.sh --alter --entity-type topics --entity-name {topic}); once that removes no more than "
            f"{target} does, this clears",
            halted=False,
        )
        if held.get(topic, HeldSettings({})).settings != change.now:
            held[topic] = HeldSettings(change.now)  # after the problem: who acknowledges it accepts what was told
            self._store.put_notes(self._link.id, SETTINGS_HELD, {topic: held[topic].note()})

    def _settle(self, topics: Collection[str], held: dict[str, HeldSettings]) -> None:
        """Nothing is held of these topics."""
        for topic in topics:
            self._problems.settle(topic, kinds=_KINDS)
        over = held.keys() & set(topics)
        if over:
            self._store.forget_notes(self._link.id, SETTINGS_HELD, sorted(over))
            for topic in over:
                del held[topic]


def _following(look: TopicSnapshot, topic: str, settings: SettingChanges) -> dict[str, str]:
    """Those of the source that the target gets or has."""
    target = look.target_settings[look.ready[topic].state.target_topic]
    return {
        key: value
        for key, value in _removing(look.source_settings[topic]).items()
        if settings.followed.get(key, target.get(key)) == value
    }


def _removing(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: settings[key] for key in REMOVING if key in settings}
