"""chart.py: colours that can be read on both grounds, and pictures that are XML."""

import math
from xml.etree import ElementTree

import pytest

from ladder.measure.stats import Estimate
from ladder.show.chart import COLORS, CURVES, INKS, WIDE, Axis, Bar, Chart, Picture, Scale

ON = [(color, "ground") for color in ("ink", "soft", "reported", *CURVES)]
ON += [(ink, piece) for piece, ink in INKS.items()] + [("added-ink", "added")]


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize(("words", "behind"), ON)
def test_words_have_contrast(words, behind, ground):
    dark, light = sorted(luminance(COLORS[name][ground]) for name in (words, behind))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(color: str) -> float:
    """As WCAG defines it, nearly: 2.2 is sRGB's power but for the darkest tones."""
    red, green, blue = ((int(color[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_picture_is_xml_whatever_its_words_are_and_cuts_off_what_has_no_room():
    picture = Picture(WIDE, "1 < 2 & 3")
    axis = Axis("gain", 0.2, 0.5, Scale(0.5, 2, log=True), {1: "0 %"})
    bars = [Bar("a < b", [(1, "measured", "")], "&", link='#x"y', marks=[Estimate(9, 1, 20, 3)])]
    picture.bars(bars, axes=[axis])
    chart = Chart(picture, Scale(0, 1), Scale(0, 1))
    chart.axes("loss", "steps")
    chart.line([0, 0.5, 1], [0, math.nan, math.inf], "measured", 2)
    root = ElementTree.fromstring(picture.svg())
    said = [element.text for element in root.iter() if element.text]
    assert "1 < 2 & 3" in said and "a < b" in said and "▶" in said
    assert "circle" not in picture.svg() and "nan" not in picture.svg()
