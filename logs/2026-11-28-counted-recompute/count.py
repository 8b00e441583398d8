"""Bytes of all tensors at the highest moment of a step of ddp_run.py --recompute, not compiled, with
gradients kept from one micro-step to the next; counted on fake tensors, under a CPU's autocast.

    python count.py gpt2 8      # from the root of the repository
"""

import json
import sys
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint

from ladder.cli import MODELS

size, B = sys.argv[1], int(sys.argv[2])
spec = spec_from_file_location("ddp_run", "ddp_run.py")
script = module_from_spec(spec)
spec.loader.exec_module(script)
with FakeTensorMode():
    model = script.GPT(script.GPTConfig(**MODELS[size]))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model.recompute = True
    model.part_loss = partial(checkpoint, model.part_loss, use_reentrant=False)
    for block in model.transformer.h:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    ids = torch.zeros(B, 1024, dtype=torch.int64)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):  # the first one makes the moments
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(ids, ids)
            loss.backward()
            optimizer.step()
            tracker.reset_mod_stats()
(peak,) = tracker.get_tracker_snapshot("peak").values()
print(json.dumps({"model": size, "B": B, "GB": round(peak["Total"] / 1e9, 3)}))
