"""Several clusters, links between them, their runtimes, and an independent reader of each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from drkit.config import load_config
from drkit.lab import Lab
from drkit.mapping import Translator
from drkit.mirror.control import link_to_run
from drkit.mirror.runtime.mirror_runtime import MirrorReport, MirrorRuntime
from drkit.model.link_state import Problem
from drkit.model.topology import Link, LinkId
from drkit.model.topology import TopicPartition as Place
from drkit.store import open_store
from tests.support.commands.running import Commands, Running, on_threads
from tests.support.links.log_reader import Record
from tests.support.links.mirroring import Side
from tests.support.wait import wait_until


def configuration(lab: Lab, folder: Path, links: str, clusters: str = "") -> Path:
    """A drkit.toml with the lab's clusters under their aliases, further ones, and these links."""
    path = folder / "drkit.toml"
    known = "".join(f'[clusters.{alias}]\nbootstrap_servers = "{lab.bootstrap(alias)}"\n' for alias in lab.clusters)
    path.write_text(f'{known}{clusters}\n[store]\nurl = "sqlite:///{folder / "drkit.db"}"\n{links}')
    return path


class Net(Commands):
    """A test's own configuration for the lab's clusters, and its processes."""

    def __init__(self, lab: Lab, folder: Path, links: str, clusters: str = "") -> None:
        super().__init__(configuration(lab, folder, links, clusters))
        self.path = self.config_path
        self.config = load_config(self.path)
        self.store = open_store(self.config.store.plain_url)
        self.sides = {alias: Side(lab.bootstrap(alias)) for alias in lab.clusters}

    def close(self) -> None:
        """Clean up."""
        super().close()
        self.store.close()

    def link(self, name: str) -> Link:
        """A link as currently configured, by `source->target`."""
        found = next(each.link() for each in self.config.links if str(each.link().id) == name)
        return link_to_run(self.store, found)

    def catch_up(self, *names: str) -> list[MirrorReport]:
        """Run links to their ends, one after the other, in this order (none named: all, in the configured order)."""
        chosen = names or [str(each.link().id) for each in self.config.links]
        return [self._runtime(name).run(until_caught_up=True) for name in chosen]

    @contextmanager
    def running(self, *names: str) -> Iterator[dict[str, Running]]:
        """Run links on threads while the body runs (none named: all)."""
        chosen = names or [str(each.link().id) for each in self.config.links]
        with on_threads(**{name: partial(self._runtime, name) for name in chosen}) as runs:
            yield runs

    def through(self, link: str, topic: str, partition: int = 0) -> int:
        """The mirrored offset in the store; -1: unknown."""
        watermark = self.store.watermarks(LinkId.parse(link)).get(Place(topic, partition))
        return -1 if watermark is None else watermark.source_through

    def problems(self, link: str) -> list[Problem]:
        """Problems in the store."""
        return self.store.problems(LinkId.parse(link))

    def wait_through(self, link: str, topic: str, partition: int = 0) -> None:
        """Wait until everything on the source is mirrored according to the store."""
        goal = self.sides[LinkId.parse(link).source].end(topic, partition)
        wait_until(lambda: self.through(link, topic, partition) >= goal, 60, f"{link} {topic} through {goal}")

    def assert_translates(
        self, link: str, topic: str, kept: Sequence[Record], target_topic: str | None = None, partition: int = 0
    ) -> None:
        """Assert that every position of the source translates to the first kept record at or above it on the target.

        `kept`: the source's records that are on the target, in order.
        """
        name = LinkId.parse(link)
        source, target = self.sides[name.source], self.sides[name.target]
        theirs = target.read(target_topic or topic, partition, committed=False)
        assert len(theirs) == len(kept)
        offsets = [record.offset for record in kept]
        translator = Translator(self.store, name)
        for commit in range(source.end(topic, partition) + 1):
            following = bisect_left(offsets, commit)
            expected = (
                theirs[following].offset if following < len(theirs) else target.end(target_topic or topic, partition)
            )
            answer = translator.translate(Place(topic, partition), commit)
            assert (answer.target_offset, answer.certainty.value) == (expected, "exact"), (commit, answer)

    def _runtime(self, name: str) -> MirrorRuntime:
        return MirrorRuntime(self.config, self.link(name), self.store, topic_seconds=0.3)


def write(side: Side, topic: str, values: Sequence[str], *, partition: int = 0, **more: Any) -> None:
    """Records with these values, keys `k0`, `k1` …, one header."""
    producer = side.producer()
    for number, value in enumerate(values):
        producer.produce(
            topic, value=value.encode(), key=b"k%d" % number, headers=[("h", b"1")], partition=partition, **more
        )
    assert producer.flush(30) == 0
