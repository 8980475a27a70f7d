"""RefinedWeb's line-wise corrections and C4's rules against the same definitions in plain Python.

    python benchmarks/line_corrections.py [--text DOCUMENTS.jsonl.zst] [--repeats 3] [--sentences]

Both sides give the edited texts and what every document is judged by; all are asserted equal. CPU time of one process
on one core, the best of --repeats, after one warm-up (the kernels compile once and are kept on disk). Without --text,
lines such as web pages have are made up; with it, the English documents of a file with the fields ``text`` and ``lang``
are read. The last line is plain seconds / longcrawl seconds over all stages.

With --sentences nltk's punkt (``pip install nltk``), trained on these same documents, counts the sentences of what
``C4Quality`` leaves of them, and the verdicts of ``min_sentences`` are compared. The model that nltk offers for
download is another one: it was trained on other text.
"""

import argparse
import io
import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import yaml
from _measures import seconds

SHIPPED = Path(__file__).parent.parent / "longcrawl" / "text" / "presets" / "lines" / "refinedweb.yaml"
LISTS = {"prefixes": "prefix", "suffixes": "suffix", "anywhere": "anywhere"}


@lru_cache(maxsize=1)
def capitals() -> dict[str, str]:
    """Return the characters that have a given lower case."""
    found: dict[str, str] = {}
    for character in map(chr, range(0x110000)):
        if len(lower := character.lower()) == 1 and lower != character:
            found[lower] = found.get(lower, "") + character
    return found


@lru_cache(maxsize=1)
def number() -> str:
    numerals = "".join(character for character in map(chr, range(0x110000)) if character.isnumeric())
    return rf"(?>[{numerals}][{numerals},.]*(?:[kmbKMB](?!\w))?\+?\s*)"


def spelled(phrase: str) -> str:
    """Return a regular expression of a phrase in any case and with any white space, which starts and ends no word."""
    made = []
    for character in " ".join(phrase.split()):
        lower = character.lower() if len(character.lower()) == 1 else character
        made.append(r"\s+" if lower == " " else "[" + re.escape(lower + capitals().get(lower, "")) + "]")
    return "".join(made) + (r"(?!\w)" if re.match(r"\w", phrase[-1]) else "")


def started(phrase: str) -> str:
    """Return a regular expression of a phrase that does not start inside a word; # is a number."""
    if not phrase.startswith("#"):
        return (r"(?<!\w)" if re.match(r"\w", phrase[0]) else "") + spelled(phrase)
    return r"(?<!\w)" + number() + spelled(phrase[1:].strip())


class Plain(NamedTuple):
    """Result of plain Python for a document."""

    text: str
    words: int
    removed: int
    flagged: int
    changes: list[tuple[int, str, str | None, str]]


class PlainCorrections:
    """The definitions of ``LineCorrections``, one line after the other."""

    def __init__(
        self,
        lists: Mapping[str, Sequence[str]],
        uppercase: float | None = 0.5,
        numerical: float | None = 1.0,
        short: int | None = 10,
    ):
        self.uppercase, self.numerical, self.short = uppercase, numerical, short
        phrases = [(phrase, name) for kind, name in LISTS.items() for phrase in lists.get(kind, ())]
        # The longest phrase at a place comes first, and one without a number before one with.
        phrases.sort(key=lambda pair: (pair[0].startswith("#"), -len(" ".join(pair[0].removeprefix("#").split()))))
        self.at_start = self._alternatives(phrases)
        self.later = self._alternatives([pair for pair in phrases if pair[1] != "prefix"])
        words = "|".join(map(spelled, lists.get("counters", ())))
        self.counter = re.compile(f"{number()}(?:{words})" if words else r"(?!)")
        self.line = re.compile("|".join(map(started, lists.get("lines", ()))) or "(?!)")
        self.numeral = re.compile(number())

    def _alternatives(self, phrases: list[tuple[str, str]]) -> re.Pattern[str]:
        ends = {"prefix": "", "suffix": r"\Z", "anywhere": ""}
        groups = [f"(?P<{name}_{at}>{started(phrase)}{ends[name]})" for at, (phrase, name) in enumerate(phrases)]
        return re.compile("|".join(groups) or "(?!)")

    def rule(self, content: str) -> str | None:
        """Return the rule by which a line goes as a whole."""
        if self.uppercase is not None and sum(map(str.isupper, content)) / len(content) > self.uppercase:
            return "uppercase"
        solid = "".join(content.split())
        if self.numerical is not None and sum(map(str.isnumeric, solid)) / len(solid) >= self.numerical:
            return "numerical"
        core = re.sub(r"\A\W+|\W+\Z", "", content)
        if self.counter.fullmatch(core):
            return "counter"
        return "line" if self.line.fullmatch(content) else None

    def edited(self, content: str) -> tuple[str, str]:
        """Return what is left of a line, and the rules that spoke."""
        kept, at, pieces, rules = 0, 0, [], set()
        while match := (self.at_start if at == 0 else self.later).search(content, at):
            rule = match.lastgroup.partition("_")[0]
            if rule == "prefix" and match.start() > 0:
                # A prefix further on is none; something else may be found there, and before.
                match = self.later.search(content, at)
                if match is None:
                    break
                rule = match.lastgroup.partition("_")[0]
            rules.add(rule)
            pieces.append(content[kept : match.start()].strip())
            kept = at = match.end()
        if not rules:
            return content, ""
        pieces.append(content[kept:].strip())
        return " ".join(piece for piece in pieces if piece), "+".join(name for name in LISTS.values() if name in rules)

    def __call__(self, text: str) -> Plain:
        """Correct one document."""
        out, words, removed, flagged, changes = [], 0, 0, 0, []
        for place, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+\Z", text), 1):
            content = line.strip()
            count = len(content.split())
            words += count
            left: str | None = content
            rule = self.rule(content) if content else ""
            if rule:
                left = None
            elif content and self.short is not None and count <= self.short:
                left, rule = self.edited(content)
            if rule:
                removed += count - len((left or "").split())
                flagged += count
                changes.append((place, content, left or None, rule))
                line = line.replace(content, left, 1) if left else ""  # noqa: PLW2901  # the line as edited
            out.append(line)
        return Plain("".join(out), words, removed, flagged, changes)


CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
SENTENCE_END = re.compile(r"""[.!?]+["'”’»›)\]}.!?]*(?=\s|\Z)""")  # noqa: RUF001  # quotation marks as they are printed
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def in_lower_case(line: str) -> str:
    """Return each character in lower case by itself, where that is one character."""
    if line.isascii():
        return line.lower()
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in line)


def sentences(line: str) -> int:
    return sum(re.search(r"\w", piece) is not None for piece in SENTENCE_END.split(line))


class Page(NamedTuple):
    """Result of plain Python for a document, by C4's rules."""

    text: str
    placeholders: int
    braces: int
    sentences: int
    changes: list[tuple[int, str, str | None, str]]


def strip_ends(lines: list[str]) -> None:
    """Strip white space at both ends of a text, and with it what a citation has left there."""
    for places, strip in ((range(len(lines)), str.lstrip), (range(len(lines) - 1, -1, -1), str.rstrip)):
        for at in places:
            lines[at] = strip(lines[at])
            if lines[at]:
                break


class PlainC4(NamedTuple):
    """The definitions of ``C4Quality``, one line after the other."""

    definitions: str = "paper"
    terminal: bool = True
    min_words: int | None = 3
    max_length: int | None = 1000
    javascript: bool = True
    policy: tuple[str, ...] = POLICY
    citations: bool = True

    def form(self, words: list[str], line: str) -> str | None:
        """Return the first rule by which a line goes for its end or its words."""
        if self.definitions == "paper":
            marked = line.endswith((".", "!", "?", '"', "”"))
        else:
            marked = line.endswith((".", "!", "?", '"', "'")) and not line.endswith("...")
        if self.terminal and not marked:
            return "terminal_punctuation"
        if self.min_words is not None and len(words) < self.min_words:
            return "min_words_per_line"
        if self.max_length is not None and any(len(word) > self.max_length for word in words):
            return "max_word_length"
        return None

    def __call__(self, text: str) -> Page:
        """Clean one document."""
        paper = self.definitions == "paper"
        kept, placeholders, braces, ends, changes, number = [], 0, 0, 0, [], 1
        for whole in re.findall(r"[^\n]*\n|[^\n]+\Z", text) if paper else text.splitlines(keepends=True):
            stripped = whole.strip()
            line = CITATION.sub("", stripped) if self.citations else stripped
            if paper:
                line = line.strip()
            rule = self.form((line if paper else stripped).split(), line)
            lower = in_lower_case(line)
            script = self.javascript and "javascript" in lower
            if paper or rule is None:
                placeholders += lower.count("lorem ipsum")
                braces += 0 if script and not paper else line.count("{")
            if rule is None and script:
                rule = "javascript"
            elif rule is None and any(phrase.lower() in lower for phrase in self.policy):
                rule = "policy_phrases"
            if rule is None:
                kept.append(line)
                ends += sentences(line)
            if stripped and (rule or line != stripped):
                changes.append((number, stripped, None if rule else len(kept) - 1, rule or "citations"))
            number += whole.endswith("\n")
        strip_ends(kept)
        shown = [(*head, None if at is None else kept[at], rule) for *head, at, rule in changes]
        return Page("\n".join(kept).strip(), placeholders, braces, ends, shown)


