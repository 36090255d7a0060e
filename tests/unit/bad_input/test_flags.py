"""Wrong flags, names and times: each is refused before anything is asked or written, by its flag and value."""

from __future__ import annotations

import pytest
from typer.main import get_command

from drkit.cli.application import VERBS, application
from drkit.store import open_store
from tests.support.commands.bad_input import Bad, lay, refused, rows, settle
from tests.support.commands.in_process import in_process

LONG = "9" * 5000


def with_store(folder):
    open_store(f"sqlite:///{folder}/drkit.db").close()


def flag(what, command, *names, **more):
    """A usage error, whatever stands in the configuration."""
    return Bad(what, command, names, **{"remedy": "--help", **more})


def stored(what, command, *names, **more):
    """One that is found once the store is open."""
    return Bad(what, command, names, prepare=with_store, **more)


def at(what, time, *names, zone="Europe/Berlin", **more):
    """A time that `failover --at` doesn't take."""
    words = ["failover", "--to", "dr", "--dry-run", f"--at={time}", f"--timezone={zone}"]
    return Bad(what, words, ("--at", *names), prepare=with_store, **more)


FAILOVER = "failover --to dr --dry-run"
ROWS = [
    # the command line
    flag("no such command", "failvoer", "failvoer", "failover"),
    flag("a command that is like no other", "zzz", "zzz"),
    flag("no such command of the lab", "lab explode", "explode"),
    flag("no such command of the store", "store drop", "drop"),
    flag("no such flag", "status --lnik x", "--lnik", "--link"),
    flag("no such short flag", "status -z", "-z"),
    flag("a value for a flag that takes none", "status --watch=yes", "--watch"),
    flag("an argument too many", "status now", "now"),
    flag("an argument too few", "abandon", "RUN"),
    flag("a flag that must be given", "store backup", "--out"),
    flag("a word with a control character", ["failvoer\x1b[2J"], "failvoer"),
    flag("planned and a word", "failover --planned=maybe", "--planned"),
    flag("a format of another kind", "endpoint dr --format xml", "--format", "xml", "plain"),
    flag("a dataset that there isn't", "lab load airports", "airports", "flights"),
    flag("an engine that there isn't", "failback --engine flink", "flink", "spark"),
    flag("a class of records that there isn't", "salvage --out x --approve all", "--approve", "all"),
    # numbers
    flag("an interval of nothing", "status --interval 0", "--interval", "0.2"),
    flag("a negative interval", "status --interval=-1", "--interval"),
    flag("an interval that is a word", "status --interval soon", "--interval", "soon"),
    flag("an interval that is not a number", "status --interval nan", "--interval", "nan"),
    flag("an interval without end", "status --interval inf", "--interval", "inf"),
    flag("an interval of ages", "status --interval 1e300", "--interval", "1e+300"),
    flag("a timeout that is not a number", "doctor --timeout nan", "--timeout", "nan"),
    flag("a timeout without end", "doctor --timeout=-inf", "--timeout", "-inf"),
    flag("a timeout of nothing", "doctor --timeout 0", "--timeout", "0.1"),
    flag("a negative offset", "translate --topic t --partition 0 --offset=-1", "--offset", "-1"),
    flag("an offset beyond all logs", f"translate --topic t --partition 0 --offset {2**63}", "--offset"),
    flag("an offset of thousands of digits", f"translate --topic t --partition 0 --offset {LONG}", "--offset"),
    flag("half an offset", "translate --topic t --partition 0 --offset 1.5", "--offset", "1.5"),
    flag("a negative partition", "translate --topic t --partition=-1 --offset 1", "--partition"),
    flag("a partition beyond all topics", f"translate --topic t --partition {2**31} --offset 1", "--partition"),
    flag("no processes", "mirror --processes 0", "--processes", "'0'"),
    flag("too many processes", "mirror --processes 65", "--processes", "64"),
    flag("a metrics port beyond all ports", "mirror --metrics-port 65536", "--metrics-port", "65535"),
    flag("a negative watchdog", "mirror --watchdog=-1", "--watchdog"),
    flag("a watchdog that is not a number", "mirror --watchdog nan", "--watchdog"),
    flag("no brokers", "lab up --brokers 0", "--brokers"),
    flag("ten brokers", "lab up --brokers 10", "--brokers", "9"),
    flag("a rate that is not a number", "demo --rate nan", "--rate"),
    flag("no repetition", "drill run x --repeat 0", "--repeat"),
    flag("minutes without end", "drill random --minutes inf", "--minutes"),
    flag("minutes in which no drill begins, which would pass", "drill random --minutes 0", "--minutes", "0.1"),
    flag("a negative seed", "drill random --seed=-1", "--seed"),
    flag("a wait that is not a number", "fence --wait nan", "--wait"),
    # addresses to listen on
    stored("nowhere to listen", ["serve", "--listen", ""], "--listen", remedy="127.0.0.1"),
    stored("a port without a host", "serve --listen :9404", "--listen", ":9404"),
    stored("a host without a port", "serve --listen localhost", "--listen", "localhost"),
    stored("a port in other digits", ["serve", "--listen", "127.0.0.1:²"], "--listen"),
    stored("a port beyond all", "serve --listen 127.0.0.1:70000", "--listen", "70000"),
    stored("a host that isn't this machine", "serve --listen 192.0.2.1:9404", "192.0.2.1"),
    stored("a name that doesn't resolve", "serve --listen no-such-host.invalid:9404", "no-such-host.invalid"),
    # links, clusters, groups, topics, runs
    Bad(
        "a link that there isn't",
        "status --link 'primary->x'",
        ("--link", "primary->x", "primary->dr"),
        prepare=with_store,
    ),
    Bad("a link that is no link", "status --link primary", ("--link", "primary", "primary->dr"), prepare=with_store),
    Bad("an empty link", ["status", "--link", ""], ("--link",), prepare=with_store),
    stored("a link of half a name", "status --link 'primary->'", "--link", "'primary->'", "primary->dr"),
    Bad("a link's pattern that means none", "fence --link 'x.*'", ("--link", "x.*", "primary->dr")),
    Bad("a link's pattern that is none", ["fence", "--link", "(a"], ("--link", "(a", "regular expression")),
    Bad("a link to move that there isn't", "failover --to dr --link 'a->b'", ("--link", "a->b", "primary->dr")),
    Bad("a link to bring back that there isn't", "failback --link 'a->b' --dry-run", ("--link", "a->b")),
    Bad("a link to reprotect that there isn't", "reprotect --link 'a->b' --dry-run", ("--link", "a->b")),
    Bad("a link to serve that there isn't", "serve --link 'a->b'", ("--link", "a->b")),
    Bad("a link of a group that there isn't", "audit group g --link 'a->b'", ("--link", "a->b")),
    Bad("a link to audit all the time that there isn't", "audit watch --link 'a->b'", ("--link", "a->b")),
    stored("a link to pause that there isn't", "link pause 'a->b'", "a->b", "primary->dr"),
    stored("a link to pause that is no link", "link pause everything", "everything", "source->target"),
    stored("a cluster that there isn't", "doctor --to elsewhere", "--to", "elsewhere", "primary"),
    stored("a cluster that no link leads to", "doctor --to primary", "--to", "primary"),
    Bad("a failover to a cluster that there isn't", "failover --to x --dry-run", ("x", "dr")),
    Bad("a failback to a cluster that there isn't", "failback --to x --dry-run", ("x", "dr")),
    stored("a failover to a cluster that no link leads to", "failover --to primary --dry-run", "primary", code=3),
    Bad("a failover to nowhere", "failover --dry-run", remedy="--to"),
    Bad("a failover to an empty name", ["failover", "--to", "", "--dry-run"]),
    Bad("a failover planned and not", f"{FAILOVER} --planned --unplanned", ("--planned", "--unplanned")),
    Bad("a backup to restore that there isn't", "store restore --from none.gz --dry-run", ("none.gz",)),
    stored("a backup into no folder", "store backup --out no/b.gz", "no/b.gz"),
    Bad("an endpoint of a cluster that there isn't", "endpoint x", ("x", "dr")),
    Bad("an endpoint of nothing", "endpoint", ("--link", "--group")),
    Bad("an endpoint of two things", "endpoint dr --group g", ("--link", "--group")),
    Bad("rights on a cluster that there isn't", "acls --cluster x", ("--cluster", "x", "primary")),
    flag("rights of a command that there isn't", "acls --command fly", "--command", "fly"),
    Bad("rights to replay without salvage", "acls --command status --replay-to t", ("--replay-to",), remedy="salvage"),
    stored("a topic that is none", [*FAILOVER.split(), "--topic", ":0"], "--topic", ":0", remedy="NAME:0,1"),
    stored("a partition that is none", f"{FAILOVER} --topic t:x", "--topic", "t:x"),
    stored("a negative partition of a topic", f"{FAILOVER} --topic t:-1", "--topic", "t:-1"),
    stored("a partition of a topic beyond all", f"{FAILOVER} --topic t:99999999999", "--topic"),
    stored("a partition with an underscore", f"{FAILOVER} --topic t:1_0", "--topic", "t:1_0"),
    stored("an empty topic", [*FAILOVER.split(), "--topic", ""], "--topic"),
    Bad("a pattern of topics that is none", ["audit", "--topic", "("], ("--topic", "regular expression")),
    Bad("partitions to audit that are none", "audit --topic t:a", ("--topic", "t:a")),
    stored("a run that there isn't", "runs 01J0", "01J0", code=3, remedy="drkit runs"),
    stored("a run to abandon that there isn't", "abandon 01J0", "01J0", code=3, remedy="drkit runs"),
    stored("a run to resume that there isn't", "resume 01J0", "01J0", code=3, remedy="drkit runs"),
    stored("nothing to resume", "resume", code=3),
    Bad("a loss for a run that has its plan's", "resume --accept-loss 3", ("--accept-loss",), remedy="--unplanned"),
    stored("a run to cancel that there isn't", "resume --cancel 01J0", "01J0", code=3),
    stored("a run's name with a control character", ["runs", "a\x1b[31mb"], "there is no run", code=3),
    stored("a run's name that is no text", ["runs", "\udcff\udcfe"], "UTF-8"),
    stored("evidence of a run that there isn't", "evidence export 01J0 --out e", "01J0", code=3),
    stored("a group with no captured position", "translate --group nobody", "nobody", code=3),
    stored("a topic that isn't mirrored", "translate --topic nope --partition 0 --offset 1", "nope", code=3),
    stored("a topic to show that there isn't", "status --topic nope --timeout 0.1", "--topic", "nope"),
    stored("a group to show that there isn't", "status --group nope --timeout 0.1", "--group", "nope"),
    Bad("a drill that there isn't", "drill run no-such-drill", ("no-such-drill",), remedy="primary-lost"),
    Bad("a drill that is nearly one", "drill run primary-lots", ("primary-lots",), remedy="Did you mean primary-lost?"),
    Bad("an experiment to export that there isn't", "drill export no-such-drill", ("no-such-drill",)),
    Bad("no experiment to export", "drill export", ("FILE",), remedy="--help"),
    Bad("an export to nowhere", "drill export primary-lost --out no/x.json", ("--out", "no/x.json")),
    Bad(
        "an export onto a file",
        "drill export primary-lost --out drkit.toml",
        ("--out", "drkit.toml"),
        code=3,
        remedy="another",
    ),
    Bad("a kept drill that there isn't", "drill report last", ("last",), remedy="drkit drill history"),
    Bad("no drill named", "drill run", ("experiment",), remedy="FILE"),
    Bad("a lab that there isn't", "lab status --dir nowhere", ("nowhere",), code=3),
    Bad("a node of a lab that there isn't", "lab kill primary-1 --dir nowhere", ("nowhere",), code=3),
    Bad("a set of jars that there isn't", "jars fetch flink", ("flink",)),
    # flags that contradict each other
    stored("a plan and none", f"{FAILOVER} --execute", "--dry-run", "--execute"),
    stored("two plans", "failover --out a --plan b", "--out", "--plan"),
    stored("two times", f"{FAILOVER} --at -1m --committed-at -1m", "--at", "--committed-at"),
    stored("two ends", f"{FAILOVER} --to-earliest --to-latest", "--to-earliest", "--to-latest"),
    stored("a time and an end", f"{FAILOVER} --at -1m --to-latest", "--at", "--to-latest"),
    stored("a time and consistency", f"{FAILOVER} --at -1m --consistent", "--consistent"),
    stored("all groups and one", f"{FAILOVER} --all-groups --group g", "--all-groups", "--group"),
    stored("one group in two places", f"{FAILOVER} --group g=earliest --group g=latest", "g", "two positions"),
    stored("a rehearsal of a dry run", f"{FAILOVER} --rehearse", "--rehearse", "--dry-run"),
    stored("a cancelled run and a cluster", "failover --cancel R --to dr", "--cancel"),
    stored("a loss that is no number", f"{FAILOVER} --accept-loss all", "--accept-loss", "all", "unknown"),
    stored("a negative loss", f"{FAILOVER} --accept-loss=-1", "--accept-loss", "-1"),
    stored("a loss of thousands of digits", f"{FAILOVER} --accept-loss {LONG}", "--accept-loss"),
    stored("a loss in other digits", [*FAILOVER.split(), "--accept-loss", "²"], "--accept-loss"),
    stored("positions from another tool", f"{FAILOVER} --positions-from replicator", "--positions-from", "mm2"),
    Bad("positions from two sources", f"{FAILOVER} --positions-from mm2 --at -1m", ("--positions-from", "--at")),
    stored("a translation of nothing", "translate", "nothing", remedy="--group"),
    stored("an offset of no topic", "translate --offset 5", "--offset", remedy="--topic"),
    stored("a topic without an offset", "translate --topic t:0", "--topic", remedy="--offset"),
    stored("a partition without a topic", "translate --partition 0 --offset 1", "--partition", "--topic"),
    stored("two ways to name a partition", "translate --topic t:1 --partition 0 --offset 1", "--partition", "t:1"),
    stored("a group's position and an offset", "translate --group g --offset 1", "--offset"),
    stored("cancel and unplanned", "resume --cancel --unplanned", "--cancel", "--unplanned"),
    Bad("a fence to lift and to wait for", "fence --lift --wait 3", ("--wait", "--lift")),
    Bad("a cluster to fence", "fence --cluster dr", ("--cluster",), remedy="Leave it out"),
    stored(
        "a problem that there isn't",
        "link acknowledge 'primary->dr' late",
        "late",
        "Nothing is on record there",
        code=3,
    ),
    stored("a topic recreated of none", "link resume 'primary->dr' --accept-recreated", "--topic"),
    stored("one metrics port for many", "mirror --processes 2 --metrics-port 1", "--metrics-port"),
    stored("a directory for several drills", "drill run primary-lost --repeat 2 --dir x", "--dir"),
    Bad("digests and everything", "audit --from-digests --full", ("--full",)),
    Bad("digests and a time", "audit --from-digests --from -1h", ("--from",)),
    Bad(
        "a window that is none", "audit --from 2026-01-02T00:00:00Z --until 2026-01-01T00:00:00Z", ("--from", "--until")
    ),
    flag("a flag before the subcommand", "audit --full group g", "--full", remedy=""),
    Bad("unseen for ages", "audit --fail-on unseen:99999999999d", ("--fail-on",), remedy="unseen:5m"),
    Bad("unseen for thousands of digits", f"audit --fail-on unseen:{LONG}s", ("--fail-on",)),
    Bad("another failure", "audit --fail-on lost", ("--fail-on", "lost"), remedy="unseen"),
    Bad("unseen in other digits", ["audit", "--fail-on", "unseen:٣m"], ("--fail-on",)),
    stored("a property of Spark that is none", "audit --spark-conf x=1", "--spark-conf", "x"),
    stored("a property of Spark that has a flag", "audit --spark-conf spark.master=x", "--master"),
    stored("a master that is none", "audit --master nowhere", "nowhere"),
    stored("a memory that is none", "audit --driver-memory lots", "lots"),
    Bad("a cron of four fields", "drill schedule primary-lost --cron '0 4 * *' --dry-run", ("0 4 * *",)),
    Bad("a cron beyond the clock", "drill schedule primary-lost --cron '99 4 * * *' --dry-run", ("99",)),
    Bad(
        "a zone of a cron that there isn't",
        "drill schedule primary-lost --cron '0 4 * * *' --timezone X/Y --dry-run",
        ("X/Y",),
    ),
    # times
    at("no time", "", "''"),
    at("a word for a time", "yesterday", "yesterday", remedy="-2m"),
    at("an hour that there isn't", "24:00", "24:00"),
    at("a minute that there isn't", "04:60", "04:60"),
    at("a day that there isn't", "2026-02-30T04:03", "2026-02-30"),
    at("a month that there isn't", "2026-13-01T04:03Z", "2026-13-01"),
    at("a number for a time", "1700000000", "1700000000"),
    at("the American way", "11/20/2026 04:03", "11/20/2026"),
    at("seconds alone", "5s", "5s"),
    at("a span of no unit", "-5", "'-5'"),
    at("a span that is not a number", "-nan", "-nan"),
    at("a span of ages", "-99999999999d", "1970"),
    at("a span of thousands of digits", f"-{LONG}d", "1970"),
    at("a span that goes forward", "+2m", "+2m"),
    at("the future", "2099-01-01T00:00Z", "future"),
    at("the year 58863", "58863-01-01T00:00:00Z", "58863"),
    at("the year 9999", "9999-12-31T23:59:59Z", "9999", "future"),
    at("the millisecond before 1970", "1969-12-31T23:59:59.999Z", "1970"),
    at("long before 1970", "0001-01-01T00:00:00Z", "1970"),
    at("an hour that was skipped", "2026-03-29T02:30", "never happened", "01:30", "03:30"),
    at("an hour that came twice", "2025-10-26T02:30", "happened twice", "00:30", "01:30"),
    at("an offset beyond all zones", "2026-01-01T00:00+99:00", "2026-01-01"),
    at("digits of another script", "٠٤:٠٣", "٠٤:٠٣"),
    stored("a zone that there isn't", f"{FAILOVER} --at 04:03 --timezone Mars/Olympus", "--timezone", "Mars/Olympus"),
    stored("an empty zone", [*FAILOVER.split(), "--at", "04:03", "--timezone", ""], "--timezone"),
    stored("a zone that is a path", f"{FAILOVER} --at 04:03 --timezone ../../etc/passwd", "--timezone", "passwd"),
    stored("a zone by its old letters", f"{FAILOVER} --at 04:03 --timezone PSTX", "--timezone", "PSTX"),
    stored("a group's time that is none", f"{FAILOVER} --group g=-5x", "--group g", "-5x"),
    stored("a group's time in the future", f"{FAILOVER} --group g=2099-01-01T00:00Z", "--group g", "future"),
]


