"""probe.py: what a step really ran."""

import pytest
import torch

from ladder import probe

MATH = ["aten::bmm", "aten::native_layer_norm"]
FLASH = ["Torch-Compiled Region: 0/0", "aten::_scaled_dot_product_flash_attention"]
CUDNN = ["Torch-Compiled Region: 0/0", "aten::_scaled_dot_product_cudnn_attention"]


@pytest.mark.parametrize(
    ("dtype", "operators", "expected"),
    [
        ("float", [*MATH, "aten::_foreach_addcdiv_"], "off no math foreach"),
        ("c10::Half", [*FLASH, "aten::_foreach_addcdiv_"], "float16 yes flash foreach"),
        ("c10::BFloat16", [*CUDNN, "aten::_fused_adamw_"], "bfloat16 yes cudnn fused"),
        ("c10::BFloat16", [*MATH, *FLASH], "bfloat16 partly flash unknown"),
    ],
)
def test_a_step_on_a_gpu_is_read_as_what_it_is(dtype, operators, expected):
    """By the names in PyTorch's sources. The bias of a linear layer stays in FP32."""
    ran = {("aten::addmm", "float", dtype, dtype)}
    for name in operators:
        ran |= {(name, dtype, dtype), (f"{name}_backward", dtype)}
    assert " ".join(probe.effective(ran).values()) == expected


def test_tf32_is_seen_and_not_read_from_the_setting(monkeypatch):
    def in_10_bits(a, b):  # as TF32 units, and float16, which has as many
        return torch.mm(a.half().float(), b.half().float())

    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    monkeypatch.setattr(torch.Tensor, "__matmul__", in_10_bits)
    assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"
