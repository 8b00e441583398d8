"""ddp_run.py with real processes: torchrun, gloo, signals and checkpoints as users meet them."""

import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import ROOT, SMALL, load
from test_input import signal_after_step

from ladder import checkpoint, probe, ranks
from ladder.cli import MODELS
from ladder.commands.log import read_log
from ladder.corpus import Corpus, load_corpus
from ladder.errors import BadInput
from ladder.files import lock

STEPS = 6
EXACT = ["--dtype", "float32", "--no-compile", "--total-batch", 512, "--steps", STEPS]
TWO = ["--standalone", "--nproc_per_node=2"]
# Runs at(step) on each rank while the learning rate of `step` is computed.
WRAPPER = """
import os, pathlib, signal, time, ladder.corpus, ddp_run
from ladder.ranks import RANK, RESTARTS
{}
real = ddp_run.get_lr
def get_lr(step, *schedule):
    at(step)
    return real(step, *schedule)
ddp_run.get_lr = get_lr
ddp_run.main()
"""


def command_line(shard, folder, *flags, exact=EXACT):
    """The flags of a run whose log and checkpoints go into `folder`."""
    paths = ["--data", shard, "--log-dir", folder / "runs", f"--ckpt-dir={folder / 'ckpt'}"]
    return [str(word) for word in (*SMALL, *paths, *exact, *flags)]


