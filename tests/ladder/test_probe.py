"""probe.py: what a step really ran."""

import pytest
import torch
from helpers import load, rung

from ladder import probe

MATH = ["aten::bmm", "aten::native_layer_norm"]
FLASH = ["Torch-Compiled Region: 0/0", "aten::_scaled_dot_product_flash_attention"]
CUDNN = ["Torch-Compiled Region: 0/0", "aten::_scaled_dot_product_cudnn_attention"]


@pytest.mark.parametrize(
    ("dtype", "operators", "expected"),
    [
        ("float", [*MATH, "aten::_foreach_addcdiv_"], "off no math foreach"),
        ("c10::Half", [*MATH, "aten::_foreach_addcdiv_"], "float16 no math foreach"),
        ("c10::BFloat16", [*FLASH, "aten::_foreach_addcdiv_"], "bfloat16 yes flash foreach"),
        ("c10::BFloat16", [*CUDNN, "aten::_fused_adamw_"], "bfloat16 yes cudnn fused"),
        ("c10::BFloat16", [*MATH, *FLASH], "bfloat16 partly flash unknown"),
    ],
)
def test_a_step_on_a_gpu_is_read_as_what_it_is(dtype, operators, expected):
    """By the names in PyTorch's sources. The bias of a linear layer stays in FP32."""
    ran = [("aten::addmm", ["float", dtype, dtype])]
    for name in operators:
        ran += [(name, [dtype, dtype]), (f"{name}_backward", [dtype])]
    assert " ".join(probe.effective(ran).values()) == expected


class WithoutActivities(torch.profiler.profile):
    """That of a PyTorch that takes no names of what to record."""

    def __init__(self, activities, **settings):
        if isinstance(activities[0], dict):
            raise ValueError("not an activity")
        super().__init__(activities=activities, **settings)


class WithoutResults(torch.profiler.profile):
    """That of a PyTorch that does not tell what it recorded."""

    def stop(self):
        super().stop()
        del self.profiler.kineto_results


@pytest.mark.parametrize(
    ("profile", "attention"), [(WithoutActivities, "math"), (WithoutResults, "unknown")]
)
def test_a_pytorch_without_a_private_name_costs_the_effective_line_alone(
    profile, attention, run_main, monkeypatch
):
    monkeypatch.setattr(probe, "profile", profile)
    log = run_main(load(rung(0)), "--steps", 3)
    assert log.result["status"] == "ok" and log.effective["matmul"] == "fp32"
    assert log.effective["attention"] == attention


def test_tf32_is_seen_and_not_read_from_the_setting(monkeypatch):
    def in_10_bits(a, b):  # as TF32 units, and float16, which has as many
        return torch.mm(a.half().float(), b.half().float())

    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    monkeypatch.setattr(torch.Tensor, "__matmul__", in_10_bits)
    assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"
