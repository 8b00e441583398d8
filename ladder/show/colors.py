"""The colours of every picture and page, on a white ground and on a dark one.

Chosen so that somebody who does not tell red from green sees four parts: they differ in blue
against yellow, or in lightness. Each has a contrast of at least 3:1 with its ground.
"""

PARTS = ("#2e6fa0", "#c8640a", "#7295b3", "#4a4a4a")  # in the order of ladder.measure.work.PARTS
PARTS_ON_DARK = ("#4d8fc4", "#e08b1d", "#a9c6de", "#d0d0d0")
REPORTED = "#c8385a"
REPORTED_ON_DARK = "#ff7d98"
# Of curves: of more than these, the rest are grey.
CURVES = ("#0a58a8", "#c2500a", "#7a3b8f", "#00806a")
CURVES_ON_DARK = ("#86b8f2", "#f0935e", "#d3a0e6", "#3fc7ab")