@pytest.fixture(scope="module")
def job(shard):
    """job(folder, *flags): start torchrun with ddp_run.py, or with WRAPPER around `code`."""

    def start(folder, *flags, torchrun=TWO, code=None, exact=EXACT):
        script = ROOT / "ddp_run.py"
        if code:
            script = folder / "wrapper.py"
            script.write_text(WRAPPER.format(code))
        launcher = [sys.executable, "-m", "torch.distributed.run", *torchrun]
        return subprocess.Popen(
            [*launcher, script, *command_line(shard, folder, *flags, exact=exact)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finish(process, status=0):
    """Wait until it ends with `status` (None: with any). Returns its stdout and stderr."""
    try:
        out, err = process.communicate(timeout=900)
    finally:
        process.terminate()  # torchrun ends its ranks then
    assert status in (process.returncode, None), out + err
    return out, err


@pytest.fixture(scope="module")
def two(job, tmp_path_factory):
    """The folder of an undisturbed run on two ranks, with a checkpoint after each three steps."""
    folder = tmp_path_factory.mktemp("two")
    finish(job(folder, "--ckpt-every", 3))
    return folder


@pytest.fixture(scope="module")
def one(shard, tmp_path_factory):
    """The folder of the same run in this process, without torchrun."""
    folder = tmp_path_factory.mktemp("one")
    main(shard, folder, "--ckpt-every", 3)
    return folder


def main(*args, **options):
    load(ROOT / "ddp_run.py").main(command_line(*args, **options))


@pytest.fixture
def alone(shard, tmp_path, capsys):
    """alone(*flags): main() in this process: its status, stdout and stderr."""

    def run(*flags, **options):
        status = 0
        try:
            main(shard, tmp_path, *flags, **options)
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return run


def half_of(folder, tmp_path):
    """Put the checkpoint after half of its steps where a run in `tmp_path` goes on from it."""
    (tmp_path / "ckpt").mkdir()
    shutil.copy(folder / "ckpt" / "step_000003.pt", tmp_path / "ckpt")


def last_log(folder):
    return read_log(max((folder / "runs").glob("*.log"), key=os.path.getmtime))


def losses(folder):
    """By step, of all logs in the folder."""
    logs = [read_log(path) for path in (folder / "runs").glob("*.log")]
    return {step["step"]: step["loss"] for log in logs for step in log.steps}


def weights(folder):
    return torch.load(folder / "ckpt" / f"step_{STEPS:06d}.pt", weights_only=True)["model"]


def assert_equal_weights(folder, other):
    expected = weights(other)
    for name, w in weights(folder).items():
        assert torch.equal(w, expected[name]), name


def test_the_same_training_in_any_layout(two, one, alone, tmp_path):
    """Two ranks of two micro-steps, one of four, one of one at four times the batch."""
    assert alone("--batch-size", 8, "--ckpt-every", STEPS)[0] == 0
    logs = [last_log(folder) for folder in (two, one, tmp_path)]
    layouts = [("2", "2"), ("1", "2"), ("1", "8")]
    assert [(log.run["ranks"], log.run["B"]) for log in logs] == layouts
    for folder, log in zip((one, tmp_path), logs[1:], strict=True):
        assert losses(folder) == pytest.approx(losses(two), abs=5e-6)
        assert log.vals[-1]["loss"] == pytest.approx(logs[0].vals[-1]["loss"], abs=5e-6)
        for (name, w), reference in zip(
            weights(folder).items(), weights(two).values(), strict=True
        ):
            # Without gradient but for rounding, which Adam blows up: a key's bias changes nothing.
            if name.endswith("c_attn.bias"):
                C = len(w) // 3
                w[C : 2 * C] = reference[C : 2 * C] = 0
            assert (w - reference).norm() <= 1e-4 * reference.norm() + 1e-7, name


def test_the_log_of_several_ranks_is_that_of_one_script(two):
    log = last_log(two)
    assert log.result["status"] == "ok" and log.result["script"] == "ddp_run.py"
    assert log.run["total_batch"] == "512" and log.effective["optimizer"] == "fused"
    assert log.result["tok_per_s"] == pytest.approx(512e3 / log.result["median_ms"], rel=1e-3)
    assert log.steps[3]["tok_per_s"] == pytest.approx(512 / log.steps[3]["dt"], rel=0.01)
    assert [val["step"] for val in log.vals] == [STEPS] and len(log.samples) == 1
    kept = sorted(path.name for path in (two / "ckpt").glob("step*"))
    assert kept == ["step_000003.pt", "step_000006.pt"]


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_was_cut_goes_on_in_one_process(ranks, one, two, alone, tmp_path):
    """Bit for bit where it began in one."""
    began = one if ranks == 1 else two
    half_of(began, tmp_path)
    assert alone("--ckpt-every", 3, "--resume")[0] == 0
    after = {step: loss for step, loss in losses(began).items() if step > 3}
    assert losses(tmp_path) == pytest.approx(after, rel=0, abs=0 if ranks == 1 else 5e-6)
    if ranks == 1:
        assert_equal_weights(tmp_path, one)


@pytest.mark.slow
def test_two_nodes_stop_where_one_rank_gets_sighup_and_one_node_goes_on(job, two, tmp_path):
    """They meet over loopback, and all of it is bit for bit what one node does undisturbed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meet = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={probe.getsockname()[1]}"]
    code = (
        "def at(step):\n"
        "    if step == 2 and RANK == 1:\n"
        "        os.kill(os.getpid(), signal.SIGHUP)"
    )
    nodes = [job(tmp_path, torchrun=[*meet, f"--node-rank={n}"], code=code) for n in (0, 1)]
    (out, _), _ = [finish(node) for node in nodes]  # torchrun: all its ranks ended with 0
    log = last_log(tmp_path)
    done = len(log.steps)
    assert 3 <= done < STEPS and log.result["status"] == "stopped"
    assert f"step_{done:06d}.pt" in out and "SIGHUP" in out
    finish(job(tmp_path, "--ckpt-every", 3, "--resume"))
    assert len(last_log(tmp_path).steps) == STEPS - done and losses(tmp_path) == losses(two)
    assert_equal_weights(tmp_path, two)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_torchrun_is_told_to_end_or_killed(job, tmp_path, name):
    """Its ranks finish a step and save it."""
    if name == "SIGKILL" and sys.platform != "linux":
        pytest.skip("only Linux tells a process that its parent died")
    code = (
        "def at(step):\n"
        "    if step == 2 and RANK == 1:\n"
        f"        os.kill(os.getppid(), signal.{name})"
    )
    out, _ = finish(job(tmp_path, "--steps", 100, code=code), status=None)
    assert last_log(tmp_path).result["status"] == "stopped"
    assert list((tmp_path / "ckpt").glob("step_*.pt"))
    assert f"note  {name.replace('KILL', 'TERM')}: stopped after a whole step" in out


@pytest.mark.parametrize("tee", [False, True])
def test_sigterm_to_a_single_process(alone, monkeypatch, tmp_path, tee):
    """Also where it ended `| tee` before: the next line meets a closed pipe."""
    if tee:
        reader, writer = os.pipe()
        os.close(reader)
        closed = os.fdopen(writer, "w")
        monkeypatch.setattr(os, "kill", lambda *_: monkeypatch.setattr(sys, "stdout", closed))
    signal_after_step(monkeypatch, signal.SIGTERM)
    status, out, err = alone("--eval-every", 0)
    assert status == 0, out + err
    assert last_log(tmp_path).result["status"] == "stopped" and 3 <= len(losses(tmp_path)) < STEPS
    assert list((tmp_path / "ckpt").glob("step_*.pt"))


@pytest.mark.slow
def test_killed_ranks_restart_the_job_from_its_last_checkpoint(job, two, tmp_path):
    """Rank 1 dies in a step, then rank 0 while it writes a checkpoint."""
    code = (
        "def kill(*_):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def at(step):\n"
        "    if (RESTARTS, RANK, step) == (0, 1, 3):\n"
        "        kill()\n"
        "    if RESTARTS == 1:\n"
        "        os.fsync = kill"
    )
    torchrun = [*TWO, "--max-restarts=2"]
    out, _ = finish(job(tmp_path, "--ckpt-every", 2, torchrun=torchrun, code=code))
    assert out.count("note  going on after step 2") == 2
    assert re.search(r"deleted .*step_000004\.pt\.\d+\.tmp, which was never finished", out)
    assert last_log(tmp_path).steps[-1]["loss"] == losses(two)[STEPS]
    assert not list((tmp_path / "ckpt").glob("*.tmp"))


@pytest.mark.slow
def test_one_rank_reads_the_text_the_slowest_sets_the_time_and_one_fails_for_all(job, tmp_path):
    (tmp_path / "text.txt").write_text("To be, or not to be, that is the question. " * 200)
    code = (
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "ladder.corpus.DATA_DIR = folder\n"
        "def encoder(timeout_s):\n"
        "    (folder / f'tokenized-by-{RANK}').touch()\n"
        "    return lambda text: list(text.encode())\n"
        "ladder.corpus.gpt2_encoder = encoder\n"
        "def at(step):\n"
        "    if RANK == 1 and step == 2:\n"
        "        time.sleep(2)\n"
        "    if RANK == 1 and step == 3:\n"
        "        raise ZeroDivisionError('rank one broke')"
    )
    out, err = finish(job(tmp_path, "--data", tmp_path / "text.txt", code=code), status=1)
    assert [p.name for p in tmp_path.glob("tokenized-by-*")] == ["tokenized-by-0"]
    assert float(re.search(r"step    3/6 .* dt +([\d.]+) ms", out)[1]) >= 2000
    assert "rank 1: error ZeroDivisionError: rank one broke" in err and "step    5/6" not in out


BAD = {
    "cut short": (["--resume"], "is damaged or not a checkpoint"),
    "another size": (["--resume", "--model", "gpt2"], "--model tiny, this run has gpt2"),
    "earlier run": ([], "is of an earlier run: continue it with --resume"),
    "no whole batch": (["--total-batch", 500], "the nearest are: "),
    "no number": (["--hours", "1e306"], "--hours: expected a number above 0, got 1e306"),
    "no folder": (["--ckpt-dir", __file__], "cannot write checkpoints into"),
    "no choice": (["--hours", 1], "--steps and --hours both say how long to train"),
}


@pytest.mark.parametrize(
    ("ranks", "trouble"), [*((1, trouble) for trouble in BAD), (2, "cut short")]
)
def test_bad_input_is_one_line_of_rank_0(ranks, trouble, job, alone, one, tmp_path):
    flags, said = BAD[trouble]
    if not trouble.startswith("no "):
        half_of(one, tmp_path)
        if trouble == "cut short":
            os.truncate(tmp_path / "ckpt" / "step_000003.pt", 100_000)
    before = {p: p.read_bytes() for p in tmp_path.glob("ckpt/step*")}
    if ranks == 1:
        status, _, own = alone(*flags)
        assert status == 2
    else:
        _, err = finish(job(tmp_path, *flags), status=1)
        own, *report = re.split(r"^[WE]\d{4} .*torch/distributed/elastic", err, flags=re.MULTILINE)
        assert "exitcode  : 2" in "".join(report)
    lines = [line for line in own.splitlines() if "error" in line]
    assert len(lines) == 1 and said in lines[0] and "Traceback" not in own, own
    assert {p: p.read_bytes() for p in tmp_path.glob("ckpt/step*")} == before


def test_a_restarted_job_goes_on_only_with_its_own_checkpoints(alone, one, tmp_path, monkeypatch):
    """torchrun restarts also what refused to start: that must not turn into --resume."""
    half_of(one, tmp_path)
    monkeypatch.setattr(ranks, "RESTARTS", 1)
    monkeypatch.setattr(ranks, "started", lambda process: 100)
    os.utime(path := tmp_path / "ckpt" / "step_000003.pt", (99, 99))
    status, _, err = alone()
    assert status == 2 and "is of an earlier run: continue it with --resume" in err
    os.utime(path, (100, 100))
    (tmp_path / "ckpt" / "pretrained.pt").touch()  # no checkpoint of a run
    os.utime(tmp_path / "ckpt" / "pretrained.pt", (99, 99))
    status, out, _ = alone()
    assert status == 0 and "going on after step 3" in out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "torchrun started 2 processes on this machine, where PyTorch sees 1 CUDA devices"),
        (["--device", "cuda:0"], "--device cuda:0: torchrun assigns a GPU to each process"),
        (["--device", "xpu:0"], "--device xpu:0: torchrun assigns a GPU to each process: use xpu"),
        (["--device", "mps"], "gloo does not support Apple GPUs: use --device cpu"),
        (["--dtype", "bfloat16"], "error Tesla T4 has no bfloat16 units: leave --dtype out"),
    ],
)
def test_devices_that_ranks_cannot_share_or_use(flags, said, card, monkeypatch, capsys):
    card("M3" if "mps" in flags else "Arc B580" if "xpu:0" in flags else "T4")
    if "--dtype" not in flags:
        args = ranks.parse("", flags)  # without torchrun
        assert args.total_batch == (4096 if "mps" in flags else 524288)
        assert args.dtype == ("float16" if args.device.type == "cuda" else "bfloat16")
        monkeypatch.setattr(ranks, "DISTRIBUTED", True)
        monkeypatch.setattr(ranks, "LOCAL_WORLD", 2)
    with pytest.raises(SystemExit) as caught:
        ranks.parse("", flags)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error ") and said in line


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"RANK": "abc"}, "RANK is 'abc' and no number"),
        ({"RANK": "0", "WORLD_SIZE": ""}, "WORLD_SIZE is '' and no number"),
        ({"RANK": "0"}, "WORLD_SIZE expected, but not set"),
        (
            {"TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "0", "MASTER_ADDR": None},
            "expected, but not set",
        ),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, WORLD_SIZE 2"),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "x"}, "'x'"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "EADDRINUSE"),
        (  # torchrun was killed
            {"TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "0", "MASTER_PORT": "1"},
            "Connection refused",
        ),
    ],
)
def test_an_environment_that_torchrun_did_not_make(told, said, monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(taken.getsockname()[1])}
        for name, value in {**where, **told}.items():
            monkeypatch.setenv(name, value or "")
            if value is None:
                monkeypatch.delenv(name)
        with pytest.raises(SystemExit) as caught:
            for attribute, name in (("RANK", "RANK"), ("WORLD", "WORLD_SIZE")):
                monkeypatch.setattr(ranks, attribute, ranks._told(name, 1))
            ranks.meet()
    (line,) = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2 and line.startswith("error ") and said in line


def test_a_rank_that_waits_for_others_says_so(monkeypatch, capsys):
    """Others that were never started are waited for half an hour."""
    timer = threading.Timer
    monkeypatch.setattr(threading, "Timer", lambda seconds, *args: timer(seconds / 100, *args))
    monkeypatch.setattr(ranks, "RANK", 0)
    monkeypatch.setattr(ranks, "WORLD", 2)

    def rendezvous(url):
        time.sleep(1)
        raise ValueError("at last")

    monkeypatch.setattr(ranks.dist, "rendezvous", rendezvous)
    with pytest.raises(SystemExit, match="2"):
        ranks.meet()
    assert capsys.readouterr().err.startswith("note  rank 0 of 2 waits for the others: ")


def test_where_one_rank_fails_all_end(monkeypatch):
    """It says why; the others do not wait for it, nor say that it is gone."""
    assert ranks.on_all_ranks(int, "3") == 3
    with pytest.raises(BadInput, match="no such file or folder"):
        ranks.on_all_ranks(load_corpus, "/no/such/corpus", print)
    monkeypatch.setattr(ranks, "reduced", lambda *_, op: 2.0)
    with pytest.raises(SystemExit) as caught:
        ranks.on_all_ranks(int, "3")
    assert caught.value.code == 2


def test_the_code_of_a_rank_is_its_program_and_the_package(tmp_path, monkeypatch):
    """As they are on disk, committed or not."""
    program, seen = tmp_path / "ddp_run.py", []
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setattr(ranks, "__file__", str(tmp_path / "ladder" / "ranks.py"))
    (tmp_path / "ladder").mkdir()
    for path, text in ((program, "0.9"), (program, "0.1"), (tmp_path / "ladder" / "a.py", "seed")):
        path.write_text(text)
        seen.append(ranks.alike(Corpus("text", "0123", [np.zeros(1, np.uint16)])))
    assert seen[0]["torch"] == torch.__version__ and len({found["code"] for found in seen}) == 3


def test_help_ends_all_ranks_well(monkeypatch, capsys):
    """Rank 0 prints it and tells the others."""
    told = []
    monkeypatch.setattr(ranks, "reduced", lambda status, op: told.append(status) or max(told))
    for rank in (0, 1):
        monkeypatch.setattr(ranks, "RANK", rank)
        with pytest.raises(SystemExit, match="0"):
            ranks.on_rank_0(ranks.parse, "", ["--help"])
    assert capsys.readouterr().out.count("--total-batch TOKENS") == 2  # in usage and in the list


@pytest.mark.parametrize("stdout", [None, Mock(flush=Mock(side_effect=BrokenPipeError))])
def test_a_rank_without_standard_output_ends_with_its_status(stdout, monkeypatch):
    """As a daemon starts it, or where nobody reads any more."""
    monkeypatch.setattr(os, "_exit", Mock(side_effect=EOFError))
    monkeypatch.setattr(ranks, "DISTRIBUTED", True)
    monkeypatch.setattr(ranks, "meet", Mock(side_effect=SystemExit(2)))
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(EOFError):
        ranks.together(None, "", [])
    os._exit.assert_called_once_with(2)


def test_bytes_are_not_the_tokens_of_the_same_text(tmp_path, monkeypatch):
    """A checkpoint of one is not gone on from with the other, nor do two ranks train on both."""
    flags = ["--device", "cpu", "--ckpt-dir", str(tmp_path), "--eval-every", "0"]
    args = ranks.parse("", flags)
    shard, found = np.arange(2000, dtype=np.uint16), []
    for tokenizer in ("bytes", "gpt2"):
        parts = [Corpus("text", "0123", [part], tokenizer) for part in (shard, shard[:5])]
        # The held-out part is too short, and not asked for.
        monkeypatch.setattr(ranks, "load_splits", lambda *_, parts=parts: parts)
        job = ranks.prepare(args, print)
        assert job.val_rows == 0
        found.append(job.identity["data"])
    assert found == ["bytes 0123", "gpt2 0123"]
    here = ranks.alike(parts[0])
    for key, other in (("data", "bytes 0123"), ("torch", "2.9.0"), ("code", "12ab")):
        monkeypatch.setattr(ranks, "on_rank_0", lambda *_, there=here | {key: other}: there)
        with pytest.raises(BadInput, match=f"this rank has {key} .* 0 {other}: give"):
            ranks.prepare(args, print)


@pytest.mark.parametrize(
    ("held_out", "said"),
    [
        (np.full(500, 65535, np.uint16), "has token id 65535"),
        (np.full(500, 50257, np.uint16), "has token id 50257"),
        (np.zeros(9, np.uint16)[:0], "has 0 tokens, but one batch needs 9"),  # of a short text
    ],
)
def test_held_out_text_is_checked_before_the_first_step(held_out, said, monkeypatch):
    splits = [Corpus("text", "0123", [part]) for part in (np.zeros(500, np.uint16), held_out)]
    monkeypatch.setattr(ranks, "load_splits", lambda *_: splits)
    args = ranks.parse("", ["--device=cpu", "--batch-size=1", "--seq-len=8", "--total-batch=8"])
    with pytest.raises(BadInput, match=said):
        ranks.prepare(args, print)


def test_other_files_in_the_folder_and_a_disk_that_fails_later(tmp_path):
    (tmp_path / "step_best.pt").touch()  # somebody's own
    assert checkpoint.checkpoints(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write the checkpoint"):
        checkpoint.save(tmp_path / "file", step=1)


def test_ctrl_c_while_a_checkpoint_is_written_is_no_fault_of_the_disk(tmp_path, monkeypatch):
    """torch.save makes a RuntimeError of it, about positions."""

    def write(piece):
        if len(piece) == 400_000:
            raise KeyboardInterrupt
        return len(piece)

    monkeypatch.setattr(checkpoint, "write_whole", lambda path, part: part(Mock(write=write)))
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, step=1, model={"w": torch.ones(100_000)})


def test_a_full_disk_is_named_though_torch_speaks_of_positions(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(BadInput, match=r"cannot write the checkpoint .*: .*File too large"):
            checkpoint.save(tmp_path, step=1, model={"w": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(sys.platform != "linux", reason="root can write into other folders")
def test_a_folder_that_takes_no_files_is_found_out_before_the_first_step(monkeypatch):
    """Its .lock may be there from a time when it did."""
    monkeypatch.setattr(checkpoint, "lock", lambda folder: None)
    with pytest.raises(BadInput, match="cannot write checkpoints into /proc/self: "):
        choose("/proc/self")


def choose(folder, said=print, resume=True, **identity):
    return checkpoint.choose(folder, resume, identity, {"--steps": 9}, said)


def save(folder, step, **more):
    state = dict(step=step, position=0, identity={"seed": 1}, model={})
    state["flags"] = {"--steps": 9, "--warmup": 1}
    return checkpoint.save(folder, **{**state, "optimizer": {}, **more})


def stepped():
    """A model and its optimizer after a step."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path):
    """Also one byte of 4096 in the middle of a tensor, which torch.load would not notice."""
    weights = {"w": torch.ones(4096)}
    first, second = (save(tmp_path, step, model=weights) for step in (1, 2))
    assert choose(tmp_path, seed=1) == second
    content, said = bytearray(second.read_bytes()), []
    content[content.index(weights["w"].numpy().tobytes()) + 2048] ^= 1
    second.write_bytes(content)
    assert torch.load(second)["model"]["w"].shape == (4096,)
    assert choose(tmp_path, said.append, seed=1) == first
    assert "is damaged" in said[0] and "going on after step 1" in said[2]
    assert save(tmp_path, 3).exists() and first.exists() and not second.exists()
    os.remove(tmp_path / "step_000003.pt")
    first.write_bytes(b"")
    with pytest.raises(BadInput, match=r"step_000001.pt is damaged .* delete it"):
        choose(tmp_path, seed=1)


def test_a_checkpoint_with_the_name_of_another_step_is_refused(tmp_path):
    """Else each --resume starts from it again, and what was trained since is lost."""
    save(tmp_path, 4).rename(tmp_path / "step_000900.pt")
    save(tmp_path, 8)
    with pytest.raises(BadInput, match=r"step_000900.pt holds step 4: rename it"):
        choose(tmp_path, seed=1)


def test_above_damaged_checkpoints_the_last_two_are_kept(tmp_path):
    for step in (10, 20, 30, 40):
        save(tmp_path, step)
    assert [path.name[5:11] for path in checkpoint.checkpoints(tmp_path)] == ["000030", "000040"]
    save(tmp_path, 20)
    for damaged in (30, 40):
        (tmp_path / f"step_0000{damaged}.pt").write_bytes(b"")
    for step in (24, 25):
        assert choose(tmp_path, seed=1) and save(tmp_path, step).exists()
    assert choose(tmp_path, seed=1).name == "step_000025.pt"
    assert (tmp_path / "step_000024.pt").exists() and not (tmp_path / "step_000020.pt").exists()


def test_a_best_model_of_another_run_is_not_written_over(tmp_path):
    """It is all that is left of a run that was stopped before its first checkpoint."""
    best = checkpoint.save(tmp_path, checkpoint.BEST, identity={"seed": 1}, val_loss=2.0)
    assert choose(tmp_path, seed=1) is None
    with pytest.raises(BadInput, match=r"best\.pt was saved with seed 1, .* another --ckpt-dir"):
        choose(tmp_path, seed=2)
    best.write_bytes(b"of another program")
    with pytest.raises(BadInput, match=r"SHA-256 is wrong\): choose another"):
        choose(tmp_path, seed=1)


@pytest.mark.parametrize(
    "more",
    [
        {"identity": 7},
        {"identity": {"seed": torch.ones(2)}},
        {"optimizer": {"param_groups": [], "state": {}}},
        {"optimizer": 7},
        {"model": {"other": 1}},
        {"scaler": {"scale": 1.0}},
        {"position": 2**63},
    ],
)
def test_a_checkpoint_of_another_version_is_refused_in_a_line(tmp_path, more):
    model, optimizer = stepped()
    scaler = torch.amp.GradScaler("cpu")
    state = dict(model=model.state_dict(), optimizer=optimizer.state_dict())
    path = save(tmp_path, 3, **state)  # without a scaler and held-out text, as once
    identity = {"seed": 1, "held-out text": "gpt2 1234"}
    assert checkpoint.restore(path, identity, model, optimizer, scaler) == (3, 0)
    save(tmp_path, 3, **{**state, **more})
    with pytest.raises(BadInput, match=r"is of another version of ddp_run.py"):
        checkpoint.restore(path, {"seed": 1}, model, optimizer, scaler)
    checkpoint.save(tmp_path, step=3, identity={"seed": 1})
    with pytest.raises(BadInput, match=r"is of another version .* 'position'"):
        choose(tmp_path, seed=1)
    checkpoint.save(tmp_path, step=3, identity={"seed": 1})
    with pytest.raises(BadInput, match=r"is of another version .* 'position'"):
        choose(tmp_path, seed=1)


def test_a_flag_may_have_been_saved_as_anything(tmp_path):
    save(tmp_path, 3, flags={"--steps": 9, "--warmup": 1, "--max-lr": torch.ones(2)})
    flags = {"--steps": 9, "--max-lr": 1.0}  # --steps is always among them
    checkpoint.choose(tmp_path, True, {}, flags, (said := []).append)
    assert said[1] == "note  --max-lr was tensor([1., 1.]), now it is 1.0"


@pytest.mark.parametrize(
    ("part", "key", "value", "said"),
    [
        ("moments", "exp_avg", torch.zeros(3), "['exp_avg'] is not as this run saves it"),
        ("moments", "exp_avg_sq", torch.zeros(1).expand(2, 2), "['exp_avg_sq'] is not as"),
        ("moments", "step", torch.zeros((), dtype=torch.int64), "['step'] is not as"),
        ("moments", "more", 1, "['more'] is not as"),
        ("settings", "betas", "y", "AdamW had other settings"),
        ("settings", "weight_decay", 0.5, "AdamW had other settings"),
        ("settings", "params", [0], "AdamW had other settings"),
        ("scaler", "scale", "x", "['scale'] is not as"),
        ("model", "weight", torch.zeros(2, 2, dtype=torch.int64), "['weight'] is not as"),
        ("state", "step", "3", "step is '3'"),
        ("state", "step", -3, "step is -3"),
        ("state", "position", 1.5, "position is 1.5"),
        ("state", "flags", [1], "unsupported operand"),
        ("state", "flags", {"--steps": "x", "--warmup": 1}, "--steps is 'x'"),
    ],
)
def test_a_checkpoint_is_compared_with_what_this_run_saves(tmp_path, part, key, value, said):
    """Fused kernels would read and write past the end of a smaller tensor."""
    (model, optimizer), scaler = stepped(), torch.amp.GradScaler("cpu")
    state = dict(model=model.state_dict(), optimizer=optimizer.state_dict())
    state |= dict(scaler=scaler.state_dict(), step=3, flags={"--steps": 9, "--warmup": 1})
    path = save(tmp_path, **state)
    assert checkpoint.restore(path, {"seed": 1}, model, optimizer, scaler) == (3, 0)
    saved = state["optimizer"]
    parts = {"moments": saved["state"][0], "settings": saved["param_groups"][0]}
    (state | parts | {"state": state})[part][key] = value
    path = checkpoint.save(tmp_path, "step_000003.pt", **{"position": 0, "identity": {}, **state})
    with pytest.raises(BadInput, match=r"is of another version of ddp_run.py") as caught:
        checkpoint.restore(path, {}, model, optimizer, scaler)
    assert said in str(caught.value)


def test_float16_may_begin_and_end_with_a_checkpoint(tmp_path):
    """Other types have an empty state of the scaler."""
    model, optimizer = stepped()
    parts = dict(model=model.state_dict(), optimizer=optimizer.state_dict())
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0, enabled=on) for on in (True, False)]
    for before, now in (scalers, scalers[::-1]):
        path = save(tmp_path, 3, **parts, scaler=before.state_dict())
        assert checkpoint.restore(path, {"seed": 1}, model, optimizer, now) == (3, 0)
        assert now.get_scale() == (8 if now.is_enabled() else 1)


