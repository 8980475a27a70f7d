"""Time datatrove's Gopher, C4 and FineWeb filters on a JSON list of texts, for ``filters.py``, where datatrove lives.

Prints CPU seconds of the best repeat last. Repetition thresholds are wide open, so that no filter ends early. C4's
sentences are those of Punkt without its trained parameters, which are a download of their own.
"""

import json
import sys
import time
from pathlib import Path

import nltk.tokenize
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from nltk.tokenize.punkt import PunktSentenceTokenizer

EVERYTHING = 1e9
PUNKT = PunktSentenceTokenizer()


def sentences(text: str, language: str = "english") -> list[str]:  # noqa: ARG001  # the name is datatrove's
    return PUNKT.tokenize(text)


def main() -> None:
    nltk.tokenize.sent_tokenize = sentences
    texts = json.loads(Path(sys.argv[1]).read_text())
    repetition = GopherRepetitionFilter(
        dup_line_frac=EVERYTHING,
        dup_para_frac=EVERYTHING,
        dup_line_char_frac=EVERYTHING,
        dup_para_char_frac=EVERYTHING,
        top_n_grams=[(n, EVERYTHING) for n in range(2, 5)],
        dup_n_grams=[(n, EVERYTHING) for n in range(5, 11)],
    )
    filters = [repetition, GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter()]
    best = float("inf")
    for _ in range(int(sys.argv[2])):
        started = time.process_time()
        for text in texts:
            for one in filters:
                one.filter(Document(text=text, id="0"))
        best = min(best, time.process_time() - started)
    print(best)


if __name__ == "__main__":
    main()
