"""What RUNLOG.md says of this climb and profile is what they say: python PATH/check.py"""

import json
import re
from pathlib import Path

from ladder.commands.limits import limit_of
from ladder.commands.results import read_climb

HERE = Path(__file__).resolve().parent
NAMES = {
    "matmuls of the linear layers (`aten::mm`, `aten::addmm`)": r"aten::(mm|addmm)$",
    "attention's matmuls (`aten::bmm`)": r"aten::bmm$",
    "optimizer, norm and clipping": r"aten::(_fused_adamw_|linalg_vector_norm|mul_)$",
    "all else": "",
}
ORDER = (0, 1, 3, 2)  # of these parts in a limit

text = (HERE.parents[1] / "RUNLOG.md").read_text(encoding="utf-8")
said = " ".join(text.split())
facts, rows = read_climb(HERE.with_name(HERE.name.replace("profile", "climb")))
profile = json.loads((HERE / "12_causal_blocks.json").read_text())
left = {kernel["name"]: kernel["ms"] for kernel in profile["kernels"]}
limits, lines, above = rows[12].limit, [], {}
assert limits == limit_of("12_causal_blocks", profile["run"], facts)
for (what, pattern), index in zip(NAMES.items(), ORDER, strict=True):
    names = [name for name in left if re.match(pattern, name)]
    ms = sum(left.pop(name) for name in names) if pattern else profile["self_ms"] - sum(above)
    above[ms] = limits[index]
    lines.append(f"| {what} | {limits[index]:.0f} | {ms:.0f} | {limits[index] / ms:.0%} |")
assert "\n".join(lines).replace("%", " %") in text, lines
matmuls, *_, rest = above
said = said.replace(" %", "%")
over, step = rest - above[rest], profile["self_ms"]
assert f"{over:.0f} ms above it, {over / step:.0%} of the step" in said
assert f"{matmuls / step:.0%} of the step is matmuls" in said
assert f"{step:.0f} ms, {1 - step / rows[12].ms:.0%} less than the climb's {rows[12].ms:.0f}" in said

assert f"FP32 {facts['fp32_flops'] / facts['peak_flops']:.1f} times as fast" in said
base, tying, *_ = (sum(row.limit) for row in rows)
assert f"from {base:.0f} to {tying:.0f} ms, {base / tying - 1:.1%} more" in said
assert rows[3].gain.low < 0.5 < rows[3].gain.high
slow = [row.ms for row in rows[3:]]
assert min(slow) > rows[0].ms
assert f"takes {min(slow) / 1e3:.1f} to {max(slow) / 1e3:.1f} s even so" in said
shares = [sum(row.limit) / row.ms for row in rows[3:]]
assert f"{min(shares) * 100:.0f} to {max(shares):.0%} of their" in said
assert [row.stem[:2] for row in rows if row.gain and not row.gain.is_noise] == ["01", "03"]
medians = [[log.result["median_ms"] for log in row.logs.values()] for row in rows]
assert f"differ by up to {max(max(m) / min(m) for m in medians):.1f} times" in said