def test_a_second_job_leaves_the_folder_of_the_first_alone(tmp_path):
    """Refused for its flags or because the first is at work, it deletes nothing."""
    save(tmp_path, 1)
    unfinished = tmp_path / "step_000002.pt.77.tmp"
    unfinished.touch()
    for flags in ({"resume": False}, {"seed": 2}):
        with pytest.raises(BadInput):
            choose(tmp_path, **flags)
    checkpoint._locks.clear()
    with lock(tmp_path), pytest.raises(BadInput, match="another run is at work"):
        choose(tmp_path, seed=1)
    assert unfinished.exists()
    for name in ("step_000003.pt", "step_000009.pt.1.tmp"):
        (tmp_path / name).mkdir()
    (mine := tmp_path / "thesis.pt.v1.tmp").touch()
    assert choose(tmp_path, seed=1).name == "step_000001.pt" and not unfinished.exists()
    assert mine.exists()


def test_a_folder_that_was_moved_under_a_run_is_locked_anew(tmp_path):
    """Else a second run would be let in, and delete what the first has not finished."""
    choose(tmp_path / "ckpt", seed=1)
    (tmp_path / "ckpt").rename(tmp_path / "moved")
    save(tmp_path / "ckpt", 1)
    with pytest.raises(BadInput, match="another run is at work in"):
        lock(tmp_path / "ckpt")


