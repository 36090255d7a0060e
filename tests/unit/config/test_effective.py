"""Every value with its origin, and no secret among them, however it is written."""

import json
import stat
import tomllib
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config.effective import HIDDEN, effective_settings, without_credentials
from drkit.config.load import key_lines, read_sources
from drkit.config.schema.config import toml_schema

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
HELD = "wX9pq"
SECRET_FILE = f"""
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
client = {{ "security.protocol" = "SASL_SSL", "sasl.mechanism"="PLAIN", "sasl.username"="me", "sasl.password"="{HELD}"}}

[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
[clusters.dr.client]
"security.protocol" = "SASL_SSL"
"sasl.mechanisms" = "OAUTHBEARER"
"sasl.oauthbearer.method" = "oidc"
"sasl.oauthbearer.client.id" = "drkit"
"sasl.oauthbearer.client.secret" = {{ env = "OAUTH_SECRET" }}
"sasl.oauthbearer.token.endpoint.url" = "https://u:{HELD}@login.example/token?key={HELD}"
[clusters.dr.fence]
command = ["/opt/close", "--token", "{HELD}"]
unfence = ["/opt/open"]
client = {{ "security.protocol" = "SSL", "ssl.key.password" = "{HELD}" }}

[store]
url = "cassandra://me:{HELD}@h1:9042/drkit?dc=dr&password={HELD}"

[[links]]
source = "primary"
target = "dr"
topics = [
  "flights",  # kept apart
  "orders[.].*",
]
[[links.topic_settings.topics]]
match = "flights"

[[directory]]
url = "etcd://h:2379/drkit"
user = "me"
password = "{HELD}"

[[directory]]
command = ["/opt/publish", "{HELD}"]

[hooks]
pre_failover = [["/opt/notify", "{HELD}"], ["/opt/other"]]
audit_alert_url = "https://hooks.example/{HELD}"
"""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    monkeypatch.setenv("OAUTH_SECRET", HELD)

    def _sources(text: str):
        path = tmp_path / "drkit.toml"
        path.write_text(text)
        return read_sources(path)

    return _sources


def run(*arguments: str):
    return CliRunner().invoke(application(("config",)), ["config", *arguments])


def test_no_secret_is_shown_however_it_is_written(sources, monkeypatch):
    file = sources(SECRET_FILE).file
    monkeypatch.setenv("DRKIT_CLUSTERS__PRIMARY__CLIENT", json.dumps({"sasl.password": HELD + "2"}))
    for mode in ("json", "human"):
        done = run("show", "--config", str(file), "--output", mode)
        assert done.exit_code == 0, done.output
        assert HELD not in done.output
        assert "https://login.example/token" in done.output
    shown = {each.key: each for each in effective_settings(sources(SECRET_FILE))}
    assert shown['clusters.dr.client."sasl.oauthbearer.client.secret"'].value == {"env": "OAUTH_SECRET"}
    assert shown['clusters.primary.client."sasl.password"'].value == HIDDEN
    assert shown['clusters.primary.client."sasl.username"'].value == "me"
    assert shown["store.url"].value == f"cassandra://me:{HIDDEN}@h1:9042/drkit?dc=dr&password={HIDDEN}"
    assert shown["hooks.pre_failover"].value == [["/opt/notify", HIDDEN], ["/opt/other"]]
    assert all(each.hidden for each in shown.values() if HIDDEN in str(each.value))


@pytest.mark.parametrize(
    "url",
    [
        f"cassandra://me:{HELD}@h/k?dc=dr",
        f"cassandra://{HELD}@h/k",
        f"cassandra://me:{HELD}/k",
        f"cassandra://me:{HELD}",
        f"cassandra://me:{HELD}/@{HELD}@h/k",
        f"postgres://me:{HELD}@h/k",
        f"sqlite:///a.db?password={HELD}",
        HELD,
        f"cassandra://h/k?dc=dr&token={HELD}",
    ],
)
def test_a_stores_url_hides_what_may_be_a_password(url):
    assert HELD not in without_credentials(url)


def test_each_value_says_what_gave_it(sources, monkeypatch):
    monkeypatch.setenv("DRKIT_OBJECTIVES__RPO_RECORDS", "7")
    found = sources(SECRET_FILE)
    by = {each.key: each for each in effective_settings(found)}
    text = found.text.splitlines()

    def stands(key: str) -> str:
        return text[by[key].line - 1]

    assert stands('clusters.primary.client."sasl.password"').startswith("client = {")
    assert stands('clusters.dr.client."security.protocol"') == '"security.protocol" = "SASL_SSL"'
    assert stands("links.0.topics") == "topics = ["
    assert stands("links.0.topic_settings.topics.0.match") == 'match = "flights"'
    assert stands("directory.1.command").startswith("command = [")
    assert (by["links.0.offsets"].origin, by["links.0.offsets"].line) == ("default", None)
    rpo = by["objectives.rpo_records"]
    assert (rpo.value, rpo.origin, rpo.variable) == (7, "environment", "DRKIT_OBJECTIVES__RPO_RECORDS")


