"""A command at a terminal becomes a cast and an animated picture."""

import json
import sys
import xml.etree.ElementTree as ET

import pytest

from tools.recording import (
    LAST_SECONDS,
    LONGEST_PAUSE,
    ROWS,
    Event,
    Screen,
    animation,
    cast,
    main,
    pictures,
    quickened,
    record,
    shortened,
)

SVG = "{http://www.w3.org/2000/svg}"


def text_of(picture) -> list[str]:
    return ["".join(cell.text for cell in line) for line in picture]


def test_a_line_that_is_written_anew_stands_once():
    screen = Screen()
    screen.write("first\r\nworking ⠋\r\x1b[2Kdone\r\nlast\r\n\x1b[2A\x1b[2K\x1b[32mgood\x1b[0m, \x1b[1;31mbold\x1b[0m")
    assert text_of(screen.picture()) == ["first", "good, bold", "last", ""]
    good, bold = screen.picture()[1][0], screen.picture()[1][6]
    assert (good.style.colour, good.style.bold) == (2, False)
    assert (bold.style.colour, bold.style.bold) == (1, True)


def test_pauses_are_cut_and_what_comes_at_once_is_one_event():
    found = shortened([Event(0.5, "a"), Event(0.6, "b"), Event(60.6, "c"), Event(61.6, "d")])
    assert found == [Event(0.5, "ab"), Event(pytest.approx(0.6 + LONGEST_PAUSE), "c"), Event(pytest.approx(3.6), "d")]


def test_a_control_sequence_that_is_written_in_two_parts_is_none_of_the_text():
    screen = Screen()
    for part in ("plain \x1b", "[1", "mbold"):
        screen.write(part)
    assert text_of(screen.picture()) == ["plain bold"]
    assert screen.picture()[0][6].style.bold


def test_a_long_run_is_shown_faster_with_the_last_picture_of_each_step():
    shown = pictures([Event(at, f"{at}\r\n") for at in range(9)])
    assert [each.at for each in quickened(shown, 1)] == list(range(9))
    fast = quickened(shown, 16)
    assert [each.at for each in fast] == [0, 0.25, 0.5]
    assert [text_of(each.picture)[-2] for each in fast] == ["3", "7", "8"]


def test_what_is_longer_than_a_screen_is_shown_page_by_page_with_time_to_read():
    result = "".join(f"line {number}\r\n" for number in range(2 * ROWS))
    shown = quickened(pictures([Event(0, "working\r\n"), Event(10, result)]), 10)
    assert [text_of(each.picture)[0] for each in shown] == ["working", "line 0", f"line {ROWS}", f"line {ROWS + 1}"]
    assert [each.at for each in shown] == [0, 1, 1 + LAST_SECONDS, 1 + 2 * LAST_SECONDS]


def test_a_cast_is_of_version_2():
    head, *events = map(json.loads, cast([Event(0.5, "a\x1b[1m")], "drkit status", 1_790_000_000).splitlines())
    assert (head["version"], head["width"], head["title"], head["timestamp"]) == (2, 80, "drkit status", 1_790_000_000)
    assert events == [[0.5, "o", "a\x1b[1m"]]


def test_an_animation_is_plain_svg_with_each_line_once_and_nothing_loaded():
    shown = pictures([Event(0, "<one>\r\n"), Event(1, "two\r\n"), Event(2, ""), Event(3, "three")])
    assert [each.at for each in shown] == [0, 1, 3], "the third changed nothing"
    text = animation(shown, "a & b")
    root = ET.fromstring(text)  # noqa: S314 - made just now
    lines = {each.get("id"): "".join(each.itertext()) for each in root.iter(f"{SVG}text")}
    assert sorted(lines.values()) == ["<one>", "three", "two"]
    frames = [[lines[use.get("href")[1:]] for use in group] for group in root.find(f"{SVG}g")]
    assert frames == [["<one>"], ["<one>", "two"], ["<one>", "two", "three"]]
    assert f"{3 + LAST_SECONDS:.2f}s step-end infinite" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text


def test_a_real_command_is_recorded_and_one_that_fails_leaves_nothing(tmp_path, capsys):
    events, code = record([sys.executable, "-c", "import os; print(os.get_terminal_size().columns, os.isatty(1))"])
    assert ("".join(each.text for each in events).split(), code) == (["80", "True"], 0)
    files = [str(tmp_path / "it.cast"), str(tmp_path / "it.svg")]
    assert main([*files, "--", sys.executable, "-c", "print('x'); raise SystemExit(3)"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err.startswith("x\n"), "what it wrote says why it failed"
    assert main([*files, "--", sys.executable, "-c", "print('x')"]) == 0
    assert ET.parse(files[1]).getroot().tag == f"{SVG}svg"  # noqa: S314 - as above
