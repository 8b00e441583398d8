"""The colours of every picture and page, on a white ground and on a dark one.

Chosen so that somebody who does not tell red from green sees four parts: they differ in blue
against yellow, or in lightness. Each has a contrast of at least 3:1 with its ground, and means one
thing: a part of a step, what others reported, or what was measured here.
"""

PARTS = ("#2e6fa0", "#c8640a", "#7295b3", "#4a4a4a")  # in the order of ladder.measure.work.PARTS
PARTS_ON_DARK = ("#4d8fc4", "#e08b1d", "#a9c6de", "#d0d0d0")
REPORTED = "#c8385a"
REPORTED_ON_DARK = "#ff7d98"
MEASURED = "#0b7a6b"
MEASURED_ON_DARK = "#3fb8a4"
# Of curves that are compared: of more than these, the rest are grey. Dashes tell those apart that
# have one colour to some readers.
CURVES = (MEASURED, "#c2500a", "#7a3b8f", "#0a58a8")
CURVES_ON_DARK = (MEASURED_ON_DARK, "#f0935e", "#d3a0e6", "#86b8f2")
DASHES = ("none", "none", "9 4", "3 3")
