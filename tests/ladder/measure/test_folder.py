"""folder.py: climb.json, and the logs in a folder."""

import pytest
from climbs import LOGS, PUBLISHED, as_it_ran

from ladder.log import parse_log
from ladder.measure.folder import Climb, climb_logs, log_texts


@pytest.mark.parametrize("path", sorted(LOGS.glob("*/runs.log")), ids=lambda path: path.parent.name)
def test_every_published_log_is_read(path):
    for name, text in log_texts(path.parent).items():
        assert parse_log(text, name).steps


def test_files_beside_our_own_are_no_runs(tmp_path):
    folder = as_it_ran(PUBLISHED, tmp_path / "climb")
    logs = climb_logs(folder, Climb.read_from(folder))
    for name in ("baseline.r1 (copy)", "notes", "._baseline.r2", "baseline.rx"):
        (folder / f"{name}.log").write_text("not ours")
    assert climb_logs(folder, Climb.read_from(folder)) == logs
