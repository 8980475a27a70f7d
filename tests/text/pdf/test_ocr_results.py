"""Results of an OCR program: files, errors, and pages in their places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.errors import StageError
from longcrawl.text.pdf.ocr_results import put_in_place, read_results, result_files


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ('{"page": 1, "text": "a"}', "no document id"),
        ('{"id": "a", "pages": [1, 2], "texts": ["a"]}', "the numbers of pages and texts differ"),
        ('{"id": "a", "page": 0, "text": "a"}', "not a whole number from 1"),
        ('{"id": "a", "page": true, "text": "a"}', "not a whole number from 1"),
        ('{"id": "a", "page": 1, "text": null}', "not a string"),
        ('{"id": "a", "page": 1, "text": "\\ud800"}', "not a string of Unicode"),
        ('{"id": "a", "pages": [3, 3], "texts": ["a", "b"]}', "page 3 of document 'a' occurs twice"),
    ],
)
def test_a_line_of_another_form_is_an_error_that_names_it(tmp_path, line, message):
    file = tmp_path / "a.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(StageError, match=f"a.jsonl, line 2: .*{message}"):
        read_results(str(file))


def test_a_pattern_without_files_is_an_error(tmp_path):
    for pattern in ("none.jsonl", "*.jsonl"):
        with pytest.raises(StageError, match="no file matches"):
            result_files([str(tmp_path / pattern)])


@given(st.lists(st.tuples(st.booleans(), st.text("ab \n", max_size=5))), st.sampled_from(["\n\n", "\f", "<p>"]))
def test_every_result_is_between_page_breaks(pages, page_break):
    texts = ["" if is_result else text for is_result, text in pages]
    results = {number: text for number, (is_result, text) in enumerate(pages, 1) if is_result}
    made = put_in_place(texts, results, page_break)
    last = max((number for number, text in enumerate(made) if text), default=None)
    for number, text in results.items():
        breaks = page_break if text.strip() and number - 1 != last else ""
        assert made[number - 1] == text.strip() + breaks
