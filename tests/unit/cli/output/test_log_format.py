"""Each event on stderr is one line; as JSON it says which link, topic, partition and run it is about."""

import io
import json
import logging
import threading

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.cli.output import ABOUT, JsonLines, LogFormat, OutputMode, OutputWriter, TextLines, event_console, writer_for
from drkit.mirror.runtime.periodic_task import Periodic
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context, link_worked_on, working_on
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
    assert link_worked_on() is None
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


@pytest.mark.parametrize("verb", ["mirror", "serve"])
def test_what_ends_a_service_at_once_is_an_event(verb, tmp_path):
    command = [verb, "--log-format", "json", "--config", str(tmp_path / "none.toml")]
    done = CliRunner().invoke(application((verb,)), command)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "none.toml" in json.loads(line)["message"]
