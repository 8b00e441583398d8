"""svg.py: colours that can be read on both grounds, and a picture that is XML."""

from xml.etree import ElementTree

import pytest
from svg import COLORS, INKS, Picture

WORDS = ("ink", "soft", "reported", "measured")  # on the ground
ON = [(color, "ground") for color in WORDS] + [(ink, piece) for piece, ink in INKS.items()]
ON += [("added-ink", "added")]


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize(("words", "behind"), ON)
def test_words_have_contrast(words, behind, ground):
    light, dark = sorted([luminance(COLORS[name][ground]) for name in (words, behind)])[::-1]
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(color: str) -> float:
    """As WCAG defines it, of a colour such as #2e6fa0."""
    red, green, blue = (linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def test_a_picture_is_xml_whatever_its_words_are():
    picture = Picture(100, "1 < 2 & 3")
    picture.text(0, 10, "a < b & c", "soft")
    root = ElementTree.fromstring(picture.svg())
    assert root[0].text == "1 < 2 & 3" and root[-1].text == "a < b & c"
    assert ".soft{fill:#59636e}" in root[1].text and "prefers-color-scheme:dark" in root[1].text
