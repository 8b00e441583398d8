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
assert f"{rest - above[rest]:.0f} ms above it: {(rest - above[rest]) / profile['self_ms']:.0%}" in (
    said.replace(" %", "%")
)
assert f"{matmuls / profile['self_ms']:.0%} of the step is matmuls" in said.replace(" %", "%")

ratio = facts["fp32_flops"] / facts["peak_flops"]
assert f"FP32 {ratio:.1f} times as fast" in said
base, tying, *_ = (sum(row.limit) for row in rows)
assert f"saves {base - tying:.0f} of the baseline's {base:.0f} ms" in said
assert f"which is {100 * (base / tying - 1):.1f} %" in said
assert rows[3].gain.high < 0.55 and all(row.ms > rows[0].ms for row in rows[3:])
shares = [sum(row.limit) / row.ms for row in rows[3:]]
assert f"{min(shares):.0%} to {max(shares):.0%}".replace("% ", " ") in said.replace(" %", "%")
assert [row.stem[:2] for row in rows if row.gain and not row.gain.is_noise] == ["01", "03"]
spread = max(
    max(found) / min(found)
    for row in rows
    for found in [[log.result["median_ms"] for log in row.logs.values()]]
)
assert f"differ by up to {spread:.1f} times" in said
assert f"takes {min(row.ms for row in rows[3:]) / 1e3:.1f} s even so" in said
