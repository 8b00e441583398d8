"""A climb on disk: climb.json, the logs of its runs, why runs failed, and its scripts."""

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ladder.checkout import ROOT, SCRIPTS, git
from ladder.disk import write_atomic
from ladder.errors import UsageError
from ladder.measure.kinds import KINDS, Comparison
from ladder.text import say

STARTED = "%Y-%m-%d %H:%M"
OUT_OF_MEMORY = "out of memory"  # of a batch that does not fit: a result
PACKED = "runs.log"  # in a published folder: all logs; runs.log.xz if they are large
Sources = dict[str, str | bytes]  # scripts by their names in the copy of the code
ByRun = dict[str, dict[int, Any]]  # by the name of a run, then by round
HEADER = re.compile(r"^(\S+)\.log\n", re.MULTILINE)  # the line above each of them
RUN_AND_ROUND = re.compile(r"(.+)\.r(\d+)")  # as `stem_of` writes it


def stem_of(run: str, k: int) -> str:
    """The stem of the files of a run in round k, such as `03_bf16_autocast.r2`."""
    return f"{run}.r{k}"


class PlannedRun(NamedTuple):
    """A script that each round runs once."""

    name: str  # the script's stem; where batch sizes are compared, its B too
    path: str  # of the script, as in `Climb.scripts`
    B: int | None  # only where batch sizes are compared