def test_another_schedule_is_said(alone, one, tmp_path):
    """Also one that has no steps left."""
    half_of(one, tmp_path)
    status, out, _err = alone("--resume", "--steps", 4, "--max-lr", 1e-3)
    assert status == 0 and "note  --steps was 6, now it is 4" in out
    assert "note  --max-lr was 0.0006, now it is 0.001" in out and "--dtype was" not in out
    status, out, _err = alone("--resume", "--steps", 2, "--dtype", "bfloat16")
    assert status == 0 and '"status": "ok"' in out and '"measured_steps": 0' in out
    assert "note  --dtype was float32, now it is bfloat16" in out
    assert "note  nothing is left to train: --steps is 2" in out


def test_a_batch_of_more_tokens_than_a_step_could_ever_train_is_refused(capsys):
    with pytest.raises(SystemExit):
        ranks.parse("", ["--total-batch", str(2**31)])
    assert "argument --total-batch: expected 1 to 2147483647" in capsys.readouterr().err


def test_peak_rate_warm_up_and_a_position_table_as_asked(alone, tmp_path):
    """Also: --resume where there is nothing to go on from says so."""
    flags = ["--batch-size", 1, "--seq-len", 1100, "--total-batch", 1100, "--eval-every", 0]
    flags += ["--steps", 3, "--max-lr", 3e-3, "--warmup", 2, "--resume"]
    status, out, err = alone(*flags)
    assert status == 0 and "starting from the beginning" in out, out + err
    log = last_log(tmp_path)
    assert [step["lr"] for step in log.steps] == pytest.approx([1.5e-3, 3e-3, 3e-4])
    assert int(log.run["params"]) == 7_363_328 + (1100 - 1024) * 128 and log.run["T"] == "1100"