@rows(ROWS)
def test_it_is_refused_by_flag_and_value(bad, tmp_path, monkeypatch):
    refused(bad, tmp_path, monkeypatch)


def test_no_float_of_any_command_takes_what_can_not_be_counted(tmp_path, monkeypatch):
    """NaN passes every minimum, and infinity every one that has no maximum: no option may be forgotten."""

    def leaves(command, path):
        for name, sub in getattr(command, "commands", {}).items():
            yield from leaves(sub, [*path, name])
        for parameter in command.params:
            descriptor = getattr(parameter, "type_descriptor", None)
            if descriptor is not None and "float" in str(descriptor.annotation):
                yield [*path, f"{parameter.opts[0]}=nan"], parameter.opts[0]

    settle(tmp_path, {}, monkeypatch)
    found = list(leaves(get_command(application()), []))
    assert len(found) > 8
    for words, option in found:
        ended = in_process(words)
        assert (ended.code, option in ended.err, "nan" in ended.err) == (2, True, True), (words, ended.err)


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_refuses_a_flag_that_it_does_not_have(verb, tmp_path, monkeypatch):
    lay(Bad("", ""), tmp_path)
    settle(tmp_path, {}, monkeypatch)
    ended = in_process([verb, "--no-such-flag"])
    assert (ended.code, ended.out) == (2, "")
    assert "--no-such-flag" in ended.err
    assert f"drkit {verb} --help" in ended.err