@dataclass
class Climb:
    """What a climb runs and where: climb.json.

    How far it is, its folder says: a run is done if its log NAME.rK.log is there, and has failed if
    NAME.rK.failed is, which says why.

    `rates` has a list for each rate, with one value of each round: `peak_flops` (a large matmul in
    `peak_dtype`), and on CPUs `copy_bytes_per_s` and, if that is another dtype, `fp32_flops`.
    """

    kind: str  # of KINDS
    started: str  # as STARTED
    commit: str
    rounds: int  # wanted
    scripts: list[str]  # relative to the project; from outside it only the file name
    flags: list[str]  # of every run, but for the two below, the corpus and B
    device: str
    device_type: str  # cpu, cuda or mps
    system: str
    cores: float | None  # that it may use; None: unknown
    versions: dict[str, str]
    peak_dtype: str
    rates: dict[str, list[float]]
    seed: int = 1337  # of round 1; each later round has one more
    shuffled: bool = False  # each round reads its rows in the random order of its seed
    ended: bool = False  # it ran to its end or to its time limit
    batch_sizes: list[int] = field(default_factory=list)  # empty: that of the flags
    data: str | None = None  # the path of the corpus, if it is not the default
    quick: bool = False
    max_minutes: float | None = None
    minutes: float = 0.0  # that it has run so far
    joined: list[str] = field(default_factory=list)  # commits of the climbs that this one was
    load_during: float | None = None  # cores that others took, in the run with most; None: unknown
    folder: Path | None = None  # where it is; not in climb.json. None: it has not begun

    @classmethod
    def read_from(cls, folder: Path) -> "Climb":
        """Read climb.json. Raises UsageError if there is none, or it is not of this ladder."""
        path = folder / "climb.json"
        if not path.is_file():
            raise UsageError(f"{folder} is not a climb's: it has no climb.json")
        try:
            facts = json.loads(path.read_text("utf-8"))
            facts.pop("clocks", None)  # nvidia-smi's, in those published until November 2026
            climb = cls(**facts, folder=folder)
            if climb.kind not in KINDS:
                raise ValueError(f"there is no kind {climb.kind}")
            # Of what is read later, all that another program may have written otherwise.
            numbers = [climb.rounds, climb.cores, climb.load_during, climb.rate("peak_flops")]
            for number in (*numbers, len(climb.runs), climb.began.timestamp()):
                float(number or 0)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} is not a climb of this ladder: {error}") from None
        return climb

    def save(self):
        """Write climb.json."""
        facts = dict(vars(self))
        del facts["folder"]
        write_atomic(self.folder / "climb.json", f"{json.dumps(facts, indent=1)}\n")

    def logs(self) -> ByRun:
        """The text of each log."""
        return self.of_runs(log_texts(self.folder))

    def failures(self) -> ByRun:
        """Why runs failed, in a line each."""
        return self.of_runs(texts_of(self.folder, ".failed"))

    def kept(self) -> ByRun:
        """The file of each log, of a climb that is not published."""
        return self.of_runs({path.stem: path for path in sorted(self.folder.glob("*.log"))})

    def of_runs(self, found: dict[str, Any]) -> ByRun:
        """What was `found` of this climb's runs, by `stem_of`: others in a folder are not ours."""
        ours = {run.name: {} for run in self.runs}
        for stem, what in found.items():
            run_and_round = RUN_AND_ROUND.fullmatch(stem)
            if run_and_round and run_and_round[1] in ours:
                ours[run_and_round[1]][int(run_and_round[2])] = what
        return ours

    def due(self) -> Iterator[tuple[int, PlannedRun]]:
        """Yield the round and the run of all that have no log yet, in the order of their start.

        Out of memory is a result; a run that failed for another reason is due again. A quick climb
        goes from the first to the top, and down from there: what its time leaves out gains least.
        """
        forwards = self.runs
        if self.quick:
            forwards[1:] = reversed(forwards[1:])
        kept = self.kept()
        for k in range(1, self.rounds + 1):
            # Every second round is backwards: what a run does to the next, such as heat, cancels.
            for run in forwards if k % 2 else reversed(forwards):
                if k not in kept[run.name] and run.name not in self.too_large():
                    yield k, run

    def too_large(self) -> set[str]:
        """The names of runs that were out of memory, and of the same script's runs at larger B."""
        failures = self.failures()
        names = set()
        path = None  # of the script that is too large from here on
        for run in self.runs:
            if OUT_OF_MEMORY in failures[run.name].values():
                path = run.path
            if run.path == path:
                names.add(run.name)
        return names

    @property
    def began(self) -> datetime:
        """`started`, in local time. publish.py names a folder by it."""
        return datetime.strptime(self.started, STARTED)

    @property
    def commits(self) -> list[str]:
        """Those that its runs may be of."""
        return self.joined or [self.commit]

    @property
    def comparison(self) -> Comparison:
        """What its rows are compared with."""
        return KINDS[self.kind]

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs of a round, in order: each script at the smallest B, then at the next one."""
        planned = []
        for script in self.scripts:
            stem = Path(script).stem
            for B in self.batch_sizes or [None]:
                name = f"{stem}_B{B}" if B else stem
                planned.append(PlannedRun(name, script, B))
        return planned

    def rate(self, name: str) -> float | None:
        """The median over the rounds of one of `rates`; None if it was not measured."""
        by_round = self.rates.get(name)
        return statistics.median(by_round) if by_round else None

    @property
    def matmul_flops(self) -> float:
        """The rate of a large matmul: in half precision, or in FP32 on a CPU that multiplies that
        faster."""
        return max(self.rate("peak_flops"), self.rate("fp32_flops") or 0)


def log_texts(folder: Path) -> dict[str, str]:
    """The log of each run of a folder by its name, such as `03_bf16_autocast.r2`.

    A published folder has them all in runs.log or runs.log.xz, each below a line with its file's
    name. While a climb runs, each is a file.
    """
    packed = folder / PACKED
    large = folder / f"{PACKED}.xz"
    if large.is_file():
        import lzma  # not above: some builds of Python lack it

        content = lzma.decompress(large.read_bytes())
    elif packed.is_file():
        content = packed.read_bytes()
    else:
        return texts_of(folder, ".log")
    _, *parts = HEADER.split(content.decode("utf-8", "replace"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def texts_of(folder: Path, suffix: str) -> dict[str, str]:
    """The files in a folder with this suffix, by their stems."""
    paths = sorted(folder.glob(f"*{suffix}"))
    return {path.stem: path.read_text("utf-8", "replace") for path in paths}


def scripts_of(climb: Climb, scratch: Path) -> dict[str, Path]:
    """The scripts of a climb by stem, as far as they are there.

    A published climb is ours: its scripts come from the texts beside its logs, or from git, and are
    written into `scratch`. Any other may be a stranger's: its scripts are what a look into its copy
    of the code finds, and nothing that its climb.json says chooses a file.
    """
    folder = climb.folder.resolve()
    scripts = {}
    if folder.parent == ROOT / "logs":
        try:
            for name in sorted(climb.scripts, key=is_ours):  # last those that need git
                path = scratch / Path(name).name
                beside = folder / f"{name}.txt"
                if beside.is_file():
                    path.write_text(beside.read_text("utf-8"), "utf-8")
                elif is_ours(name):
                    path.write_text(git("show", f"{climb.commit}:./{name}"), "utf-8")
                if path.exists():
                    scripts[path.stem] = path
        except UsageError as error:  # the others are not there either
            say(
                f"note  {folder.name} is shown without scripts and diffs: they need a clone with "
                f"all history, without --depth or --filter ({error})"
            )
    for pattern in ("code/*/*.py", "code/*.py"):  # a link may lead elsewhere
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and path.resolve().is_relative_to(folder):
                scripts[path.stem] = path
    return scripts


def is_ours(name: str) -> bool:
    """Whether a script of a climb, by its name there, is one of the project."""
    return "/" in name or name in SCRIPTS
