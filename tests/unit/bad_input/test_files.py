"""Files that are no plan, experiment, backup, bundle, key or certificate: refused by their name, and left alone."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess

import pytest
import trustme

from drkit.failover.plan.failover_plan import write_plan
from drkit.failover.planning.failover_planner import PlanRequest, plan_for
from drkit.store import open_store
from tests.support.commands.bad_input import CONFIG, Bad, refused, rows
from tests.unit.failover.plan.worlds import Log, position, world

PLAN = "failover --plan plan.json"
PLAYED = "drill run night.yaml"
FULL = "/dev/full"


def with_store(folder):
    open_store(f"sqlite:///{folder}/drkit.db").close()


def kept_plan(folder, change=lambda text: text):
    with_store(folder)
    plan = plan_for(world([Log("rrrr").view()], [position(1)]), PlanRequest("dr"), endpoint="127.0.0.1:2")
    write_plan(plan, folder / "plan.json")
    file = folder / "plan.json"
    file.write_text(change(file.read_text()))


def edited(text):
    body = json.loads(text)
    body["plan"]["positions"][0]["target_offset"] = 0
    return json.dumps(body)


def plan(what, content, *names, **more):
    return Bad(what, PLAN, ("plan.json", *names), files={"plan.json": content}, prepare=with_store, **more)


def experiment(what, content, *names, **more):
    return Bad(what, PLAYED, ("night.yaml", *names), files={"night.yaml": content}, **more)


def backup(what, content, *names, code=1, **more):
    restore = "store restore --from backup.gz"
    return Bad(
        what, restore, ("backup.gz", *names), code=code, files={"backup.gz": content}, prepare=with_store, **more
    )


def findings(what, content, *names):
    command = "evidence export 01J0 --out evidence --findings findings.toml"
    files = {"findings.toml": content}
    return Bad(what, command, ("--findings", "findings.toml", *names), files=files, prepare=with_store)


TITLED = "title: a night\n"
HEAD = {"format": "drkit-store-backup", "version": 1, "schema": 1, "backend": "sqlite", "created_at": "x"}
ROWS = [
    # plans
    Bad("no plan", PLAN, ("plan.json",), prepare=with_store, remedy="--out FILE"),
    plan("an empty plan", "", "plan.json"),
    plan("a plan of another program", "[]"),
    plan("a plan of another version", '{"format": "drkit-failover-plan/9"}', "drkit-failover-plan/1"),
    plan("a plan of bytes", b"\xff\xfe\x00"),
    plan("a plan nested by the thousand", "[" * 90_000),
    plan("a plan with a number of thousands of digits", '{"a": ' + "9" * 9000 + "}"),
    plan("a plan of nothing but its format", '{"format": "drkit-failover-plan/1"}', "damaged"),
    plan("a site's plan of nothing but its format", '{"format": "drkit-site-plan/1", "plan": []}', "damaged"),
    Bad("a plan that was truncated", PLAN, ("plan.json",), prepare=lambda d: kept_plan(d, lambda text: text[:-200])),
    Bad("a plan that was edited", PLAN, ("plan.json", "changed"), prepare=lambda d: kept_plan(d, edited)),
    Bad(
        "a plan of a link that isn't configured",
        PLAN,
        ("primary->dr",),
        config=CONFIG.replace('"dr"', '"site2"').replace("clusters.dr", "clusters.site2"),
        prepare=kept_plan,
    ),
    Bad("a plan and another cluster", f"{PLAN} --to primary", ("--to",), prepare=kept_plan),
    Bad("a plan and another group", f"{PLAN} --group other", ("--group",), prepare=kept_plan),
    Bad("a folder as a plan", "failover --plan .", (".", "plan"), prepare=with_store),
    Bad("a device as a plan", "failover --plan /proc/self/mem", ("/proc/self/mem",), prepare=with_store),
    # experiments
    Bad("no experiment", "drill run gone.yaml", ("gone.yaml",)),
    experiment("an empty experiment", "", "empty"),
    experiment("an experiment of bytes", b"\xff\xfe"),
    experiment("an experiment that is no YAML", "title: [", ":1"),
    experiment("an experiment with tabs", "title: x\n\tmethod: y\n", ":2"),
    experiment("an experiment that is a list", "- a\n- b\n", ":1", "mapping"),
    experiment("an experiment without a method", TITLED, "method"),
    experiment("an experiment with a misspelt key", f"{TITLED}methd: []\nmethod: []\n", ":2", "methd"),
    experiment("an experiment with a key twice", f"{TITLED}{TITLED}", ":2", "title", "twice"),
    experiment("an experiment that contains itself", f"{TITLED}method: &a [*a]\n", "itself"),
    experiment("an experiment nested by the thousand", "[" * 1200, "deep"),
    experiment("an experiment of several documents", f"{TITLED}---\n{TITLED}"),
    experiment("an experiment that runs code", "!!python/object/apply:os.system ['true']\n"),
    Bad("a folder without experiments", "drill run empty", ("empty",), prepare=lambda d: (d / "empty").mkdir()),
    # backups
    Bad("no backup", "store restore --from gone.gz", ("gone.gz",), prepare=with_store),
    backup("a backup that is no gzip", b"hello", "not a complete backup"),
    backup("an empty backup", b""),
    backup("a backup that is truncated", gzip.compress(b'{"format": "drkit-store-backup"}\n')[:-9]),
    backup(
        "a backup with a byte changed",
        gzip.compress(b"x" * 100)[:14] + b"\xff\xff\xff\xff" + gzip.compress(b"x" * 100)[18:],
    ),
    backup("a backup of another program", gzip.compress(b'{"a": 1}\n'), "its first line is not"),
    backup(
        "a backup of another version",
        gzip.compress(json.dumps(HEAD | {"version": 2}).encode() + b"\n"),
        "format 2",
        code=3,
    ),
    backup("a backup without its end", gzip.compress(json.dumps(HEAD).encode() + b"\n"), "truncated"),
    backup("a backup nested by the thousand", gzip.compress(b"[" * 90_000)),
    Bad(
        "a backup over a file",
        "store backup --out there.gz",
        ("there.gz",),
        code=3,
        files={"there.gz": "x"},
        prepare=with_store,
    ),
    Bad("a backup into no folder", "store backup --out no/where.gz", ("no/where.gz",), prepare=with_store),
    Bad(
        "a backup where nothing can be made",
        "store backup --out /proc/x.gz",
        ("/proc/x.gz",),
        code=1,
        prepare=with_store,
    ),
    # evidence
    Bad("no bundle", "evidence verify gone", ("gone",)),
    Bad("a bundle that is a file", "evidence verify drkit.toml", ("drkit.toml",)),
    Bad("a key to verify with that isn't there", "evidence verify . --key gone.pub", ("--key", "gone.pub")),
    Bad("anchors that aren't there", "evidence verify . --anchors gone", ("--anchors", "gone")),
    Bad("a key over a key", "evidence key --out my.key", ("my.key",), code=3, files={"my.key": "x"}),
    Bad("a key where nothing can be made", "evidence key --out /proc/my.key", ("/proc/my.key",), code=1),
    findings("findings that are no TOML", "x = "),
    findings("findings of bytes", b"\xff"),
    findings("findings with a misspelt key", "[[findng]]\n", "findng"),
    findings("findings nested by the thousand", "x = " + "[" * 9000),
    # what is to be written
    Bad(
        "a configuration over a file",
        "init --offline --source h:1 --target i:1",
        ("drkit.toml",),
        code=3,
        remedy="--config",
    ),
    Bad(
        "a configuration into no folder",
        "init --offline --source h:1 --target i:1 --config no/drkit.toml",
        ("no/drkit.toml",),
        code=1,
        config=None,
    ),
    Bad(
        "a configuration on a full disk",
        f"init --offline --source h:1 --target i:1 --config {FULL}",
        (FULL,),
        code=3,
        config=None,
    ),
    Bad("a configuration without clusters", "init", ("--source",), config=None),
    Bad("a configuration of one server", "init --source h:1", ("--target",), config=None),
    Bad(
        "a configuration of one alias",
        "init --offline --source a=h:1 --target a=i:1",
        ("--source", "--target", "a"),
        config=None,
    ),
    Bad(
        "a configuration of a bad alias",
        "init --offline --source 'a b=h:1' --target i:1",
        ("--source", "a b"),
        config=None,
    ),
    Bad(
        "a configuration of a bad server",
        "init --offline --source h --target i:1",
        ("bootstrap_servers", "'h'"),
        config=None,
    ),
    Bad(
        "a configuration with a bad pattern",
        "init --offline --source h:1 --target i:1 --topic '('",
        ("topics", "'('"),
        config=None,
    ),
    Bad(
        "a configuration with a secret",
        "init --offline --source h:1 --target i:1 --source-client sasl.password=sesame",
        ("sasl.password",),
        config=None,
        remedy="--source-client",
    ),
    Bad(
        "a configuration with a secret in the store",
        "init --offline --source h:1 --target i:1 --store cassandra://u:sesame@h/k",
        ("--store",),
        config=None,
        remedy="env:",
    ),
    Bad(
        "a configuration with half a property",
        "init --offline --source h:1 --target i:1 --target-client ssl",
        ("--target-client", "ssl"),
        config=None,
    ),
]


@rows(ROWS)
def test_it_is_refused_by_its_name(bad, tmp_path, monkeypatch):
    refused(bad, tmp_path, monkeypatch)


TLS = """
[clusters.primary.client]
"security.protocol" = "SSL"
"ssl.ca.location" = "ca.pem"
"ssl.certificate.location" = "own.pem"
"ssl.key.location" = "own.key"
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with the files of `TLS`, all of them good, and some others."""
    folder = tmp_path_factory.mktemp("tls")
    made = trustme.CA()
    own, other = made.issue_cert("drkit"), made.issue_cert("other")
    made.cert_pem.write_to_path(folder / "ca.pem")
    own.cert_chain_pems[0].write_to_path(folder / "own.pem")
    own.private_key_pem.write_to_path(folder / "own.key")
    other.private_key_pem.write_to_path(folder / "other.key")
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", "own.key", "-out", "locked.key", "-passout", "pass:sesame"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


def properties(what, lines, *names):
    """A client's properties that no client takes."""
    config = CONFIG.replace(
        'servers = "127.0.0.1:1"\n', f'servers = "127.0.0.1:1"\n[clusters.primary.client]\n{lines}\n'
    )
    return Bad(
        what,
        "status --timeout 0.1",
        ("drkit.toml", "clusters.primary.client", *names),
        config=config,
        prepare=with_store,
    )


