"""Peak memory of a training step, in two ways; RUNLOG.md says what came out.

    python peak.py counted 31 gpt2 4 1024 [cuda]     # bytes of tensors, on fake tensors
    python peak.py process 31 gpt2 4 1024 [compiled] # of this process, on a CPU

Both print a line of JSON: script, model, B, T, and GB of the highest moment in a step. It runs from
the root of the repository, with the package installed. With `cuda` tensors are a GPU's, and so are
attention and autocast; PyTorch has to see a GPU, whose memory is not used.

`process` takes VmHWM of the last of three steps (of two if not compiled), less what the process
holds beside tensors: its VmRSS before that step, less weights and moments, which are 12 bytes a
parameter. MALLOC_MMAP_THRESHOLD_ has the C library give back what is freed, as a GPU's allocator
can use it again. VmHWM is set back before each step (clear_refs), so that what compiling takes is
not in it.
"""

import gc
import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from ladder.cli import MODELS
from ladder.files import ROOT
from ladder.measure.scripts import all_scripts, number_of


def load(name: str):
    """The script of this number, or file."""
    (path,) = [
        path
        for path in [*all_scripts(), *ROOT.glob("*_run.py")]
        if name in (path.name, f"{number_of(path)}")
    ]
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def steps(model, optimizer, ids, device="cpu"):
    """A training step at each next(), as a rung does it, without clipping and schedule, which keep
    nothing. Like the rungs it holds the logits of a step until the next one has its own."""
    while True:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            returned = model(ids, ids)
        loss = returned[1] if isinstance(returned, tuple) else returned
        loss.backward()
        optimizer.step()
        yield


def make(script, size: str, device="cpu"):
    with torch.device(device):
        model = script.GPT(script.GPTConfig(**MODELS[size]))
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def counted(script, size: str, B: int, T: int, device: str) -> float:
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, optimizer = make(script, size, device)
        ids = torch.zeros(B, T, dtype=torch.int64, device=device)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        training = steps(model, optimizer, ids, device)
        with tracker:
            for _ in range(2):  # the first one makes the moments
                next(training)
                tracker.reset_mod_stats()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return peak["Total"]


def status(key: str) -> int:
    """Bytes of this line of /proc/self/status."""
    with open("/proc/self/status") as lines:
        (line,) = [line for line in lines if line.startswith(key)]
    return int(line.split()[1]) * 1024


def process(script, size: str, B: int, T: int, compiled: bool) -> float:
    model, optimizer = make(script, size)
    tensors = 12 * sum(p.numel() for p in model.parameters())
    ids = torch.randint(0, 50257, (B, T))
    training = steps(torch.compile(model) if compiled else model, optimizer, ids)
    for _ in range(3 if compiled else 2):
        optimizer.zero_grad()  # before what is held is read: gradients are of the step
        gc.collect()
        held = status("VmRSS")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        next(training)
    return status("VmHWM") - (held - tensors)


if __name__ == "__main__":
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = "262144"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    way, name, size, B, T, *more = sys.argv[1:]
    sizes = dict(B=int(B), T=int(T))
    script = load(name)
    if way == "counted":
        peak = counted(script, size, **sizes, device=more[0] if more else "cpu")
    else:
        peak = process(script, size, **sizes, compiled=bool(more))
    of = dict(way=" ".join([way, *more]), script=name, model=size)
    print(json.dumps(of | sizes | dict(GB=round(peak / 1e9, 3))), flush=True)
