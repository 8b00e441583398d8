"""site_page.py: docs/index.html."""

from site_page import site_sections

from ladder.files import ROOT
from ladder.show.page import page


def test_the_page_is_what_is_made_of_the_repository():
    """Else: python dev/regenerate.py."""
    made = page(site_sections(), made="")
    assert (ROOT / "docs" / "index.html").read_text("utf-8") == made
