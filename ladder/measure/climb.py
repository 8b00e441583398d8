"""A climb on disk: climb.json, and the logs of its runs."""

import json
import re
import statistics
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import NamedTuple, get_args, get_origin

from ladder.errors import UsageError
from ladder.files import write_atomic
from ladder.measure.kinds import KINDS, Comparison
from ladder.text import printable

OUT_OF_MEMORY = "out of memory"  # of a batch that does not fit: a result
PACKED = "runs.log"  # in a published folder: all logs; runs.log.xz if they are large
_HEADER = re.compile(r"^(\S+)\.log$", re.MULTILINE)  # the line above each of them
_RUN = re.compile(r"(.+)\.r([1-9][0-9]{0,3})")  # its name and round
# A plain relative path: no blank, which would end a header, and no part that begins with a dot.
SCRIPT = re.compile(r"(\w[\w.-]*/)*\w[\w.-]*\.py")
HUGE = 1e30  # no number of ours is near
RATES = ("peak_flops", "fp32_flops", "copy_bytes_per_s")  # that a climb has, or the first alone


def are_scripts(paths: list[str]) -> bool:
    """Whether these are plain paths of scripts whose logs have different names."""
    stems = {Path(path).stem for path in paths}
    return len(stems) == len(paths) and all(map(SCRIPT.fullmatch, paths))


def are_rates(rates: dict[str, list[float]]) -> bool:
    """Whether these are RATES, or the first of them, all above zero."""
    if tuple(rates) not in (RATES, RATES[:1]):
        return False
    return all(min(values, default=0) > 0 for values in rates.values())


# What the value of a field has to be, beside its type.
_RIGHT = {
    "kind": KINDS.__contains__,
    "started": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d").fullmatch,
    "commit": re.compile(r"[0-9a-f]{12}(-dirty)?|unknown").fullmatch,
    "scripts": are_scripts,
    "rates": are_rates,
    "batch_sizes": lambda sizes: min(sizes, default=1) > 0,
}


def is_of(value, wanted) -> bool:
    """Whether a value from JSON is of a type; of a list or a dict also whether all in it is."""
    container = get_origin(wanted)
    types = get_args(wanted)
    if container is UnionType:
        return any(is_of(value, one) for one in types)
    if container is list:
        return isinstance(value, list) and all(is_of(one, types[0]) for one in value)
    if container is dict:
        if not isinstance(value, dict) or not is_of([*value], list[str]):
            return False
        return is_of([*value.values()], list[types[1]])
    if wanted is float:
        return type(value) in (int, float) and abs(value) < HUGE
    if wanted is int:
        return type(value) is int and abs(value) < HUGE  # a bool is no number
    return type(value) is wanted and (wanted is not str or printable(value) == value)


class PlannedRun(NamedTuple):
    """A script that each round runs once."""

    name: str  # the script's stem; where batch sizes are compared, its B too
    path: str  # of the script, as in `Climb.scripts`
    B: int | None  # only where batch sizes are compared


