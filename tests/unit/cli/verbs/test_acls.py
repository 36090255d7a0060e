"""`drkit acls` without a cluster: what it prints, and what it refuses."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from drkit.cli.application import application

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"
CONFIG = """
[clusters.primary]
bootstrap_servers = "p:9092"
[clusters.primary.client]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanisms" = "PLAIN"
"sasl.username" = "ops"
"sasl.password" = "s3cret"
[clusters.dr]
bootstrap_servers = "d:9092"
[clusters.dr.client]
"security.protocol" = "SSL"
[[links]]
source = "primary"
target = "dr"
topics = ["flights", "orders[.].*"]
groups = ["billing"]
"""


@pytest.fixture
def acls(tmp_path: Path):
    (tmp_path / "drkit.toml").write_text(CONFIG)

    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(application(("acls",)), ["acls", "--config", str(tmp_path / "drkit.toml"), *words])
        assert done.exit_code == code, done.output
        assert "s3cret" not in done.output
        return done.stdout

    return run


def document(text: str, schema: str = "acls") -> dict:
    found = json.loads(text)
    jsonschema.validate(found, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))
    return found


def test_one_document_by_cluster_and_principal(acls):
    found = document(acls("--output", "json"))
    assert found["links"] == ["primary->dr"]
    by_cluster = {each["cluster"]: each for each in found["clusters"]}
    assert (by_cluster["primary"]["principal"], by_cluster["primary"]["principal_from"]) == ("User:ops", "client")
    assert (by_cluster["dr"]["principal"], by_cluster["dr"]["principal_from"]) == ("User:drkit", "placeholder")
    assert any("placeholder" in note for note in by_cluster["dr"]["notes"])
    given = document(acls("--output", "json", "--principal", "boss", "--cluster", "dr", "--command", "status"))
    assert [(each["cluster"], each["principal"]) for each in given["clusters"]] == [("dr", "User:boss")]
    operations = {(right["name"], right["operation"]) for right in given["clusters"][0]["rights"]}
    reads = ("describe", "read", "describe_configs")
    of_topics = {(topic, operation) for topic in ("flights", "orders.") for operation in reads}
    others = {("kafka-cluster", "describe"), ("__drkit_state.primary.dr.", "read"), ("billing", "describe")}
    assert operations == {*of_topics, *others}


def test_required_ones_only(acls):
    given = document(acls("--output", "json", "--required", "--command", "status", "--cluster", "dr"))
    rights = given["clusters"][0]["rights"]
    assert {right["name"] for right in rights} == {"flights", "orders."}
    assert not any(right["optional"] for right in rights)


def test_for_people_and_for_other_tools(acls):
    table = acls("--command", "failover", "--verbose")
    assert "topic orders.…" in table
    assert "commit their positions" in table
    script = acls("--format", "kafka-acls", "--cluster", "primary")
    assert "--allow-principal User:ops" in script
    assert all(line.startswith(("#", "kafka-acls.sh", "  --add")) for line in script.splitlines() if line)
    users = list(yaml.safe_load_all(acls("--format", "strimzi")))
    assert [user["metadata"]["name"] for user in users] == ["ops", "drkit"]


def test_a_replay_needs_its_topic(acls):
    found = document(acls("--output", "json", "--command", "salvage", "--replay-to", "again"))
    names = {right["name"] for each in found["clusters"] for right in each["rights"]}
    assert {"again", "drkit-replay-again"} <= names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cluster", "nowhere"), "nowhere"),
        (("--link", "a->b"), "a->b"),
        (("--command", "mirror", "--replay-to", "x"), "--replay-to"),
        (("--format", "strimzi", "--principal", "CN=a,O=b"), "CN=a,O=b"),
    ],
)
def test_what_is_refused(acls, words, said):
    found = document(acls(*words, "--output", "json", code=2), "error")
    assert said in found["error"]["what"]