def certificates(what, old, new, *names, **files):
    bad = properties(what, TLS.partition("]\n")[2].replace(old, new), *names)
    return bad, files


SASL = '"security.protocol" = "SASL_PLAINTEXT"\n'
PROPERTIES = [
    properties("a protocol that there isn't", '"security.protocol" = "TLS"', "security.protocol", "SASL_SSL"),
    properties("an empty protocol", '"security.protocol" = ""', "security.protocol"),
    properties("a password without a protocol", '"sasl.password" = "sesame"', "sasl.password", "SASL_SSL"),
    properties("SASL without a mechanism", SASL, "sasl.mechanisms"),
    properties("SASL by a mechanism that there isn't", f'{SASL}"sasl.mechanisms" = "MD5"', "SCRAM-SHA-512"),
    properties("SASL by Kerberos", f'{SASL}"sasl.mechanisms" = "GSSAPI"', "GSSAPI"),
    properties(
        "SASL without a user", f'{SASL}"sasl.mechanisms" = "PLAIN"\n"sasl.password" = "sesame"', "sasl.username"
    ),
    properties("SASL without a password", f'{SASL}"sasl.mechanisms" = "PLAIN"\n"sasl.username" = "u"', "sasl.password"),
    properties(
        "two mechanisms", f'{SASL}"sasl.mechanisms" = "PLAIN"\n"sasl.mechanism" = "SCRAM-SHA-256"', "sasl.mechanism"
    ),
    properties("a certificate without TLS", '"ssl.ca.location" = "x"', "ssl.ca.location", "SSL"),
    properties("a timeout that is a word", '"socket.timeout.ms" = "long"', "socket.timeout.ms", "300,000"),
    properties("a timeout that no client takes", '"socket.timeout.ms" = 999999999', "socket.timeout.ms", "300,000"),
    properties("a timeout of thousands of digits", f'"socket.timeout.ms" = "{"9" * 5000}"', "socket.timeout.ms"),
]
CERTIFICATES = [
    certificates("an authority that isn't there", "ca.pem", "gone.pem", "ssl.ca.location"),
    certificates("an authority that is a folder", "ca.pem", ".", "ssl.ca.location"),
    certificates(
        "an authority that is garbage", "ca.pem", "garbage", "ssl.ca.location", "garbage", garbage=b"\x00\xff"
    ),
    certificates("an authority that is a key", "ca.pem", "own.key", "ssl.ca.location", "own.key"),
    certificates("a certificate that isn't there", "own.pem", "gone.pem", "ssl.certificate.location", "gone.pem"),
    certificates(
        "a certificate that is garbage", "own.pem", "garbage", "ssl.certificate.location", "garbage", garbage=b"x"
    ),
    certificates("a key that isn't there", "own.key", "gone.key", "ssl.key.location", "gone.key"),
    certificates("a key that is garbage", "own.key", "garbage", "ssl.key.location", "garbage", garbage=b"x"),
    certificates("the key of another certificate", "own.key", "other.key", "ssl.key.location", "other.key", "own.pem"),
    certificates("a locked key without its password", "own.key", "locked.key", "ssl.key.password", "locked.key"),
    certificates("a certificate without its key", '"ssl.key.location" = "own.key"', "", "ssl.key.location"),
]


@rows(PROPERTIES)
def test_properties_that_no_client_takes_are_named(bad, tmp_path, monkeypatch):
    refused(bad, tmp_path, monkeypatch)


@pytest.mark.parametrize(("bad", "files"), CERTIFICATES, ids=[bad.what.replace(" ", "-") for bad, _ in CERTIFICATES])
def test_certificates_that_can_not_be_used_are_named(bad, files, authority, tmp_path, monkeypatch):
    shutil.copytree(authority, tmp_path, dirs_exist_ok=True)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    refused(bad, tmp_path, monkeypatch)
