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


class AnotherProfile(torch.profiler.profile):
    """That of a PyTorch without one of the private names that `probe` uses."""

    without = None

    def __init__(self, activities, **settings):
        names_operators = isinstance(activities[0], dict)
        if self.without == "activities" and names_operators:
            raise ValueError("not an activity")
        super().__init__(activities=activities, **settings)

    def stop(self):
        super().stop()
        if self.without == "kineto_results":
            del self.profiler.kineto_results


@pytest.mark.parametrize("name", ["activities", "kineto_results"])
def test_a_pytorch_without_a_private_name_costs_the_effective_line_alone(
    name, run_main, monkeypatch
):
    monkeypatch.setattr(AnotherProfile, "without", name)
    monkeypatch.setattr(probe, "profile", AnotherProfile)
    log = run_main(load(rung(0)), "--steps", 3)
    assert log.result["status"] == "ok" and log.effective["matmul"] == "fp32"
    told = name == "activities"
    assert log.effective["attention"] == ("math" if told else "unknown")
    assert ("does not tell what a step ran" in " ".join(log.notes)) != told


def test_tf32_is_seen_and_not_read_from_the_setting(monkeypatch):
    def in_10_bits(a, b):  # as TF32 units, and float16, which has as many
        return torch.mm(a.half().float(), b.half().float())

    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    monkeypatch.setattr(torch.Tensor, "__matmul__", in_10_bits)
    assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"
