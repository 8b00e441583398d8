"""Each script does what it says, and the check for it fails when it is broken on purpose.

The checks and the mistakes are in speedups.py, memory.py and beyond.py, by the name of a script
without its number.
"""

from functools import partial

import pytest
import torch
from helpers import load, rung, with_mistake
from models import spied_run
from rungs import beyond, memory, speedups

from ladder.measure.scripts import all_scripts, base_of

SCRIPTS = {path.stem[3:]: path for path in all_scripts()[1:]}
CHECKS = vars(speedups) | vars(memory) | vars(beyond)
MISTAKES = speedups.MISTAKES + memory.MISTAKES + beyond.MISTAKES


def check(name, module, run_main):
    """Raise an error unless `module`, the script of this name or a copy, does what it says."""
    base = load(base_of(SCRIPTS[name]))
    CHECKS[f"check_{name}"](module, base, partial(spied_run, run_main, module))


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_does_what_it_says(name, run_main):
    check(name, load(SCRIPTS[name]), run_main)


@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_mistake_is_caught(name, right, wrong, run_main, tmp_path):
    module = load(with_mistake(SCRIPTS[name], right, wrong, tmp_path / "broken.py"))
    try:
        check(name, module, run_main)
    except (AssertionError, RuntimeError):
        return
    pytest.fail(f"check_{name} passes although `{wrong}` stands where `{right}` should")


def test_each_script_has_a_check_and_a_mistake():
    """Both by its name without the number."""
    assert {name for name in SCRIPTS if f"check_{name}" not in CHECKS} == set()
    assert {name for name, *_ in MISTAKES} == SCRIPTS.keys()


@pytest.mark.parametrize("number", [0, 1])
def test_rungs_below_02_are_fp32_where_an_image_presets_tf32(number, run_main):
    """NVIDIA's images set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE: precision begins as "high"."""
    torch.set_float32_matmul_precision("high")
    run_main(load(rung(number)), "--steps", 1)
    assert torch.get_float32_matmul_precision() == "highest"
