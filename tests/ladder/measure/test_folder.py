"""folder.py: climb.json, and the logs in a folder."""

import pytest
from climbs import LOGS

from ladder.log import parse_log
from ladder.measure.folder import log_texts


@pytest.mark.parametrize("path", sorted(LOGS.glob("*/runs.log")), ids=lambda path: path.parent.name)
def test_every_published_log_is_read(path):
    for name, text in log_texts(path.parent).items():
        assert parse_log(text, name).steps
