"""errors.py: an error whose cause is known is one line."""

import errno
import json

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from ladder.checkout import ROOT
from ladder.errors import exit_with, explain

FOLDER = ROOT / "tests" / "recordings"


@pytest.mark.parametrize("case", json.loads((FOLDER / "errors.json").read_text()))
def test_an_error_that_a_user_can_put_right_is_explained(case):
    error = type(case["class"], (RuntimeError,), {})(case["text"])
    wrapped = RuntimeError("backend='inductor' raised:")  # as torch.compile does
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        line = explain(raised)
        if case["said"]:
            assert line.startswith(case["said"]) and "\n" not in line
        else:
            assert line is None


def test_what_the_machine_refuses_is_said_in_a_line():
    assert explain(OSError(errno.ENOSPC, "No space")) == "the system: No space"
    copied = OSError(errno.ENOSPC, "No space", "from", None, "to")
    assert explain(copied) == "to: No space"
    no_folder = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    assert explain(no_folder).endswith("name one in TMPDIR")
    # Most likely a mistake in a script, which keeps its traceback.
    assert explain(FileNotFoundError(errno.ENOENT, "No such file", "/x")) is None


def test_torchruns_own_summary_names_the_error(tmp_path, monkeypatch):
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    with pytest.raises(SystemExit, match="2"):
        exit_with("this is wrong")
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
    assert failure.message["extraInfo"]["py_callstack"] == "this is wrong"
