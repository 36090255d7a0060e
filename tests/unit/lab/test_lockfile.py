"""Lock files: what they say is what is fetched, and a damaged one is refused."""

from __future__ import annotations

import pytest

from drkit.lab.toolchain.__main__ import SETS
from drkit.lab.toolchain.lockfile import Coordinate, Jar, Lock, known_sets, parse_lock, read_lock, render_lock
from drkit.model.errors import ConfigError

_JAR = Jar(Coordinate("org.example", "thing", "1.2"), "", "a" * 64, 10)
_NATIVE = Jar(Coordinate("org.example", "thing", "1.2"), "linux-x86_64", "b" * 64, 20)


def test_a_rendered_lock_reads_back_equal():
    lock = Lock("some", (Coordinate("org.example", "thing", "1.2"),), True, (_JAR, _NATIVE))
    assert parse_lock(render_lock(lock), origin="here") == lock


def test_a_classifier_is_part_of_the_file_name():
    assert _NATIVE.file_name == "thing-1.2-linux-x86_64.jar"
    assert str(_NATIVE.relative_path) == "org.example/thing/1.2/thing-1.2-linux-x86_64.jar"


@pytest.mark.parametrize("name", sorted(SETS))
def test_each_checked_in_lock_is_made_from_what_the_script_would_resolve(name: str):
    lock = read_lock(name)
    assert tuple(str(root) for root in lock.roots) == SETS[name].roots
    assert lock.transitive is SETS[name].transitive
    assert set(lock.roots) <= {jar.module for jar in lock.jars}
    if not lock.transitive:
        assert {jar.module for jar in lock.jars} == set(lock.roots)


def test_there_is_a_lock_for_every_set_and_no_other():
    assert set(known_sets()) == set(SETS)


def test_no_set_mixes_two_versions_of_a_module():
    for name in known_sets():
        versions: dict[tuple[str, str], set[str]] = {}
        for jar in read_lock(name).jars:
            versions.setdefault((jar.module.org, jar.module.name), set()).add(jar.module.rev)
        assert {module: revs for module, revs in versions.items() if len(revs) > 1} == {}


_GOOD = render_lock(Lock("some", (_JAR.module,), True, (_JAR,)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("set = ", "damaged"),
        (_GOOD.replace("jars = [", "cans = ["), "'jars' is missing"),
        (_GOOD.replace("a" * 64, "A" * 64), "not a SHA-256"),
        (_GOOD.replace("a" * 64, "a" * 63), "not a SHA-256"),
        (_GOOD.replace("size = 10", "size = 0"), "not a size"),
        (_GOOD.replace('module = "org.example:thing:1.2"', 'module = "org.example:thing"'), "not org:name:rev"),
        (_GOOD.replace('module = "org.example:thing:1.2"', 'module = "../etc:thing:1.2"'), "not org:name:rev"),
        (render_lock(Lock("some", (_JAR.module,), True, (_JAR, _JAR))), "listed twice"),
    ],
)
def test_a_damaged_lock_is_refused_with_what_is_wrong(text: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_lock(text, origin="some.toml")
    assert "some.toml" in str(caught.value)


def test_an_unknown_set_is_refused_and_the_known_are_listed():
    with pytest.raises(ConfigError, match=r"cassandra, clients-3\.9, kafka, kafka-3\.9, mirrormaker, spark"):
        read_lock("zookeeper")