def test_one_directory_as_a_table_has_its_lines(sources):
    by = {
        each.key: each
        for each in effective_settings(
            sources(SECRET_FILE[: SECRET_FILE.index("[[directory]]")] + '[directory]\nurl = "file:///tmp/entry"\n')
        )
    }
    assert by["directory.0.url"].line is not None


def test_lines_of_keys_that_toml_can_write_in_many_ways():
    text = '# c\na.b = 1\n"x.y" = """\n[z]\n"""\n\n[t.u]\nv = [\n [1, 2], # ],\n\n 3,\n]\n'
    text += "[[n]]\n[[n.m]]\nk=1\n[[n]]\nk = {p=1}\n"
    tomllib.loads(text)
    lines = key_lines(text)
    assert lines["a", "b"] == 2
    assert lines["x.y",] == 3
    assert lines["t", "u", "v"] == 8
    assert lines["n", "0", "m", "0", "k"] == 15
    assert lines["n", "1", "k", "p"] == 17
    assert ("z",) not in lines


def test_the_documents_are_as_their_schemas_say(sources):
    file = sources(SECRET_FILE.replace(f"&password={HELD}", "")).file
    file.chmod(0o644)
    for verb, name in (("show", "config-show"), ("check", "config-check")):
        done = run(verb, "--config", str(file), "--output", "json")
        jsonschema.validate(json.loads(done.stdout), json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def test_a_check_names_key_value_and_remedy_of_each_thing_that_is_wrong(sources):
    file = sources(SECRET_FILE).file
    file.chmod(0o644)
    done = run("check", "--config", str(file), "--output", "json")
    assert done.exit_code == 2
    document = json.loads(done.stdout)
    assert HELD not in done.output
    failed = {each["key"]: each for each in document["checks"] if each["outcome"] == "fail"}
    assert "unknown parameter 'password'" in failed["store.url"]["reason"]
    assert "token.endpoint.url must be" in failed["clusters.dr.client"]["reason"]
    assert "/opt/notify" in failed["hooks.pre_failover.0"]["reason"]
    assert "/opt/publish" in failed["directory.1.command"]["reason"]
    assert all(each["remedy"] for each in failed.values())
    assert document["outcome"] == "fail"
    warned = [each for each in document["checks"] if each["check"] == "secrets in the file"]
    assert "chmod 600" in warned[0]["remedy"]


def test_a_good_configuration_is_checked_without_a_cluster(tmp_path):
    file = tmp_path / "drkit.toml"
    file.write_text(
        '[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n[clusters.b]\nbootstrap_servers = "127.0.0.1:2"\n'
        '[[links]]\nsource = "a"\ntarget = "b"\n'
    )
    done = run("check", "--config", str(file), "--output", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["outcome"] == "ok"
    assert not (tmp_path / "drkit.db").exists()


def test_connecting_finds_what_does_not_answer(tmp_path):
    file = tmp_path / "drkit.toml"
    file.write_text('[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n')
    done = run("check", "--connect", "--timeout", "0.5", "--config", str(file), "--output", "json")
    assert done.exit_code == 2
    checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert (checks["cluster answers"]["outcome"], checks["cluster answers"]["key"]) == ("fail", "clusters.a")
    assert checks["store opens"]["outcome"] == "warn", "there is none yet; nothing creates it"
    assert not (tmp_path / "drkit.db").exists()


def test_a_file_that_only_its_owner_reads_may_hold_secrets(sources):
    file = sources(SECRET_FILE).file
    file.chmod(stat.S_IRUSR)
    assert "secrets in the file" not in run("check", "--config", str(file)).output


def test_the_schema_for_editors_is_that_of_the_code():
    printed = json.loads(run("schema").stdout)
    kept = json.loads((SCHEMAS / "drkit.toml.schema.json").read_text())
    assert printed == toml_schema() == kept, "run: drkit config schema > docs/schemas/drkit.toml.schema.json"
    jsonschema.Draft202012Validator.check_schema(kept)
    valid = jsonschema.Draft202012Validator(kept)
    assert not list(valid.iter_errors(tomllib.loads(SECRET_FILE)))
    for wrong in ('[store]\nurk = "x"', '[clusters.a]\nbootstrap_servers = "h:1"\nclient = { "linger.ms" = 1 }'):
        assert list(valid.iter_errors(tomllib.loads(wrong)))