@pytest.mark.slow
def test_shuffled_rows_are_gone_on_from_with_another_batch(alone, one, tmp_path):
    assert alone("--shuffle", 3, "--ckpt-every", 3)[0] == 0
    uncut = losses(tmp_path)
    assert uncut != pytest.approx(losses(one), abs=1e-3)
    (tmp_path / "ckpt" / "step_000006.pt").unlink()
    assert alone("--shuffle", 3, "--resume", "--batch-size", 4)[0] == 0
    log = last_log(tmp_path)
    assert log.run["B"] == "4"
    after = {step: loss for step, loss in uncut.items() if step > 3}
    assert {step["step"]: step["loss"] for step in log.steps} == pytest.approx(after, abs=5e-6)
    status, _, err = alone("--resume")
    assert status == 2 and "was saved with --shuffle 3, this run has None" in err


@pytest.mark.slow
def test_as_users_leave_the_flags_but_for_the_size(job, alone, tmp_path, monkeypatch):
    """Compiled and in bfloat16, on two ranks; one layer, which compiles sooner than four."""
    monkeypatch.setitem(MODELS["tiny"], "n_layer", 1)
    assert alone("--eval-every", 0)[0] == 0
    (folder := tmp_path / "compiled").mkdir()
    code = "import ladder.cli\nladder.cli.MODELS['tiny']['n_layer'] = 1\ndef at(step): pass"
    finish(job(folder, exact=["--total-batch", 512, "--steps", STEPS], code=code))
    log = last_log(folder)
    assert losses(folder) == pytest.approx(losses(tmp_path), abs=0.02)
    assert log.effective["autocast"] == "bfloat16" and log.effective["compiled"] == "yes"


