"""Reads an experiment file; reports all errors at once, by file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from drkit.drill.experiment.base import MarkedDocument, Place, read_marked
from drkit.drill.experiment.contradictions import contradictions
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.steps import Failover
from drkit.drill.runbook import read_runbook
from drkit.model.errors import ConfigError

LIBRARY: Final = Path(__file__).resolve().parents[1] / "library"
"""Links to the experiments in chaos/, and to those runbooks that they play; the installation includes them."""


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """An experiment with the lines of its file."""

    path: Path
    experiment: Experiment
    document: MarkedDocument

    def line(self, *place: str | int) -> int:
        """The first line of a part of the experiment: `"method", 0` is its first step."""
        return self.document.line(place)


def load_experiment(file: Path) -> ExperimentFile:
    """Read and check an experiment.

    Raises:
        ConfigError: the file can't be read, or something in it is unknown, wrong or contradictory; each error is
            `file:line: key: message`.
    """
    document = read_marked(file)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{file}:1: an experiment is a mapping of keys", remedy="Start with `title:`")
    try:
        experiment = Experiment.model_validate(document.data)
    except ValidationError as error:
        raise _wrong(_explain(document, finding) for finding in error.errors(include_url=False)) from None
    found = (*contradictions(experiment), *_unknown_blocks(experiment))
    findings = [_finding(document, place, message) for place, message in found]
    if findings:
        raise _wrong(findings)
    return ExperimentFile(file, experiment, document)


def _unknown_blocks(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    """The blocks of runbooks that aren't there: the place of the key, and the message."""
    for place, step in experiment.each_step():
        if not isinstance(step, Failover) or step.runbook is None:
            continue
        file = runbook_file(step.runbook.book)
        if not file.exists():
            known = ", ".join(each.stem for each in sorted(LIBRARY.glob("*.md")))
            yield (*place, "runbook", "book"), f"no runbook {step.runbook.book} is installed; known: {known}"
            continue
        named = {block.name for block in read_runbook(file).blocks} - {""}
        for at, block in enumerate(step.runbook.blocks):
            if block not in named:
                yield (
                    (*place, "runbook", "blocks", at),
                    f"{file.name} has no block {block!r}; known: {', '.join(sorted(named))}",
                )


def load_experiments(files: Sequence[Path]) -> list[ExperimentFile]:
    """Read and check several experiments.

    Raises:
        ConfigError: the errors of all of them.
    """
    found, wrong = [], list[ConfigError]()
    for file in files:
        try:
            found.append(load_experiment(file))
        except ConfigError as error:
            wrong.append(error)
    if wrong:
        raise ConfigError("\n".join(error.what for error in wrong), remedy=wrong[0].remedy)
    return found


def _wrong(findings: Iterable[str]) -> ConfigError:
    return ConfigError(
        "\n".join(dict.fromkeys(findings)), remedy="Correct the lines named; docs/drills.md has every key"
    )


def _finding(document: MarkedDocument, place: Place, message: str) -> str:
    name = ".".join(str(part) for part in place)
    return f"{document.file}:{document.line(place)}: {name}: {message}"


def _explain(document: MarkedDocument, finding: Any) -> str:
    place = _place(document.data, finding["loc"])
    kind = str(finding["type"])
    message = str(finding["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        message = "unknown key"
    elif kind == "missing":
        message = "is missing"
    elif kind == "union_tag_not_found":
        key = str(finding["ctx"]["discriminator"]).strip("'")
        return _finding(document, (*place, key), "is missing")
    elif kind == "union_tag_invalid":
        context = finding["ctx"]
        key = str(context["discriminator"]).strip("'")
        expected = str(context["expected_tags"]).replace("'", "")
        return _finding(document, (*place, key), f"{context['tag']!r} is unknown; known are {expected}")
    return _finding(document, place, message)


def _place(data: Any, location: tuple[int | str, ...]) -> Place:
    """Drop union members from a location: pydantic names them, but the file has no such key."""
    place: Place = ()
    for number, part in enumerate(location):
        last = number == len(location) - 1
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            place = (*place, part)
        elif last:
            place = (*place, part)
    return place


def runbook_file(book: str) -> Path:
    """Where the runbook of this name is installed, if it is."""
    return LIBRARY / f"{book}.md"


def library_files() -> list[Path]:
    """The experiments of the library, by name."""
    return sorted(LIBRARY.glob("*.yaml"))


def experiment_file(given: Path) -> Path:
    """The named file if it exists, else the experiment of that name in the library.

    Raises:
        ConfigError: a name, and not a path, that neither has.
    """
    if given.exists() or given.name != str(given) or given.suffix:
        return given
    names = [each.stem for each in library_files()]
    if given.name not in names:
        close = get_close_matches(given.name, names, n=1)
        raise ConfigError(
            f"there is no file {given}, and no experiment of that name in the library",
            remedy=f"Did you mean {close[0]}?" if close else f"Name a file, or one of these: {', '.join(names)}",
        )
    return LIBRARY / f"{given}.yaml"


def experiment_files(given: Sequence[Path], *, whole_library: bool) -> list[Path]:
    """The selected experiments, each once, in order: files, names of the library, all of a folder, the library.

    Raises:
        ConfigError: a folder holds no experiment, or a name means none.
    """
    found: list[Path] = []
    for each in given:
        if not each.is_dir():
            found.append(experiment_file(each))
            continue
        inside = sorted(each.glob("*.yaml"))
        if not inside:
            raise ConfigError(f"{each} holds no experiment", remedy="Name a folder with *.yaml files, or a file")
        found += inside
    if whole_library:
        found += library_files()
    by_file: dict[Path, Path] = {}
    for each in found:
        by_file.setdefault(each.resolve(), each)
    return list(by_file.values())
