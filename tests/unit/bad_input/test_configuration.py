"""Wrong configurations: each is refused by every command that reads it, by file, line and key."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.support.commands.bad_input import CONFIG, Bad, changed, lay, refused, rows, settle
from tests.support.commands.in_process import in_process

COMMANDS = (
    "config show",
    "status",
    "config check",
    "doctor --to dr",
    "acls",
    "failover --to dr --dry-run",
    "runs",
    "translate --group billing",
    "endpoint --group billing",
    "fence",
    "resume",
    "link pause 'primary->dr'",
    "store backup --out backup.gz",
    "serve",
    "abandon 01J0",
    "failback --dry-run",
    "audit",
    "evidence export 01J0 --out evidence",
    "mirror --until-caught-up",
    "salvage --out salvaged",
)
"""Each row is refused by one of them; which one matters to none."""
FILE = "drkit.toml"


def wrong(what, old, new, *names, **more):
    return Bad(what, "", (FILE, *names), config=changed(CONFIG, old, new), **more)


def added(what, text, *names, **more):
    return Bad(what, "", (FILE, *names), config=f"{CONFIG}\n{text}\n", **more)


def link(what, line, *names, **more):
    return wrong(what, 'target = "dr"\n', f'target = "dr"\n{line}\n', *names, **more)


def client(what, lines, *names, **more):
    return wrong(
        what,
        'bootstrap_servers = "127.0.0.1:1"\n',
        f'bootstrap_servers = "127.0.0.1:1"\n[clusters.primary.client]\n{lines}\n',
        *names,
        **more,
    )


def variable(what, name, value, *names, **more):
    return Bad(what, "", (name, *names), variables={name: value}, **more)


SERVERS = 'bootstrap_servers = "127.0.0.1:1"'
SQLITE = 'url = "sqlite:///drkit.db"'
ROWS = [
    # the file itself
    Bad("no file", "", (FILE,), config=None, remedy="drkit init"),
    Bad("an empty file", "", (FILE, "clusters"), config=""),
    Bad("a file that is not UTF-8", "", (f"{FILE}:2", "0xff"), config=b'# one\nx = "\xff\xfe"\n', remedy="UTF-8"),
    Bad("a file in UTF-16", "", (f"{FILE}:1", "0xff"), config=CONFIG.encode("utf-16"), remedy="UTF-8"),
    Bad("NUL bytes", "", (FILE, "line 1"), config=b"\x00\x00\x00"),
    Bad("a NUL in a string", "", (FILE,), config=CONFIG.replace("flights", "fli\x00ghts")),
    Bad("a control character in a string", "", (FILE, "line 13"), config=CONFIG.replace("flights", "fli\x1bghts")),
    Bad("a folder as the file", "", (FILE, "directory"), config=None, prepare=lambda d: (d / FILE).mkdir()),
    Bad("a link to itself as the file", "", (FILE,), config=None, prepare=lambda d: (d / FILE).symlink_to(FILE)),
    Bad("a link that leads nowhere", "", (FILE,), config=None, prepare=lambda d: (d / FILE).symlink_to("gone")),
    Bad("a file that can't be read", "", ("/proc/self/mem",), variables={"DRKIT_CONFIG": "/proc/self/mem"}),
    Bad("a device without an end", "", ("/dev/zero", "larger"), variables={"DRKIT_CONFIG": "/dev/zero"}),
    Bad("a path through a file", "", (f"{FILE}/x",), variables={"DRKIT_CONFIG": f"{FILE}/x"}),
    Bad("a name that is too long", "", ("too long",), variables={"DRKIT_CONFIG": "x" * 300}),
    Bad("binary", "", (FILE,), config=bytes(range(256)) * 4),
    Bad("a line that is cut off", "", (FILE, "end of document"), config="[clusters.prim"),
    Bad("a string that doesn't end", "", (FILE, "line 2"), config='[clusters.a]\nbootstrap_servers = "h:1\n'),
    Bad("YAML", "", (FILE, "line 1"), config="clusters:\n  primary: {}\n"),
    Bad("JSON", "", (FILE, "line 1"), config='{"clusters": {}}'),
    Bad("a shell's assignment", "", (FILE, "line 1"), config="export A=1\n"),
    Bad("arrays nested by the thousand", "", (FILE, "deep"), config="x = " + "[" * 9000),
    Bad("a number of thousands of digits", "", (FILE,), config="x = " + "9" * 9000),
    Bad("a date that there isn't", "", (FILE,), config="x = 2026-02-30\n"),
    wrong("a key given twice", SERVERS, f"{SERVERS}\n{SERVERS}", "line 3", "bootstrap_servers"),
    wrong("a secret key given twice", SERVERS, f'{SERVERS}\nx = "sesame"\nx = "sesame"', "line 4", "x"),
    wrong("a table given twice", "[clusters.dr]", "[clusters.primary]", "line 4", "[clusters.primary]"),
    # tables and keys
    Bad("no clusters", "", (FILE, "clusters"), config="[store]\n"),
    Bad("clusters as a number", "", (FILE, "clusters"), config="clusters = 3\n"),
    Bad("clusters as a list", "", (FILE, "clusters"), config="clusters = []\n"),
    wrong("a misspelt table", "[objectives]", "[objectvies]", "objectvies", "objectives", f"{FILE}:15"),
    wrong("a misspelt key", "rpo_records", "rpo_recrods", "objectives.rpo_recrods", "rpo_records", f"{FILE}:16"),
    wrong("a misspelt key of a link", "topics =", "topcis =", "links.0.topcis", "topics", f"{FILE}:13"),
    wrong("a misspelt key of a cluster", SERVERS, 'bootstrap_server = "h:1"', "clusters.primary", "bootstrap_servers"),
    added("a key that is like no other", "zzz = 1", "objectives.zzz", "unknown"),
    link("links within links", "[links.links]", "links.0.links"),
    wrong("a link as a text", "[[links]]\n", 'links = "a->b"\n[other]\n', "links"),
    # clusters
    wrong("no servers", f"{SERVERS}\n", "", "clusters.primary.bootstrap_servers"),
    wrong("empty servers", SERVERS, 'bootstrap_servers = ""', "clusters.primary.bootstrap_servers"),
    wrong("servers as a list", SERVERS, 'bootstrap_servers = ["h:1"]', "clusters.primary.bootstrap_servers", "string"),
    wrong("a server without a port", SERVERS, 'bootstrap_servers = "kafka-1"', "kafka-1", "host:port"),
    wrong("a port without a server", SERVERS, 'bootstrap_servers = ":9092"', ":9092", "host:port"),
    wrong("a URL as a server", SERVERS, 'bootstrap_servers = "http://kafka-1:9092"', "http://kafka-1:9092"),
    wrong("a host of an empty part", SERVERS, 'bootstrap_servers = "a..b:9092"', "a..b:9092", "63"),
    wrong("a host of too long a part", SERVERS, f'bootstrap_servers = "{"x" * 64}.eu:9092"', "xxx", "63"),
    wrong("port 0", SERVERS, 'bootstrap_servers = "kafka-1:0"', "kafka-1:0", "65535"),
    wrong("port 65536", SERVERS, 'bootstrap_servers = "kafka-1:65536"', "kafka-1:65536", "65535"),
    wrong("a port of many digits", SERVERS, f'bootstrap_servers = "k:{"9" * 500}"', "65535"),
    wrong("a negative port", SERVERS, 'bootstrap_servers = "kafka-1:-1"', "kafka-1:-1"),
    wrong("a port in other digits", SERVERS, 'bootstrap_servers = "kafka-1:٣"', "host:port"),
    wrong("a comma too many", SERVERS, 'bootstrap_servers = "k:1,"', "host:port"),
    wrong("an address without brackets", SERVERS, 'bootstrap_servers = "::1:9092"', "::1:9092"),
    wrong("an alias with an arrow", "[clusters.dr]", '[clusters."a->b"]', "a->b", "alias"),
    wrong("an empty alias", "[clusters.dr]", '[clusters.""]', "alias"),
    wrong("an alias with a blank", "[clusters.dr]", '[clusters."my dr"]', "my dr", "alias"),
    client("a property that there isn't", '"ssl.ca.loction" = "x"', "ssl.ca.loction", "ssl.ca.location"),
    client("a property of a producer", '"acks" = "all"', "acks", "clusters.primary.client"),
    client("a property as a table", '"client.id" = { x = 1 }', "clusters.primary.client", "client.id"),
    client("a property as a date", '"client.id" = 2026-01-01', "clusters.primary.client", "client.id"),
    client("a secret in a variable that isn't set", '"sasl.password" = { env = "NOPE" }', "NOPE", "sasl.password"),
    client("a secret in a file that isn't there", '"sasl.password" = { file = "gone" }', "gone", "sasl.password"),
    client("a secret in a folder", '"sasl.password" = { file = "/" }', "/", "sasl.password"),
    client("a secret in a file with a NUL", '"sasl.password" = { file = "a\\u0000b" }', "sasl.password"),
    client("a secret from two places", '"sasl.password" = { env = "A", file = "b" }', "sasl.password"),
    client("a secret by a misspelt place", '"sasl.password" = { evn = "A" }', "sasl.password"),
    client("a fence without its way back", '[clusters.primary.fence]\ncommand = ["x"]', "unfence", "clusters.primary"),
    client("a fence of an empty command", "[clusters.primary.fence]\ncommand = []\nunfence = []", "fence.command"),
    # the store
    wrong("a store as a number", SQLITE, "url = 5", "store.url"),
    wrong("a store in a variable that isn't set", SQLITE, 'url = { env = "NOPE" }', "NOPE", "store.url"),
    wrong("a misspelt key of the store", SQLITE, 'uri = "sqlite:///x"', "store.uri", "url"),
    # links
    wrong("a link from a cluster that there isn't", 'source = "primary"', 'source = "prmary"', "prmary", "primary"),
    wrong("a link to a cluster that there isn't", 'target = "dr"', 'target = "drr"', "links.0.target", "drr"),
    wrong("a link of one cluster", 'target = "dr"', 'target = "primary"', "links.0", "same cluster"),
    wrong("a link without a source", 'source = "primary"\n', "", "links.0.source"),
    added("a link given twice", '[[links]]\nsource = "primary"\ntarget = "dr"', "primary->dr", "twice", "links.1"),
    wrong("a bad pattern of topics", '"flights"', '"["', "links.0.topics", "regular expression", f"{FILE}:13"),
    link("a bad pattern of groups", 'groups = ["(a"]', "links.0.groups", "(a"),
    link("a bad pattern of what is left out", 'exclude_topics = ["a{2,1}"]', "links.0.exclude_topics"),
    link("a star alone as a pattern", 'groups = ["*"]', "links.0.groups", "'*'"),
    link("patterns as one text", 'groups = ".*"', "links.0.groups"),
    link("offsets of another kind", 'offsets = "prserve"', "links.0.offsets", "preserve"),
    link("a policy of another kind", 'policy = "suffix"', "links.0.policy", "prefix"),
    link("an isolation of another kind", 'isolation = "serializable"', "links.0.isolation", "read_committed"),
    link("deletions of another kind", 'deletions = "yes"', "links.0.deletions"),
    link("a negative limit of deletions", "deletion_limit = -1", "links.0.deletion_limit", "0"),
    link("a limit of deletions beyond all bounds", f"deletion_limit = {10**30}", "links.0.deletion_limit"),
    link("no bytes a second", "max_bytes_per_second = 0", "links.0.max_bytes_per_second"),
    link("a buffer of one byte", "buffer_bytes = 1", "links.0.buffer_bytes", "1048576"),
    link("a boolean as a word", 'canary = "perhaps"', "links.0.canary"),
    link("a filter that isn't module and function", 'filter = "mine.py"', "links.0.filter", "module:function"),
    link("a rename of what isn't mirrored", 'rename = { nope = "x" }', "links.0", "nope"),
    link("two topics renamed to one", 'rename = { flights = "x", "orders.a" = "x" }', "links.0", "'x'"),
    link("a rename to an internal topic", 'rename = { flights = "__x" }', "links.0.rename", "__x"),
    link("a rename to no name", 'rename = { flights = "a b" }', "links.0.rename", "a b"),
    link("a timeline of no minutes", "timeline = { recent_minutes = 0 }", "links.0.timeline.recent_minutes"),
    link("a timeline that is not a number", "timeline = { hours = nan }", "links.0.timeline.hours", "finite"),
    link("a timeline without end", "timeline = { hours = inf }", "links.0.timeline.hours", "finite"),
    link("a timeline of centuries", "timeline = { hours = 1e12 }", "links.0.timeline.hours"),
    link(
        "settings that can't be overridden",
        'topic_settings = { overrides = { "cleanup.policy" = "delete" } }',
        "cleanup.policy",
    ),
    link("settings that match nothing", 'topic_settings = { include = ["retenton.*"] }', "retenton", "retention.ms"),
    link("a replication factor of 0", "topic_settings = { replication_factor = 0 }", "replication_factor"),
    # objectives, waves, hooks, directories, evidence
    wrong("a negative objective", "rpo_records = 0", "rpo_records = -1", "objectives.rpo_records", f"{FILE}:16"),
    wrong("half a record", "rpo_records = 0", "rpo_records = 0.5", "objectives.rpo_records", "integer"),
    wrong("an objective as a word", "rpo_records = 0", 'rto_seconds = "fast"', "objectives.rto_seconds", "number"),
    wrong("an objective that is not a number", "rpo_records = 0", "rpo_seconds = nan", "objectives.rpo_seconds"),
    wrong("an objective without end", "rpo_records = 0", "rto_seconds = inf", "objectives.rto_seconds", "finite"),
    added("a budget without a limit", "[[objectives.max_loss]]\ntopics = ['a']", "objectives.max_loss.0", "no limit"),
    added("a wave without a name", "[[waves]]\ngroups = ['a']", "waves.0.name"),
    added("a wave of an unknown kind", "[[waves]]\nname = 'a'\non_failure = 'panic'", "waves.0.on_failure", "stop"),
    added("a wave that waits for ever", "[[waves]]\nname = 'a'\npause_seconds = inf", "waves.0.pause_seconds"),
    added("a hook as a text", "[hooks]\npre_failover = 'notify'", "hooks.pre_failover"),
    added("a hook of nothing", "[hooks]\npre_failover = [[]]", "hooks.pre_failover", "program"),
    added("a misspelt hook", "[hooks]\npre_failovr = [['x']]", "hooks.pre_failovr", "pre_failover"),
    added("hooks that may take no time", "[hooks]\ntimeout_seconds = 0", "hooks.timeout_seconds"),
    added("a webhook that is no URL", "[hooks]\naudit_alert_url = 'sesame'", "hooks.audit_alert_url", "https://"),
    added("a webhook with a password", "[hooks]\naudit_alert_url = 'https://a:sesame@h/'", "hooks.audit_alert_url"),
    added("a directory of nothing", "[directory]\n", "directory.0"),
    added("a directory of an unknown kind", "[directory]\nurl = 'ldap://h/x'", "directory.0", "ldap"),
    added("a directory of no link", "[directory]\nurl = 'file:///tmp/x'\nlink = 'a->b'", "directory.0.link", "a->b"),
    added("a key and a command to sign", "[evidence]\nkey = 'k'\nsign_command = ['x']\npublic_key = 'p'", "evidence"),
    added("a command to sign without a key", "[evidence]\nsign_command = ['x']", "evidence", "public_key"),
    added("a foreign key of one topic", "[[foreign_keys]]\nchild='a'\nparent='a'\nkey='key'", "foreign_keys.0", "'a'"),
    added("a foreign key by no path", "[[foreign_keys]]\nchild='a'\nparent='b'\nkey='x[0'", "foreign_keys.0.key"),
    # the environment
    variable("a variable of no section", "DRKIT_STROE__URL", "x", "DRKIT_STORE__URL"),
    variable("a variable of one underscore", "DRKIT_STORE_URL", "x", "DRKIT_STORE__URL"),
    variable("a variable of no key", "DRKIT_STORE__URI", "x", "store.uri", "DRKIT_STORE__URL"),
    variable("a variable that is like no other", "DRKIT_FROBNICATE", "1"),
    variable("a variable of the prefix alone", "DRKIT_", "1"),
    variable("a variable of an empty section", "DRKIT___URL", "1"),
    variable("a variable in small letters", "drkit_stroe__url", "x"),
    variable("a variable with a word for a number", "DRKIT_OBJECTIVES__RPO_RECORDS", "many", "objectives.rpo_records"),
    variable("a variable with a negative number", "DRKIT_OBJECTIVES__RTO_SECONDS", "-1", "objectives.rto_seconds"),
    variable("a variable with infinity", "DRKIT_OBJECTIVES__RTO_SECONDS", "inf", "objectives.rto_seconds"),
    variable("a variable of a cluster that lacks servers", "DRKIT_CLUSTERS__X__CLIENT", "{}", "clusters.x"),
    variable("a variable with servers without a port", "DRKIT_CLUSTERS__DR__BOOTSTRAP_SERVERS", "h", "host:port"),
    variable("a variable with broken JSON", "DRKIT_LINKS", '[{"source": "primary"', "DRKIT_"),
    variable("a variable with JSON nested by the thousand", "DRKIT_LINKS", "[" * 9000, "DRKIT_"),
    variable("a variable with a list for a table", "DRKIT_OBJECTIVES", "[1]", "objectives"),
    variable("an empty variable for a table", "DRKIT_OBJECTIVES", "", "DRKIT_OBJECTIVES"),
    variable("a variable with bytes that are no text", "DRKIT_CLUSTERS__DR__BOOTSTRAP_SERVERS", "\udcff\udcfe"),
    # what drkit tells its hooks and commands, and doesn't read
    *(
        variable(f"a variable that drkit sets for its hooks: {name}", name, "x", "hooks and commands", name)
        for name in ("DRKIT_AT", "DRKIT_LINK", "DRKIT_MODE", "DRKIT_RUN", "DRKIT_SITE")
    ),
    # commands that read no configuration
    *(
        Bad(
            f"a variable of no name: {command}{where}",
            command,
            ("DRKIT_JAR_REPOSTORY", "DRKIT_JAR_REPOSITORY"),
            config=config,
            variables={"DRKIT_JAR_REPOSTORY": "file:///x"},
        )
        for command, config, where in (
            ("jars fetch --dry-run", None, ""),
            ("jars fetch --dry-run", CONFIG, ", beside a configuration"),
            ("lab status", None, ""),
            ("lab up", None, ""),
            ("drill coverage", None, ""),
            ("config schema", None, ""),
            ("config schema", "[clusters", ", beside a broken configuration"),
            ("evidence verify x", None, ""),
            ("demo", None, ""),
            ("init --offline --source h:1 --target h:2 --config other.toml", None, ""),
        )
    ),
    Bad(
        "a secret's variable, and no configuration that names it",
        "status",
        (f"no configuration at {FILE}", "`drkit init` writes one"),
        config=None,
        variables={"DRKIT_PRIMARY_PASSWORD": "sesame"},
        unsaid=("DRKIT_PRIMARY_PASSWORD", "Did you mean"),
    ),
    Bad(
        "a secret's variable, and a broken configuration",
        "status",
        (f"{FILE} is not valid TOML", "Correct that line"),
        config="[clusters",
        variables={"DRKIT_PRIMARY_PASSWORD": "sesame"},
        unsaid=("DRKIT_PRIMARY_PASSWORD", "Did you mean"),
    ),
    Bad(
        "a key's variable, and no configuration",
        "jars fetch --dry-run",
        ("DRKIT_STOER__URL", "If a configuration reads a secret from it, name that with --config or DRKIT_CONFIG"),
        config=None,
        variables={"DRKIT_STOER__URL": "x"},
    ),
]


@rows([replace(bad, command=bad.command or COMMANDS[place % len(COMMANDS)]) for place, bad in enumerate(ROWS)])
def test_it_is_refused_by_file_and_key(bad, tmp_path, monkeypatch):
    refused(bad, tmp_path, monkeypatch)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_only_others_may_read(tmp_path, monkeypatch):
    bad = Bad("no right", "status", (FILE, "denied"), prepare=lambda folder: (folder / FILE).chmod(0))
    refused(bad, tmp_path, monkeypatch)


@pytest.mark.parametrize("config", [None, "[clusters"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("config schema", 0),
        ("lab status", 3),  # there is no lab
        ("init --offline --source h:1 --target h:2 --config other.toml", 0),
    ],
)
def test_who_exported_his_secrets_before_there_is_a_configuration_goes_on(command, code, config, tmp_path, monkeypatch):
    lay(Bad("secrets first", "", config=config), tmp_path)
    settle(tmp_path, {"DRKIT_PRIMARY_PASSWORD": "sesame"}, monkeypatch)
    ended = in_process(command.split())
    assert (ended.code, "DRKIT_" in ended.err) == (code, False)


def test_a_byte_order_mark_is_no_mistake(tmp_path, monkeypatch):
    lay(Bad("a byte order mark", "", config=b"\xef\xbb\xbf" + CONFIG.encode()), tmp_path)
    settle(tmp_path, {}, monkeypatch)
    assert in_process(["config", "show"]).code == 0
