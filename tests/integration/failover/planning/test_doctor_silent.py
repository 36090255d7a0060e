"""Doctor with a cluster dead: nothing is ok that only this cluster could tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from drkit.lab.ports import free_ports
from tests.support.links.estates import OwnLink, mirror, texts

pytestmark = pytest.mark.lab

ANYWHERE = {
    "installation": "Spark and Java on this machine",
    "problems": "what the store has on record; it says which logs aren't seen",
    "drills": "what the store has on record",
}
SOURCE_ANSWERS = {
    "fence": "how the source would be closed",
    "group positions captured": "their age, with the source there to say whether they are the newest",
    "groups without members": "groups of the source",
    "retention on the source": "what the source would remove",
    "rights of other commands": "on the source alone, as its reason says",
    "store placement": "the source's brokers",
    "way out": "clients stay on the source",
}
TARGET_ANSWERS = {
    "copy of the store": "a topic of the target",
    "group positions translatable": "rows of the store beside logs of the target",
    "groups on the target": "its groups",
    "rights": "a failover from a dead source needs the target's alone",
    "rights of other commands": "on the target alone, as its reason says",
    "topics on the target": "its topics",
}
"""The checks that may be ok, each with what tells it."""


@pytest.mark.parametrize(
    ("dead", "may_be_ok", "code"),
    [
        (("dr",), ANYWHERE | SOURCE_ANSWERS, 3),
        (("primary",), ANYWHERE | TARGET_ANSWERS, 0),
        (("primary", "dr"), ANYWHERE, 3),
    ],
)
def test_nothing_is_ok_that_only_a_dead_cluster_could_tell(
    own: OwnLink, dead: tuple[str, ...], may_be_ok: dict[str, str], code: int
) -> None:
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 20))
    own.commit("primary", "g", topic, {0: 20, 1: 12})
    mirror(own)
    nowhere = {
        f"DRKIT_CLUSTERS__{alias.upper()}__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"
        for alias, port in zip(dead, free_ports(len(dead)), strict=True)
    }
    command = [sys.executable, "-m", "drkit", "doctor", "--config", str(own.config_path), "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=os.environ | nowhere)
    assert ended.returncode == code, ended.stdout + ended.stderr
    (link,) = json.loads(ended.stdout)["links"]
    well = {each["check"]: each["reason"] for each in link["checks"] if each["outcome"] == "ok"}
    assert well.keys() <= may_be_ok.keys(), well
    asked = well.keys() - ANYWHERE.keys()
    assert asked or len(dead) == 2, "the cluster that answers was asked"
    silent = {each["check"]: each for each in link["checks"] if each["outcome"] == "unknown"}
    assert silent["not asked"]["reason"].endswith(" and ".join(f"{each} does not answer" for each in dead))
    assert (link["expected_loss"]["records"] is None) == ("dr" in dead)
    with own.estate() as estate:
        ids = {alias: None if alias in dead else estate.admin(alias).cluster_id() for alias in ("primary", "dr")}
    assert {each["cluster"]: each["cluster_id"] for each in link["clusters"]} == ids
    assert {each["principal"] for each in link["clusters"]} == {"User:ANONYMOUS"}
