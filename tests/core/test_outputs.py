"""Interface of outputs and their results, in every format."""

import pytest

from longcrawl.core.outputs import OUTPUTS, RESULTS, Result
from longcrawl.errors import StageError


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One row\ncosts $5.", r"line 2 of the card of output 'parquet' has a lone \$: write \$\$ for a dollar sign$"),
        ("$ledgr", r"card of output 'parquet' has the word \$ledgr; known: ledger\. Did you mean 'ledger'\?"),
        ("$$5 $ledger", None),
    ],
)
def test_a_card_is_checked_before_there_is_an_output(text, sentence):
    class OwnCard(type(RESULTS["parquet"])):
        card_words = Result.card_words

        def card_template(self):
            return text

    if sentence is None:
        OwnCard().check_card()
        assert OwnCard().fill_card({}, "gone") == "$5 gone"
        return
    with pytest.raises(StageError, match=sentence):
        OwnCard().check_card()


def test_an_output_that_names_no_tables_has_no_rows_to_ask(tmp_path):
    class Silent(Result):
        name, description = "silent", "silent.json"
        summary = read_back = configs = contents = verify = inspect = None  # not called

    assert Silent().ids(tmp_path).files == []


def test_every_output_is_told_of():
    assert set(OUTPUTS) == set(RESULTS)