FLOAT16 = ["--dtype", "float16", "--eval-every", 3]
# A CPU multiplies float16 slowly: a small model. Its scale is too large for the first step.
SMALL_MODEL = """
import torch, ladder.cli
from functools import partial
ladder.cli.MODELS["tiny"].update(n_layer=1, n_embd=32, vocab_size=256)
ddp_run.END_OF_TEXT = 0
torch.amp.GradScaler = partial(torch.amp.GradScaler, init_scale={scale})
"""


def test_float16_goes_on_with_the_scale_that_it_had(shard, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.amp, "GradScaler", torch.amp.GradScaler)  # both are put back
    monkeypatch.setitem(MODELS, "tiny", dict(MODELS["tiny"]))
    module = load(ROOT / "ddp_run.py")
    exec(SMALL_MODEL.format(scale=2.0**20), {"ddp_run": module})
    flags = [*FLOAT16, "--ckpt-every", 3, "--resume"]
    (tmp_path / "later").mkdir()
    module.main(command_line(shard, tmp_path, *flags))
    half_of(tmp_path, tmp_path / "later")
    module.main(command_line(shard, tmp_path / "later", *flags))
    whole, later = last_log(tmp_path), last_log(tmp_path / "later")
    assert whole.effective["autocast"] == "float16" and whole.result["skipped_steps"] > 1
    assert later.result["loss_scale"] == whole.result["loss_scale"] < 2**20
    assert later.result["skipped_steps"] < whole.result["skipped_steps"]
    assert later.steps[-1]["loss"] == whole.steps[-1]["loss"]
    assert_equal_weights(tmp_path, tmp_path / "later")


