"""Where a step goes, in RUNLOG.md, is what these profiles say: python PATH/check.py"""

import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
GROUPS = {
    "matmuls": r"aten::(mm|addmm|bmm)$",
    "attention's fused kernel": r"aten::_scaled_dot_product",
    "fused AdamW": r"aten::_fused_adamw_",
    "norm and clipping": r"aten::(linalg_vector_norm|mul_)$",
    "all else": "",
}

text = (HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8")
lines = {what: f"| {what} |" for what in [*GROUPS, "self time of the step"]}
for stem in ("10_fused_adamw", "12_causal_blocks"):
    facts = json.loads((HERE / f"{stem}.json").read_text())
    left = {kernel["name"]: kernel["ms"] for kernel in facts["kernels"]}
    for what, pattern in GROUPS.items():
        ms = sum(left.pop(name) for name in list(left) if re.match(pattern, name))
        lines[what] += f" {ms:.0f} ms, {ms / facts['self_ms']:.0%} |".replace("%", " %")
    lines["self time of the step"] += f" {facts['self_ms']:.0f} ms |"
assert "\n".join(lines.values()) in text

# The finding in words is of rung 12.
ms = {kernel["name"]: kernel["ms"] for kernel in facts["kernels"]}
gelu, loss = (sum(ms[k] for k in ms if name in k) for name in ("gelu", "log_softmax"))
matmuls = sum(ms[k] for k in ms if re.match(GROUPS["matmuls"], k))
C, layers, tokens, T = 768, 12, 4 * 256, 256
flops = 6 * tokens * (12 * layers * C**2 + 50304 * C) + 12 * layers * C * T * tokens * 3 / 4
said = " ".join(text.split())
assert f"they run at {flops / matmuls / 1e9:.2f} TFLOP/s" in said
over, rest = facts["self_ms"] * (1 - 1.29 / 1.5), facts["self_ms"] - matmuls
assert f"lose {over:.0f} of the other {rest:.0f} ms (1 − 1.29 / 1.5 of it" in said
assert f"take {gelu:.0f} of them, the update 48, the loss {loss:.0f}" in said
