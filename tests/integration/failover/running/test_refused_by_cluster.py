"""A cluster that answers and refuses drkit is not called silent: it is up, and its clients may be well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from tests.support.clusters.secured import as_user, verb
from tests.support.links.estates import OwnLink, mirror, own_link, texts

pytestmark = pytest.mark.lab

ANSWERS = "primary answers, but drkit can't work with it"
REJECTED = "cluster primary rejected the credentials"


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link of which all is mirrored."""
    mine = own_link(secure_lab, tmp_path, unique_name)
    topic = mine.create("primary", "t")
    mine.produce("primary", topic, texts("x", 5))
    mine.commit("primary", "g", topic, {0: 2, 1: 3})
    mirror(mine)
    yield mine
    mine.store.close()


@pytest.fixture
def locked_out(own: OwnLink, secure_lab: Lab) -> Path:
    """The same configuration, but drkit's password is another one on the primary."""
    client = {**as_user(secure_lab, "primary", "app"), "sasl.password": "of yesterday"}
    servers = client.pop("bootstrap.servers")
    lines = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items())
    text = own.config_path.read_text()
    known = f'bootstrap_servers = "{own.config.clusters["primary"].bootstrap_servers}"'
    assert text.count(known) == 1
    path = own.config_path.with_name("locked-out.toml")
    path.write_text(text.replace(known, f'bootstrap_servers = "{servers}"\n[clusters.primary.client]\n{lines}'))
    return path


def test_a_primary_that_rejects_the_credentials_is_not_given_up_by_mistake(own: OwnLink, locked_out: Path) -> None:
    (seen,) = verb(own, "status", schema="status", config=locked_out)["links"]
    assert seen["source_reachable"] is False
    assert REJECTED in seen["reason"]
    assert "does not answer" not in json.dumps(seen)

    (looked,) = verb(own, "doctor", "--to", "dr", schema="doctor", config=locked_out)["links"]
    checks = {each["check"]: each for each in looked["checks"]}
    assert "does not answer" not in json.dumps(looked)
    assert checks["clusters"]["reason"].startswith(ANSWERS)
    assert "sasl.mechanisms" in checks["clusters"]["remedy"]
    assert (ANSWERS in checks["way out"]["reason"], REJECTED in checks["way out"]["reason"]) == (True, True)
    assert checks["way out"]["remedy"].startswith("Check sasl.mechanisms"), "first what costs nothing"
    assert "Only where that can't be done: drkit failover --to dr" in checks["way out"]["remedy"]

    words = ("failover", "--to", "dr", "--unplanned", "--yes")
    error = verb(own, *words, code=3, config=locked_out)["error"]
    assert "it answers, but drkit can't work with it (cluster primary rejected the credentials)" in json.dumps(error)
    assert "does not answer" not in json.dumps(error)


def test_drkit_fence_says_by_its_exit_code_that_trying_again_brings_nothing(own: OwnLink, locked_out: Path) -> None:
    """Refused credentials are configuration (2), a cluster without a method is a precondition (3)."""
    verb(own, "failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced", schema="failover")
    (looked,) = verb(own, "doctor", "--to", "dr", code=3, schema="doctor")["links"]
    (refused,) = [each["reason"] for each in looked["checks"] if each["check"] == "failover"]
    assert "was failed over already" in refused, "and nothing of what moving the groups once more would need"
    (told,) = verb(own, "fence", code=2, schema="fence", config=locked_out)["links"]
    assert (told["fenced"], told["reason"]) == (False, REJECTED)


def test_a_cluster_without_authorizer_can_not_be_fenced(lab: Lab, tmp_path: Path, unique_name: str) -> None:
    mine = own_link(lab, tmp_path, unique_name)
    try:
        topic = mine.create("primary", "t")
        mine.produce("primary", topic, texts("x", 3))
        mirror(mine)
        verb(mine, "failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced", schema="failover")
        (told,) = verb(mine, "fence", code=3, schema="fence")["links"]
        assert told["fenced"] is False
        assert "can't deny its writes" in told["reason"]
    finally:
        mine.store.close()
