"""files.py: the commit that logs name, whose `ladder` a script runs with, and atomic writes."""

from ladder.disk import make_folder


def test_two_folders_of_one_second_have_two_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_folder(None, "climb") != make_folder(None, "climb")
