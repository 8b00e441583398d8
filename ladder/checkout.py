"""The checkout: its folder, its commit, and whether a script is its own.

This module does not import torch.
"""

import os
import re
import subprocess
from pathlib import Path

from ladder.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (ROOT / "baseline.py").exists()  # else only the package is installed
SCRIPTS = ("baseline.py", "ddp_run.py", "train.py", "fsdp_run.py")  # outside the folders
# What makes the numbers: the scripts, what they import or read, and what measures. Nothing in
# ladder/show/ or ladder/commands/.
RUNNING_CODE = (
    *SCRIPTS,
    "speedups/*.py",
    "cpu/*.py",
    "memory/*.py",
    "beyond/*.py",
    "peers/*.py",
    "ladder/*.py",
    "ladder/gpus.csv",
    "ladder/measure/*.py",
    "ladder/measure/work.json",
    "data/tinyshakespeare.bin",
)
COMMITTED = re.compile("[0-9a-f]{12}")  # what commit() returns where no change is uncommitted


def require_own(path: Path):
    """Raise UsageError if `path` is in another checkout than this package, or none is here.

    A climb's copy of the code counts as a checkout.
    """
    path = path.resolve()
    for folder in (path, *path.parents):
        if folder == ROOT:
            break
        if (folder / "baseline.py").exists() and (folder / "ladder").is_dir():
            raise UsageError(
                f"{path} is in the checkout {folder}, but this `ladder` is that of {ROOT}: "
                f"PYTHONPATH={folder} runs its own; or `pip install -e {folder}`"
            )
    if not IS_CHECKOUT:
        raise UsageError(
            "`ladder` works on the scripts, which are not here: clone the repository, and "
            "`pip install -e .` in it"
        )


def git(*arguments: str) -> subprocess.CompletedProcess:
    """Run git in the checkout; the caller checks returncode. `stderr` says why in one line."""
    command = ["git", "-C", str(ROOT), "--no-optional-locks", *arguments]
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # of a hook, or of dotfiles
        os.environ.pop(name, None)
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", "git is not installed")
    done.stderr = " ".join(done.stderr.split())
    return done


def no_commit() -> str:
    """Why git knows no commit of this checkout, in its words; empty if it does.

    It may not be a repository, be another user's, or lie in a repository of something else.
    """
    answer = git("ls-files", "--error-unmatch", "baseline.py")
    return answer.stderr if answer.returncode else ""


def commit() -> str:
    """HEAD's first 12 digits, with `-dirty` if the running code has changes that are not in it.

    Running code is RUNNING_CODE; a README is not. `unknown` if git cannot say: see `no_commit`.
    `ladder climb` measures a copy of the code: its file COMMIT has what this returned in the
    checkout.
    """
    copied = ROOT / "COMMIT"
    if copied.exists():
        return copied.read_text("utf-8").strip()
    if no_commit():
        return "unknown"
    head = git("rev-parse", "--short=12", "HEAD").stdout.strip()
    return f"{head}-dirty" if changed() else head


def changed() -> list[str]:
    """The files of the running code whose content git's HEAD does not have."""
    # With --glob-pathspecs git reads RUNNING_CODE as Path.glob does: no * matches a slash.
    # Not their modes, which network drives and copies change.
    as_ours = ("--glob-pathspecs", "-c", "core.fileMode=false")
    status = git(*as_ours, "status", "--porcelain", "--untracked-files=all", "--", *RUNNING_CODE)
    return [line[3:] for line in status.stdout.splitlines()]