@pytest.mark.slow
def test_an_overflow_on_one_rank_skips_the_step_on_both(job, tmp_path):
    """Rank 1 alone gets inf, in the first micro-step of the second step."""
    code = (
        SMALL_MODEL.format(scale=2.0**10)
        + """
models, made, backwards = [], ddp_run.GPT.__init__, []
def spoil(grad):
    backwards.append(1)
    return grad * float("inf") if RANK == 1 and len(backwards) == 3 else grad
def init(self, config):
    made(self, config)
    models.append(self)
    self.transformer.ln_f.bias.register_hook(spoil)
ddp_run.GPT.__init__ = init
def at(step):
    with open(f"{FOLDER}/rank{RANK}", "a") as file:
        print(sum(p.double().sum().item() for p in models[0].parameters()), file=file)
""".replace("{FOLDER}", str(tmp_path))
    )
    finish(job(tmp_path, *FLOAT16, "--eval-every", 0, "--steps", 4, code=code))
    log = last_log(tmp_path)
    assert (log.result["skipped_steps"], log.result["loss_scale"]) == (1, 2**9)
    (note,) = (note for note in log.notes if "skipped" in note)
    assert note.startswith("step 2 skipped") and not math.isfinite(log.steps[1]["norm"])
    assert math.isfinite(log.steps[2]["norm"]) and math.isfinite(log.result["final_loss"])
    sums = [(tmp_path / f"rank{rank}").read_text().split() for rank in (0, 1)]
    assert sums[0] == sums[1] and sums[0][1] == sums[0][2] != sums[0][3]


def test_a_validation_is_no_part_of_the_profile_of_a_step(alone, monkeypatch, tmp_path):
    """It comes between the first step and the second: the profile begins anew after it.

    The held-out rows have been read once before the first step, to find ids that GPT-2 lacks.
    """
    calls = []

    def spy(owner, name, call):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: calls.append(call(args)) or real(*args))

    for name in ("start", "stop"):
        spy(probe, name, lambda _, name=name: name)
    spy(ranks.Batches, "rows", lambda args: args[0].corpus.name)
    monkeypatch.setattr(torch, "autocast", None)  # to float32 it would warn on some devices
    exact = ["--dtype", "float32", "--no-compile", "--total-batch", 128, "--eval-every", 1]
    status, out, err = alone("--steps", 3, exact=exact)
    assert status == 0, out + err
    text, held_out = "topics", "topics's last 10 %"
    first, second = [text, "start", "stop", held_out, "start"], [text, "stop", held_out]
    assert calls == [held_out, *first, *second, text, held_out]
