"""chart.py: a picture is XML, and shows that something has no room."""

import math
from xml.etree import ElementTree

from ladder.measure.stats import Estimate
from ladder.show.chart import WIDE, Axis, Bar, Chart, Picture, Scale


def test_a_picture_is_xml_whatever_its_words_are_and_cuts_off_what_has_no_room():
    picture = Picture(WIDE, "1 < 2 & 3")
    axis = Axis("gain", 0.2, 0.5, Scale(0.5, 2, log=True), {1: "0 %"})
    bar = Bar("a < b", [(1, "measured", "")], "&", link='#x"y', marks=[Estimate(9, 1, 20, 3)])
    picture.bars([bar], axes=[axis])
    chart = Chart(picture, Scale(0, 1), Scale(0, 1))
    chart.axes("loss", "steps")
    chart.line([0, 0.5, 1], [0, math.nan, math.inf], "measured", 2)
    root = ElementTree.fromstring(picture.svg())
    said = [element.text for element in root.iter() if element.text]
    assert "1 < 2 & 3" in said and "a < b" in said and "▶" in said
    assert "circle" not in picture.svg() and "nan" not in picture.svg()
