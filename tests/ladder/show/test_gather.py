"""gather.py: scripts as they were measured, and of a stranger's climb nothing but its own."""

from climbs import NAMES, PUBLISHED, climb_of

from ladder.measure.folder import Climb
from ladder.show.gather import diff_of, found_in, scripts_of


def test_of_a_climb_only_what_is_in_its_folder_is_shown(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    folder = climb_of(tmp_path / "climb", {"baseline": 20, "01_weight_tying": 19, "secret": 1})
    (folder / "code" / "speedups").mkdir(parents=True)
    (folder / "code" / NAMES["01_weight_tying"]).write_text("a = 1\n")
    (folder / "baseline.py").write_text("a = 2\n")
    (folder / "secret.py").symlink_to(secret)
    scripts = found_in(folder)
    assert sorted(scripts) == ["01_weight_tying", "baseline"]
    assert diff_of(scripts["baseline"], scripts["01_weight_tying"])[1:] == ["-a = 2", "+a = 1"]
    assert scripts_of(folder, Climb.read_from(folder), tmp_path) == scripts


def test_the_scripts_of_a_published_climb_are_those_of_its_commit(tmp_path):
    climb = Climb.read_from(PUBLISHED)
    assert len(scripts_of(PUBLISHED, climb, tmp_path)) == len(climb.scripts)