@dataclass
class Climb:
    """What a climb runs, where, and how far it is: climb.json.

    It may be a stranger's: ValueError is raised unless each field is what one of ours would be.

    `rates` has a list for each rate, with one value of each round: `peak_flops` (a large matmul in
    `peak_dtype`), `fp32_flops` (one in float32) and `copy_bytes_per_s`, the last two on CPUs only.
    """

    kind: str  # of KINDS
    started: str  # YYYY-MM-DD hh:mm
    commit: str
    rounds: int  # wanted
    rounds_begun: int  # fewer if the time was over
    scripts: list[str]  # relative to the project; from outside it only the file name
    flags: list[str]  # of every run
    device: str
    device_type: str  # cpu, cuda or mps
    system: str
    cores: int
    versions: dict[str, str]
    peak_dtype: str
    rates: dict[str, list[float]]
    clocks: dict[str, str]  # `before`; once it has ended, `after` too
    ended: bool = False  # it ran to its end or to its time limit
    batch_sizes: list[int] = field(default_factory=list)  # empty: that of the flags
    data: str | None = None  # the path of the corpus, if it is not the default
    quick: bool = False
    max_minutes: float | None = None
    minutes: float = 0.0  # that it has run so far
    load_before: float = 0.0  # programs that wanted to run when it started
    load_during: float | None = None  # cores that others took, in the run with most; None: unknown
    failures: dict[str, str] = field(default_factory=dict)  # why, by NAME.rK

    def __post_init__(self):
        for one in fields(self):
            value = getattr(self, one.name)
            is_right = is_of(value, one.type)
            if is_right and one.name in _RIGHT:
                is_right = _RIGHT[one.name](value)
            if not is_right:
                raise ValueError(f"its {one.name} is {value!r:.60}")
        if bool(self.batch_sizes) != (self.kind == "batch-sizes"):
            raise ValueError(f"its batch_sizes are {self.batch_sizes} and its kind is {self.kind}")

    @classmethod
    def read_from(cls, folder: Path) -> "Climb":
        """Read climb.json. Raises UsageError if there is none, or it is not of this ladder."""
        path = folder / "climb.json"
        if not path.is_file():
            raise UsageError(f"{folder} is not a climb's: it has no climb.json")
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not a climb.json of this ladder: {error}") from None

    def write_to(self, folder: Path):
        """Write climb.json."""
        write_atomic(folder / "climb.json", json.dumps(asdict(self), indent=1).encode() + b"\n")

    @property
    def comparison(self) -> Comparison:
        """What its rows are compared with."""
        return KINDS[self.kind]

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs of a round, in order: all scripts at the smallest B, then at the next one."""
        planned = []
        for B in self.batch_sizes or [None]:
            for script in self.scripts:
                stem = Path(script).stem
                name = f"{stem}_B{B}" if B else stem
                planned.append(PlannedRun(name, script, B))
        return planned

    def rate(self, name: str) -> float | None:
        """The median over the rounds of one of `rates`; None if it was not measured."""
        if name not in self.rates:
            return None
        return statistics.median(self.rates[name])

    def last_failures(self) -> dict[str, str]:
        """Why a run failed, by its name; of several rounds the last one counts."""
        failures = {}
        for name_and_round, why in self.failures.items():
            name = name_and_round.rpartition(".")[0]
            failures[name] = why
        return failures

    def out_of_memory(self) -> set[str]:
        """The names of runs that were out of memory, and of the same script's runs at larger B."""
        failures = self.last_failures()
        names = set()
        paths = set()
        for run in self.runs:  # from the smallest B to the largest
            if failures.get(run.name) == OUT_OF_MEMORY:
                paths.add(run.path)
            if run.path in paths:
                names.add(run.name)
        return names


def log_texts(folder: Path) -> dict[str, str]:
    """The log of each run of a folder by its name, such as `03_bf16_autocast.r2`.

    A published folder has them all in runs.log or runs.log.xz, each below a line with its file's
    name. While a climb runs, each is a file.
    """
    packed = folder / PACKED
    large = folder / f"{PACKED}.xz"
    if large.is_file():
        import lzma  # not above: some builds of Python lack it

        try:
            content = lzma.decompress(large.read_bytes())
        except lzma.LZMAError as error:
            raise UsageError(f"{large} cannot be decompressed: {error}") from None
    elif packed.is_file():
        content = packed.read_bytes()
    else:
        paths = sorted(path for path in folder.glob("*.log") if path.is_file())
        return {path.stem: path.read_text("utf-8", "replace") for path in paths}
    _, *parts = _HEADER.split(content.decode("utf-8", "replace"))
    texts = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        texts[name] = text.removeprefix("\n")
    return texts


def pack_logs(texts: dict[str, str]) -> str:
    """The text of runs.log."""
    return "".join(f"{name}.log\n{text}" for name, text in texts.items())


def climb_logs(folder: Path, climb: Climb) -> dict[tuple[str, int], str]:
    """The logs in a climb's folder, by the name of the run and the round."""
    names = {run.name for run in climb.runs}
    texts = {}
    for stem, text in log_texts(folder).items():
        found = _RUN.fullmatch(stem)
        if found and found[1] in names:  # other files in the folder are not ours
            texts[found[1], int(found[2])] = text
    return texts
