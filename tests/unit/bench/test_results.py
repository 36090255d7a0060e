import json

import pytest

from bench.results import LargeLinkRun, LookupRun, MoveRun, SiteRun, TranslateRun, load
from drkit.model.errors import ConfigError


def test_what_is_kept_is_read_back(tmp_path, results, backlog_run, live_run):
    results.backlog.append(backlog_run(mapping_bytes=8))
    results.live.append(live_run())
    results.translate.append(TranslateRun("drkit", "plain", 3, 2, 2, 0, 0, 0, 0))
    results.lookup.append(LookupRun(10_000, 100, 1.0, 4.0, 1.0))
    results.moves.append(MoveRun("drkit", 1000, 50, 1, 2.5, 2.0))
    results.sites.append(SiteRun("killed", 3, 999, 50, 1, 4.0, 3.5, {"fence": 0.2, "drain": 1.0}))
    results.large_links.append(
        LargeLinkRun(1000, 10_000, 1, 9.0, 2.0, 12.0, 8.0, 2.0, 4.0, 0.04, 150.0, {"status": 1.5}, {"status": 1.2})
    )
    results.failures.append("single: it ended")
    results.save(tmp_path / "results.json")
    assert load(tmp_path / "results.json") == results


def test_repeats_of_a_case_are_those_of_one_mirror(results, backlog_run):
    results.backlog += [backlog_run(), backlog_run(repeat=2), backlog_run(peer="mirrormaker")]
    assert [run.repeat for run in results.rows("backlog", case="large", peer="drkit")] == [1, 2]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"machine": {}}'])
def test_a_file_that_is_no_result_is_refused_with_its_name(tmp_path, text):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"results\.json holds no results"):
        load(path)


def test_a_damaged_run_is_refused(tmp_path, results, backlog_run):
    results.backlog.append(backlog_run())
    results.save(tmp_path / "results.json")
    document = json.loads((tmp_path / "results.json").read_text())
    del document["backlog"][0]["peer"]
    (tmp_path / "results.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError):
        load(tmp_path / "results.json")
