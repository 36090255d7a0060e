"""Each event on stderr is one line; as JSON it says which link, topic, partition and run it is about."""

import io
import json
import logging
import threading

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.cli.output import ABOUT, JsonLines, LogFormat, OutputMode, OutputWriter, TextLines, event_console, writer_for
from drkit.cli.views.failover_view import StagePrinter
from drkit.cli.wiring import context
from drkit.failover.context.state_machine import StageOutcome
from drkit.failover.journal.journal import StageRecord
from drkit.mirror.runtime.periodic_task import Periodic
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context, worked_on, working_on
from drkit.model.topology import LinkId, TopicPartition

LINK = LinkId("primary", "dr")


@pytest.fixture
def written():
    """A logger of its own, and what it writes in each format."""
    streams = {JsonLines: io.StringIO(), TextLines: io.StringIO()}
    logger = logging.getLogger("drkit.test_log_format")
    handlers = []
    for formatter, stream in streams.items():
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter())
        logger.addHandler(handler)
        handlers.append(handler)
    yield logger, lambda: [json.loads(line) for line in streams[JsonLines].getvalue().splitlines()], streams[TextLines]
    for handler in handlers:
        logger.removeHandler(handler)


def test_what_an_event_is_about_follows_from_its_words_its_writer_and_its_thread(written):
    log, events, _ = written
    log.warning("%s %s: looks again", LINK, TopicPartition("flights", 3))
    log.warning("%s: cleared", LINK, extra={"topic": "orders", "partition": 0})
    with working_on(LinkId("a", "b")):
        log.warning("a store", extra={"run": "01RUN"})
        thread = threading.Thread(target=keeping_context(lambda: log.warning("in")))
        thread.start()
        thread.join()
        Periodic("p", 1.0, lambda: None, threading.Event())
    log.warning("nothing is known")
    found = [tuple(event[key] for key in ABOUT) for event in events()]
    assert found == [
        ("primary->dr", "flights", 3, None),
        ("primary->dr", "orders", 0, None),
        ("a->b", None, None, "01RUN"),
        ("a->b", None, None, None),
        (None, None, None, None),
    ]
    assert worked_on() == {"link": None, "run": None}
    assert events()[0]["message"] == "primary->dr flights:3: looks again"
    assert (events()[0]["level"], events()[0]["logger"]) == ("warning", "drkit.test_log_format")


def test_one_event_is_one_line_and_nothing_in_it_is_obeyed_by_a_terminal(written):
    log, events, text = written
    log.warning("a group \x1b[2J named\nby somebody")
    assert len(events()) == 1
    (line,) = text.getvalue().splitlines()
    assert "\x1b" not in line
    assert line.endswith("WARNING a group \N{REPLACEMENT CHARACTER}[2J named by somebody")
    try:
        int("why")
    except ValueError:
        log.exception("a defect")
    assert "ValueError: invalid literal" in events()[1]["trace"]


def test_remarks_and_errors_become_events():
    stream = io.StringIO()
    console, lines = event_console(stream)
    console.print("[bold]primary->dr[/]  " + "a long remark " * 30)
    lines.error(DrkitError("what", meaning="so", remedy="drkit status"))
    lines.forward(json.dumps({"message": "of a child"}), process=2)
    lines.forward("no event", process=2)
    first, error, child, other = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first["message"].startswith("primary->dr  a long remark")
    assert (error["level"], error["message"], error["remedy"], error["exit_code"]) == (
        "error",
        "what",
        "drkit status",
        1,
    )
    assert (child, other["message"], other["process"]) == ({"message": "of a child", "process": 2}, "no event", 2)


def test_a_usage_error_is_an_event_too(capsys):
    writer_for(["mirror", "--log-format", "json"]).error(DrkitError("wrong", remedy="right"))
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["message"], json.loads(line)["remedy"]) == ("wrong", "right")
    writer = OutputWriter.for_mode(OutputMode.HUMAN).log_as(LogFormat.TEXT)
    assert writer.events is None


COMMANDS = [
    "mirror",
    "serve",
    "audit",
    "audit watch",
    "audit group g",
    "failover --to dr",
    "failback",
    "reprotect",
    "resume",
    "drill schedule primary-lost --cron 0\u00a04\u00a0*\u00a0*\u00a0*",
    "salvage --out salvaged",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_ends_a_command_at_once_is_an_event(command, tmp_path):
    words = [word.replace("\u00a0", " ") for word in command.split(" ")]
    words += ["--log-format", "json", "--verbose", "--config", str(tmp_path / "none.toml")]
    done = CliRunner().invoke(application(words[:1]), words)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    event = json.loads(line)
    assert "none.toml" in event["message"]
    assert "ConfigError" in event["trace"], "--verbose shows the trace, as a part of the event"
    assert set(ABOUT) <= set(event)


def commands_of(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_takes_the_format():
    lacking = [
        " ".join(path)
        for path, command in commands_of(get_command(application()))
        if not any("--log-format" in parameter.opts for parameter in command.params)
    ]
    assert lacking == []


def test_a_stage_is_an_event_of_its_run_and_link():
    stream = io.StringIO()
    console, events = event_console(stream)
    printer = StagePrinter(OutputWriter(OutputMode.HUMAN, console, console, events=events))
    with working_on(LINK), working_on(run="01RUN"):
        printer("fence", None, "close primary to clients")
        printer("fence", StageRecord("fence", StageOutcome.FAILED, "no\nanswer", 0.4), "no answer")
    begun, ended = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (begun["message"], begun["stage"], begun["outcome"]) == ("fence: close primary to clients", "fence", None)
    assert (ended["message"], ended["level"]) == ("fence: no answer", "error")
    assert (ended["link"], ended["run"], ended["outcome"], ended["seconds"]) == ("primary->dr", "01RUN", "failed", 0.4)


def test_what_libraries_log_is_an_event_too_and_nothing_more_is_drkits_at_other_levels(capsys):
    with context.command(None, OutputMode.HUMAN, False, LogFormat.JSON) as run:
        logging.getLogger("cassandra.cluster").warning("host %s is down", "10.0.0.1")
        logging.getLogger("drkit.test").info("so far")
        logging.getLogger("other").info("not of interest")
        run.say("a remark [bold]as it is[/]")
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(event["logger"], event["message"]) for event in events] == [
        ("cassandra.cluster", "host 10.0.0.1 is down"),
        ("drkit.test", "so far"),
        ("drkit", "a remark [bold]as it is[/]"),
    ]


def test_a_question_is_an_event_and_is_answered_on_stdin(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("dr\n"))
    with context.command(None, OutputMode.HUMAN, False, LogFormat.JSON) as run:
        assert run.ask("[bold]Groups move.[/] Type the cluster's name: ") == "dr"
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "Groups move. Type the cluster's name:"
