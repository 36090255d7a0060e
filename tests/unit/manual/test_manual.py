"""The documentation: links lead somewhere, every page is in the table of contents, the reference is the code's."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from drkit.cli.application import VERBS
from drkit.cli.help import EXAMPLES
from drkit.drill.runbook import read_runbook
from drkit.model.errors import ExitCode
from tests.support.commands.runbooks import parse
from tools.manual import site
from tools.manual.commands import commands, verbs
from tools.manual.exit_codes import meanings
from tools.manual.man_pages import write_man_pages
from tools.manual.metrics import metrics
from tools.manual.reference import pages
from tools.manual.schema_tables import keys

ROOT = site.ROOT
INDEX = (ROOT / site.INDEX).read_text()
TUTORIALS = [ROOT / "docs" / name for name in ("tutorial-first-failover.md", "tutorial-your-clusters.md")]


def anchors(page: Path) -> set[str]:
    """Where links into a page may lead: its headings, as they are written in addresses on GitHub and on the site."""
    found: set[str] = set()
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (heading := re.match(r"#+ (.+)", line)):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", [site.INDEX, "README.md", *site.repository_pages()])
def test_links_and_anchors_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for line, target, path in site.links(page, text):
        file = ROOT / path
        assert file.exists(), f"{page}:{line}: {target}"
        anchor = target.partition("#")[2]
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{page}:{line}: {target}"
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert anchor in anchors(ROOT / page), f"{page}: #{anchor}"


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    with pytest.raises(site.BrokenLinkError, match=r"docs/x\.md:2: gone\.md leads to no file"):
        site._relinked("docs/x.md", "Text.\nSee [it](gone.md).\n", tmp_path)


def test_every_page_is_in_the_table_of_contents_once():
    named = [page for section in site.sections(INDEX).values() for page in section]
    assert sorted(named) == sorted(site.repository_pages())
    assert {"Tutorial", "How-to", "Reference", "Explanation"} <= set(site.sections(INDEX))
    assert site.sections("## One\n- [x](mirror.md)\n")[site.MORE][0].startswith("docs/"), "and those that it forgot"


def test_the_staged_pages_are_those_of_the_repository_and_the_reference(tmp_path):
    site.stage(tmp_path)
    staged = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.md")}
    assert staged == {"index.md", *site.repository_pages(), *(f"reference/{name}" for name in pages())}
    root = (tmp_path / "index.md").read_text()
    assert "](docs/tutorial-first-failover.md)" in root
    assert "](runbooks/unplanned-failover.md)" in root
    assert "\nreference/commands\n" in root
    for file in tmp_path.rglob("*.md"):
        for line, target, path in site.links(str(file.relative_to(tmp_path)), file.read_text()):
            assert (tmp_path / path).is_file(), f"{file}:{line}: {target}"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_the_cli_takes_every_command_of_a_tutorial(page):
    found = read_runbook(page).of_drkit()
    assert len(found) >= 10
    for command in found:
        parse(command.argv)


def test_every_command_is_described_with_its_options_and_examples():
    every = commands()
    assert [each.path[1] for each in every if len(each.path) == 2] == list(VERBS)
    for command in every:
        assert command.summary, command.name
        for option in command.options:
            assert option.help or option.default, f"{command.name} {option.names}"
    failover = next(each for each in every if each.name == "drkit failover")
    options = {name: option for option in failover.options for name in option.names}
    assert (options["--to"].value, options["--group"].repeated, options["--dry-run"].value) == ("C", True, "")
    assert options["--output"].value == "human|json"
    assert failover.examples == EXAMPLES["failover"]
    init = next(each for each in every if each.name == "drkit init")
    assert init.examples, "an example of the docstring is one, too"
    assert not [text for text in init.paragraphs if text.startswith("Example")]


def test_the_parser_takes_every_example():
    for command in commands():
        for example in command.examples:
            words = read_words(example)
            parse(tuple("01JD3V8Z6M4K2N9Q7R5T1W0XYZ" if word == "RUN" else word for word in words))


def read_words(line: str) -> tuple[str, ...]:
    import shlex  # noqa: PLC0415 - for this alone

    return tuple(shlex.split(line))


def test_the_reference_has_every_verb_schema_and_exit_code():
    found = pages()
    assert {f"commands/{verb}.md" for verb in VERBS} <= set(found)
    assert "`--accept-loss N|unknown`" in found["commands/failover.md"]
    schemas = {file.name.removesuffix(".schema.json") for file in (ROOT / "docs" / "schemas").glob("*.json")}
    assert {f"json/{name}.md" for name in schemas - {"drkit.toml"}} <= set(found)
    assert "| `links[].recovery_point.lower_bound` | boolean |" in found["json/status.md"]
    assert set(meanings()) == set(ExitCode)
    assert "| 3 | refused" in found["exit-codes.md"]
    assert "`StoreMissing`" in found["exit-codes.md"]


def test_configuration_keys_are_those_of_the_schema():
    page = pages()["configuration-keys.md"]
    schema = json.loads((ROOT / "docs/schemas/drkit.toml.schema.json").read_text())
    assert page.count("\n## `[") == len(schema["properties"])
    assert "## `[[links]]`" in page
    assert '`offsets`\n: `"preserve" or "translate"`. Default: `"preserve"`.' in page
    assert '`client."sasl.password"`\n: `string or { env = "NAME" } or { file = "PATH" }`.' in page
    assert "`max_loss_seconds`" in page


def test_a_schema_that_refers_to_itself_ends():
    tree = {"$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}, "value": {"type": "integer"}}}}}
    found = [key.path for key in keys({**tree, "properties": {"root": {"$ref": "#/$defs/Node"}}})]
    assert found == ["root", "root.next", "root.value"]


def test_every_metric_that_is_documented_exists_and_the_other_way_round():
    told = set(re.findall(r"`(drkit_[a-z_]+)", (ROOT / "docs" / "observability.md").read_text()))
    there = {each.name for found in metrics().values() for each in found}
    assert there <= told, there - told
    assert told <= there, told - there


def test_man_pages_are_taken_by_groff(tmp_path):
    files = write_man_pages(tmp_path)
    assert {file.name for file in files} == {"drkit.1", *(f"drkit-{verb}.1" for verb in verbs(commands()))}
    text = (tmp_path / "man1" / "drkit-failover.1").read_text()
    for part in (
        ".SH NAME",
        ".SH EXIT STATUS",
        "\\fB\\-\\-accept\\-unfenced\\fR",
        "drkit failover \\-\\-to dr \\-\\-dry\\-run",
    ):
        assert part in text
    assert not re.search(r"(?m)^'", text)
    if shutil.which("groff") is None:
        pytest.skip("groff isn't installed")
    for file in files:
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", "-K", "utf8", str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), file.name


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:'myst_parser:DeprecationWarning", "ignore:'myst_parser:PendingDeprecationWarning")
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="sphinx isn't installed: make setup")
def test_the_site_builds_without_a_warning(tmp_path):
    assert site.build_site(tmp_path) == 0
    first = (tmp_path / "html" / "index.html").read_text()
    assert "First failover in five minutes" in first
    assert (tmp_path / "html" / "reference" / "commands" / "failover.html").is_file()
    outside = re.compile(r"""(?:src|href)=["'](?:https?:)?//[^"']+\.(?:js|css|woff2?)""")
    assert not outside.search(first), "the site loads nothing from elsewhere"
