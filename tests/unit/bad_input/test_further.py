"""Wrong things beyond the other tables: what a stranger got wrong by use."""

from __future__ import annotations

from drkit.store import open_store
from tests.support.commands.bad_input import CONFIG, Bad, changed, refused, rows

FILE = "drkit.toml"
SERVERS = 'bootstrap_servers = "127.0.0.1:1"\n'
FAILOVER = "failover --to dr --dry-run"


def with_store(folder):
    open_store(f"sqlite:///{folder}/drkit.db").close()


def stored(what, command, *names, **more):
    return Bad(what, command, names, prepare=with_store, **more)


def client(what, lines, *names, **more):
    text = changed(CONFIG, SERVERS, f"{SERVERS}[clusters.primary.client]\n{lines}\n")
    return Bad(what, "mirror --until-caught-up", (FILE, *names), config=text, **more)


def added(what, text, *names, command="status", **more):
    return Bad(what, command, (FILE, *names), config=f"{CONFIG}\n{text}\n", **more)


def store(what, query, *names, **more):
    text = changed(CONFIG, "sqlite:///drkit.db", f"cassandra://127.0.0.1:1/drkit?dc=dr{query}")
    return Bad(what, "status", ("store.url", *names), config=text, **more)


IAM = '"security.protocol" = "SASL_SSL"\n"sasl.mechanisms" = "AWS_MSK_IAM"\n'
ROWS = [
    # TLS to the store
    store("tls that is no word", "&tls=1", "tls='1'"),
    store("an authority without tls", "&tls=false&ca=x.pem", "tls=false"),
    store("an authority that isn't there", "&ca=none.pem", "ca=none.pem"),
    store("an authority that is a folder", "&ca=.", "ca=."),
    store("an authority that is none", "&ca=drkit.toml", "ca=drkit.toml"),
    store("a certificate without its key", "&certificate=drkit.toml", "key"),
    store("a key that is none", "&certificate=drkit.toml&key=drkit.toml", "key=drkit.toml"),
    # Amazon MSK
    client("IAM in an unknown region", IAM, "region", remedy="AWS_REGION"),
    client("IAM with a password", f'{IAM}"sasl.password" = "sesame"', "sasl.password", "AWS_MSK_IAM"),
    client("IAM without TLS", IAM.replace("SASL_SSL", "SASL_PLAINTEXT"), "SASL_SSL"),
    # flags
    stored("an empty group", [*FAILOVER.split(), "--group", ""], "--group"),
    stored("a group to translate without a name", ["translate", "--group", ""], "--group"),
    stored("an empty topic to show", ["status", "--topic", ""], "--topic"),
    stored("an empty topic to pause", ["link", "pause", "primary->dr", "--topic", ""], "--topic"),
    stored("a topic to pause that isn't mirrored", "link pause 'primary->dr' --topic nope", "nope"),
    stored("a pattern as a topic to pause", ["link", "pause", "primary->dr", "--topic", "fl.*"], "fl.*"),
    stored("a loss of nothing", [*FAILOVER.split(), "--accept-loss", ""], "--accept-loss"),
    stored("an empty plan's name", ["failover", "--plan", ""], "the plan"),
    stored("a plan into no folder", "failover --to dr --out none/plan.json", "--out", "none"),
    stored("an empty plan to write", ["failover", "--to", "dr", "--out", ""], "--out"),
    stored("a plan and a dry run to another cluster", "failover --plan p --to primary", "p"),
    stored("a failback to a cluster that there isn't", "failback --to x --dry-run", "'x'", "primary"),
    stored("a failback to the target", "failback --to dr --dry-run", "dr", code=3),
    stored("a wave's link as a failback's", "failback --dry-run --link x", "--link", "x"),
    stored("an empty link to reprotect", ["reprotect", "--dry-run", "--link", ""], "--link"),
    stored("a cluster to recover from that there isn't", "store recover --from x", "x", "dr"),
    stored("a cluster to recover from that nothing leads to", "store recover --from primary", "primary"),
    Bad("a backup of no name", ["store", "restore", "--from", ""], ("directory",), code=1),
    Bad("a text as a backup", "store restore --from drkit.toml", ("drkit.toml",), code=1),
    Bad("a replay into no topic", ["salvage", "--out", "x", "--replay-to", ""], ("--replay-to",)),
    Bad("a replay into an internal topic", "salvage --out x --replay-to __consumer_offsets", ("__consumer_offsets",)),
    Bad("an audit of no topic", ["audit", "--topic", ""], ("--topic",)),
    Bad(
        "an audit until before its begin",
        "audit --from 2026-01-02T00:00Z --until 2026-01-01T00:00Z",
        ("--from", "--until"),
    ),
    Bad("an audit from the future", "audit --from 2099-01-01T00:00Z", ("--from", "future")),
    Bad("a history of nothing", "audit history --last 0", ("--last",)),
    Bad("an audit of a link that there isn't", "audit --link 'a->b'", ("a->b", "primary->dr")),
    stored("a watch of a link that there isn't", "audit watch --link 'a->b'", "a->b"),
    Bad("an init over a file", "init --source a:1 --target b:1 --offline", (FILE,), code=3),
    Bad("an init of one cluster", "init --source a:1 --offline", ("--target",), config=None),
    Bad(
        "an init of a server without a port",
        "init --source a --target b:1 --offline",
        ("'a'", "host:port"),
        config=None,
    ),
    Bad("an init of two of one name", "init --source x=a:1 --target x=b:1 --offline", ("x",), config=None),
    Bad(
        "an init with a password written out",
        "init --source a:1 --target b:1 --offline --source-client sasl.password=sesame",
        ("sasl.password",),
        config=None,
    ),
    Bad(
        "an init with a property that there isn't",
        "init --source a:1 --target b:1 --offline --source-client acks=all",
        ("acks",),
        config=None,
    ),
    Bad(
        "an init by a bad pattern",
        ["init", "--source", "a:1", "--target", "b:1", "--offline", "--topic", "("],
        config=None,
    ),
    # tables
    added("approvals of one", "[approvals.operators]\nana = 'a.pub'", "approvals"),
    Bad("a page on all addresses without a token", "serve --listen 0.0.0.0:9404", ("serve.token", "127.0.0.1")),
    Bad(
        "a page with a short token",
        "serve",
        ("serve.token", "16"),
        config=f"{CONFIG}\n[serve]\ntoken = 'sesame'\n",
    ),
    added("a page with a certificate without its key", "[serve]\ncertificate = 'c.pem'", "serve"),
    Bad("a page on no port", "serve", ("localhost", "HOST:PORT"), config=f"{CONFIG}\n[serve]\nlisten = 'localhost'\n"),
    added("drills every no days", "[drills]\nevery_days = 0", "drills.every_days"),
    added("a wave after nothing that is a command", "[[waves]]\nname = 'a'\nafter = ['check']", "waves.0.after"),
    added("two waves of one name", "[[waves]]\nname = 'a'\n[[waves]]\nname = 'a'", "waves", "a"),
    Bad("a lab in a file", "lab up --dir drkit.toml/x --store sqlite", ("drkit.toml",), code=3),
    Bad("a lab over somebody's file", "lab up --dir . --store sqlite", (FILE,), code=3),
    Bad(
        "a lab whose folder's name Kafka can't have",
        ["lab", "up", "--dir", "a,b", "--store", "sqlite"],
        ("a,b",),
        code=3,
    ),
    Bad("a load to a cluster that the lab lacks", "lab load flights --cluster x --dir nowhere", ("nowhere",), code=3),
    Bad("a limit of nothing", "lab load flights --limit 0 --dir nowhere", ("limit",)),
    Bad("a rate of nothing", "lab load flights --rate 0 --dir nowhere", ("rate",)),
    Bad("a drill of a file that is none", "drill run drkit.toml", (FILE,)),
    Bad("a drill on an estate to nowhere", "drill run --target estate --to x", ("x",)),
    Bad("jars from an address with a password", "jars fetch --repository https://a:sesame@h/", ("--repository",)),
    Bad("jars from no address", ["jars", "fetch", "--repository", "nowhere"], ("--repository",)),
]


@rows(ROWS)
def test_it_is_refused(bad, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    refused(bad, tmp_path, monkeypatch)
