"""Fit the shipped thresholds by language, and compare what they keep with English ones.

    python benchmarks/languages.py --release RELEASE --documents short.jsonl.zst

Documents of RedPajama-V2's five languages from a release and from JSON lines with the fields text and lang; each text
counts once in its language. First the fit on documents of at least 50 words, then how many of all documents
``GopherQuality`` drops by its English fields and by ``languages="gopher"``, and by which rules. The last line is how
many times as many documents of the other four languages the English fields drop.
"""

import argparse
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

import longcrawl as lc

LANGUAGES = ["de", "en", "es", "fr", "it"]
FITTED = ["min_mean_word_length", "max_mean_word_length", "min_alphabetic_words"]
SHARES = ["max_mean_word_length", "min_alphabetic_words", "min_stop_words"]


def read(release: str, documents: str) -> pa.Table:
    crawls = [
        lc.open("redpajama-v2", data_dir=release, languages=LANGUAGES, partitions=["head", "middle", "tail"]),
        lc.open("text", data_files=documents, language_field="lang"),
    ]
    columns = ["id", "text", "language"]
    tables = [crawl.data.select_columns(columns).with_format("arrow")[:] for crawl in crawls]
    table = pa.concat_tables([each.cast(pa.schema([(name, pa.large_string()) for name in columns])) for each in tables])
    seen, once = set(), []
    for pair in zip(table["language"].to_pylist(), table["text"].to_pylist(), strict=True):
        once.append(pair[0] in LANGUAGES and pair not in seen)
        seen.add(pair)
    return table.filter(pa.array(once))


def of(table: pa.Table, language: str) -> pa.Table:
    return table.filter(pc.equal(table["language"], language))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release")
    parser.add_argument("--documents")
    arguments = parser.parse_args()
    if not (arguments.release and arguments.documents):
        print("nothing is measured without --release and --documents")
        return
    table = read(arguments.release, arguments.documents)
    stage = lc.text.GopherQuality()
    long = table.filter(pa.array([len(text.split()) >= 50 for text in table["text"].to_pylist()]))
    print(lc.text.fit_thresholds(long, stage, 0.98, rules=FITTED, stop_words=24, min_documents=50))
    english = of(long, "en")
    kept = {check.rule: pc.mean(check.passes).as_py() for check in stage.checks(english) if check.rule in SHARES}
    print("Gopher's own bounds keep of the English ones:", {rule: round(share, 3) for rule, share in kept.items()})
    dropped: Counter[str] = Counter()
    for language in LANGUAGES:
        documents = of(table, language)
        for name, judge in (("English", stage), ("table", lc.text.GopherQuality(languages="gopher"))):
            rules = judge.judge(documents)["rule"].drop_null()
            by_rule = {each["values"]: each["counts"] for each in pc.value_counts(rules).to_pylist()}
            print(f"{language} {name:8} drops {len(rules):5,} of {len(documents):5,}: {by_rule}")
            dropped[name] += len(rules) * (language != "en")
    print(f"languages ratio={dropped['English'] / max(dropped['table'], 1):.1f}")


if __name__ == "__main__":
    main()
