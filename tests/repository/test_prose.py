"""Holds the wordings that our style avoids to a tenth of what they once were; ``python -m tests.prose`` finds them."""

import prose
import pytest

pytestmark = pytest.mark.slow
"""Reads all files for two seconds; `make lint` runs it."""

MOST = {
    "headless 'What …' at the start of a docstring": 60,
    "fronted 'Of / By / Whose …'": 18,
    "documents that leave, stay, come or are gone": 36,
    "'says', 'told', 'a sentence' for messages": 57,
    "'lies', 'stands' for location": 34,
    "'as above', 'as below'": 8,
    "trailing ', too' and ', again'": 11,
    "'is to be', 'shall'": 4,
    "'Where' for 'if' or 'when'": 9,
}


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return prose.counts(prose.ROOT)


@pytest.mark.parametrize("pattern", prose.PATTERNS)
def test_a_wording_that_our_style_avoids_stays_rare(pattern, counts):
    assert counts[pattern] <= MOST[pattern], "python -m tests.prose FOLDER lists the places"
