"""`drkit audit`: what `--fail-on` takes, and options that stand before a subcommand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.cli.verbs.audit.audit import overdue_since
from drkit.model.errors import ConfigError

BEGAN = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("option", "back"), [("unseen:30s", 30), ("unseen:5m", 300), ("unseen:2h", 7_200), ("unseen:1.5", 1.5)]
)
def test_unseen_records_of_that_age_count(option, back):
    assert overdue_since(option, BEGAN) == BEGAN - timedelta(seconds=back)


def test_without_an_age_all_unseen_records_count():
    since = overdue_since("unseen", BEGAN)
    assert since is not None
    assert since > BEGAN + timedelta(days=365)
    assert overdue_since(None, BEGAN) is None


@pytest.mark.parametrize("option", ["lost", "unseen:", "unseen:soon", "unseen:5w", ""])
def test_anything_else_is_refused_with_an_example(option):
    with pytest.raises(ConfigError, match="expected unseen or unseen:AGE") as caught:
        overdue_since(option, BEGAN)
    assert "unseen:5m" in caught.value.remedy


def test_an_option_before_the_subcommand_is_not_ignored():
    done = CliRunner().invoke(application(("audit",)), ["audit", "--full", "watch"])
    assert done.exit_code == 2
    assert "--full comes before `watch`" in done.output
