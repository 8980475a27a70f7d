"""What is counted in a page of raw text, as columns of a row per document."""

QUALITY, REPETITION, LINE_RULES = 1, 2, 4
"""What is measured, or-ed."""

WHOLE_RUNS, EACH_CHARACTER, AT_BREAKS = range(3)
"""How runs of a script without spaces are cut into words."""

WORDS, WORD_CHARACTERS, CHARACTERS, LINE_CHARACTERS, NEWLINES, UNSPACED_LETTERS = range(6)
"""Columns that are always there; characters of lines are all but newlines."""
HASHES, ELLIPSES, ALPHABETIC_WORDS, STOP_WORDS, LINES, BULLET_LINES, ELLIPSIS_LINES = range(6, 13)

SEGMENTS, SEGMENT_CHARACTERS, DUPLICATES, DUPLICATE_CHARACTERS, LATER_DUPLICATES, LATER_CHARACTERS = range(6)
"""What is counted of lines or paragraphs: all of them, those that come more than once, and those but their first."""
LINE_SEGMENTS = 13
PARAGRAPH_SEGMENTS = LINE_SEGMENTS + 6

NGRAMS = 9
"""Shares of n-grams that are measured: the most frequent of n = 2 to 4, all repeated ones of n = 5 to 10."""
TOP_2_GRAM = PARAGRAPH_SEGMENTS + 6
DUPLICATE_5_GRAMS = TOP_2_GRAM + 3

TERMINAL_LINES = TOP_2_GRAM + NGRAMS
SHORT_LINES = TERMINAL_LINES + 1
RAW_LINES = SHORT_LINES + 1
"""Six columns of lines with the white space around them."""

COUNTED_WORDS, COUNTED_CHARACTERS, MEDIAN_LENGTH, SYMBOLS = range(RAW_LINES + 6, RAW_LINES + 10)
"""What only readings of Gopher's rules other than the paper's need: of words, those that they count."""
GRAM_CHARACTERS = SYMBOLS + 1
"""Six columns: characters of all n-grams of n = 5 to 10, as often as they come."""

COLUMNS = GRAM_CHARACTERS + 6