def documents(path: Path) -> list[str]:
    import zstandard

    with path.open("rb") as packed, io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed)) as lines:
        return [row["text"] for row in map(json.loads, lines) if row["lang"] == "en"]


def synthetic() -> list[str]:
    """Make documents of lines such as web pages have: about 8 MB."""
    chosen = random.Random(0)
    pool = ["".join(chosen.choices("etaoinshrdlucmfwypé", k=chosen.choice((2, 3, 4, 5, 6, 8)))) for _ in range(4000)]
    boilerplate = ["ABOUT US", "3 likes", "12 34", "Sign-in here", "Home 3 items in cart", "The news. Read more...", ""]
    boilerplate += ["Javascript is off in this browser.", "See our privacy policy.", "As said before [1], it is [2]."]

    def line() -> str:
        if chosen.random() < 0.1:
            return chosen.choice(boilerplate)
        words = chosen.choices(pool, k=chosen.choice((3, 8, 12, 60)))
        return " ".join(words).capitalize() + chosen.choice((".", ".", "!", "", ","))

    return ["\n".join(line() for _ in range(chosen.choice((5, 20, 60, 600)))) for _ in range(400)]


def compare_sentences(texts: list[str]) -> None:
    """Print how many verdicts differ when punkt counts the sentences."""
    from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

    import longcrawl as lc

    trainer = PunktTrainer()
    trainer.INCLUDE_ALL_COLLOCS = True
    for text in texts:
        trainer.train(text, finalize=False)
    trainer.finalize_training()
    punkt = PunktSentenceTokenizer(trainer.get_params())
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    for code, fewest in (("paper", 5), ("datatrove", 3)):
        words = 3 if code == "paper" else 5
        stage = lc.text.C4Quality(definitions=code, min_words_per_line=words, min_sentences=fewest)
        found, (placeholders, braces, sentences) = stage.edit(table)
        verdicts: Counter[tuple[bool, bool]] = Counter()
        reached = pa.compute.and_(placeholders.passes, braces.passes).to_pylist()
        for text, count, judged in zip(found["text"].to_pylist(), sentences.value.to_pylist(), reached, strict=True):
            if judged:
                theirs = sum(len(punkt.tokenize(line)) for line in text.split("\n"))
                verdicts[count >= fewest, theirs >= fewest] += 1
        print(
            f"sentences, {words} words and {fewest} sentences by {code}: {verdicts.total()} documents judged, "
            f"{verdicts[True, False]} stay that punkt drops, {verdicts[False, True]} leave that punkt keeps"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sentences", action="store_true")
    options = parser.parse_args()
    import longcrawl as lc

    texts = documents(options.text) if options.text else synthetic()
    size = sum(len(text.encode()) for text in texts) / 1e6
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    lists = yaml.safe_load(SHIPPED.read_text("utf-8"))["languages"]["en"]
    sides = [
        (
            lc.text.LineCorrections(language="en"),
            PlainCorrections(lists),
            lambda want: [want.flagged / max(want.words, 1)],
        ),
        (lc.text.C4Quality(), PlainC4(), lambda want: list(want[1:4])),
    ]
    for counted in ("flagged", "removed"):
        left = lc.text.LineCorrections(language="en", counted=counted)(table).num_rows
        print(f"max_removed_words, {counted} words counted: {len(texts) - left} of {len(texts)} documents leave")
    if options.sentences:
        compare_sentences(texts)
    totals = [0.0, 0.0]
    for stage, naive, measured in sides:
        expected = [naive(text) for text in texts]
        found, checks = stage.edit(table)
        assert found["text"].to_pylist() == [want.text for want in expected], "the texts differ"
        values = zip(*(check.value.to_pylist() for check in checks), strict=True)
        assert list(map(list, values)) == [measured(want) for want in expected], "the values differ"
        plain = seconds(lambda naive=naive: [naive(text) for text in texts], options.repeats)
        ours = seconds(lambda stage=stage: stage.edit(table), 5 * options.repeats)
        totals = [totals[0] + plain[0], totals[1] + ours[0]]
        print(
            f"{stage.name}: {len(texts)} documents, {size:.1f} MB: {size / ours[0]:.1f} MB/s against "
            f"{size / plain[0]:.2f}, ratio {plain[0] / ours[0]:.1f}, "
            f"spread {ours[-1] / ours[0]:.2f}x and {plain[-1] / plain[0]:.2f}x"
        )
    print(f"line_corrections ratio={totals[0] / totals[1]:.3f}")


if __name__ == "__main__":
    main()
