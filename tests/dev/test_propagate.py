"""dev/propagate.py, in a copy of the scripts."""

import shutil
import subprocess
import sys

from ladder.checkout import ROOT
from ladder.measure.scripts import BRANCHES, ON_SEVERAL_GPUS, all_scripts, relative_name

BATCHES = "        batches = Batches(corpus, B, T, seed=args.seed, shuffle=args.shuffle)\n"


HEADS = "        self.n_head = config.n_head\n"


def test_an_edit_is_applied_to_all_later_rungs_up_to_a_conflict(tmp_path):
    """A line right below one that rungs 08, 09 and 10 change, and one that 08 itself does.

    An edit of rung 10 reaches fsdp_run.py.
    """
    for name in ("dev", "ladder", "speedups", *BRANCHES):
        shutil.copytree(ROOT / name, tmp_path / name)
    for script in (ROOT / "baseline.py", *ON_SEVERAL_GPUS):
        shutil.copy(script, tmp_path)
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]

    def commit():
        for words in (["init", "-q"], ["add", "."], [*me, "commit", "-q", "-m", "all"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)

    def propagate(number, old, new):
        script = paths[number]
        script.write_text(script.read_text().replace(old, new))
        words = [sys.executable, "-m", "dev.propagate", str(number)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)

    names = [relative_name(path) for path in [*all_scripts(), *ON_SEVERAL_GPUS]]
    paths = [tmp_path / name for name in names]
    commit()
    done = propagate(10, HEADS, HEADS + "        assert self.n_head\n")
    assert done.stdout.splitlines() == [f"{name} changed" for name in names[11:]]
    assert "assert self.n_head" in paths[-1].read_text()
    commit()

    before = [path.read_text() for path in paths[:-2]]  # train.py names the text otherwise
    new = BATCHES + "        assert B * T > 0\n"
    done = propagate(3, BATCHES, new)
    assert done.stdout.splitlines()[: len(names) - 6] == [f"{name} changed" for name in names[4:-2]]
    assert done.stdout.endswith("\npython -m dev.propagate train\n")
    expected = before[:3] + [text.replace(BATCHES, new) for text in before[3:-1]]
    assert [path.read_text() for path in paths[:-3]] == expected

    done = propagate(5, "lr=LEARNING_RATE)", "lr=LEARNING_RATE, foreach=True)")
    assert done.returncode == 1
    assert done.stdout.endswith("\npython -m dev.propagate 08_adamw_clipping\n")
    edited = [path.stem[:2] for path in paths if "foreach=True" in path.read_text()]
    assert edited == ["05", "06", "07", "08"]
    assert "<<<<<<< this script\n" in paths[8].read_text()
