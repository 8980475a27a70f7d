"""How to cite a dataset, what it was made of and after, and longcrawl itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.results import RESULTS

__all__ = ["Cited", "bibtex_problem", "citations", "software"]

_ENTRY = re.compile(r"@\w+\s*\{\s*(?P<key>[^\s{},]+)\s*,")
_EXAMPLE = "@misc{smith2026, title = {Our Pages}, author = {Smith, Ann}, year = {2026}}"
_COMMON_CRAWL_FILE = re.compile(r"\bCC-(MAIN|NEWS)-")
"""How Common Crawl calls its files: web archives of others are read by the same source."""
_COMMON_CRAWL_TERMS = "common-crawl-terms-of-use"
"""The licence of recipes for its archives, whatever their files are called so far."""

_REDPAJAMA = """@misc{weber2024redpajama,
  title = {{RedPajama}: an Open Dataset for Training Large Language Models},
  author = {Weber, Maurice and Fu, Daniel and Anthony, Quentin and Oren, Yonatan and Adams, Shane and Alexandrov, Anton
    and Lyu, Xiaozhong and Nguyen, Huu and Yao, Xiaozhe and Adams, Virginia and Athiwaratkun, Ben and Chalamala, Rahul
    and Chen, Kezhen and Ryabinin, Max and Dao, Tri and Liang, Percy and R{\\'e}, Christopher and Rish, Irina
    and Zhang, Ce},
  year = {2024},
  eprint = {2411.12372},
  archivePrefix = {arXiv}
}"""
_COMMON_CRAWL = """@misc{commoncrawl,
  title = {Common Crawl},
  author = {{Common Crawl Foundation}},
  url = {https://commoncrawl.org}
}"""
_LONGCRAWL64 = """@misc{buckman2024longcrawl64,
  title = {{LongCrawl64}: A Long-Context Natural-Language Dataset},
  author = {Buckman, Jacob},
  year = {2024},
  month = may
}"""
_REFINEDWEB = """@misc{penedo2023refinedweb,
  title = {The {RefinedWeb} Dataset for {Falcon} {LLM}: Outperforming Curated Corpora with Web Data, and Web Data Only},
  author = {Penedo, Guilherme and Malartic, Quentin and Hesslow, Daniel and Cojocaru, Ruxandra and Cappelli, Alessandro
    and Alobeidli, Hamza and Pannier, Baptiste and Almazrouei, Ebtesam and Launay, Julien},
  year = {2023},
  eprint = {2306.01116},
  archivePrefix = {arXiv}
}"""
_GOPHER = """@misc{rae2021gopher,
  title = {Scaling Language Models: Methods, Analysis \\& Insights from Training {Gopher}},
  author = {Rae, Jack W. and Borgeaud, Sebastian and Cai, Trevor and Millican, Katie and Hoffmann, Jordan and others},
  year = {2021},
  eprint = {2112.11446},
  archivePrefix = {arXiv}
}"""
_C4 = """@article{raffel2020exploring,
  title = {Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer},
  author = {Raffel, Colin and Shazeer, Noam and Roberts, Adam and Lee, Katherine and Narang, Sharan and Matena, Michael
    and Zhou, Yanqi and Li, Wei and Liu, Peter J.},
  journal = {Journal of Machine Learning Research},
  volume = {21},
  number = {140},
  pages = {1--67},
  year = {2020}
}"""
_FINEWEB = """@misc{penedo2024fineweb,
  title = {The {FineWeb} Datasets: Decanting the Web for the Finest Text Data at Scale},
  author = {Penedo, Guilherme and Kydl{\\'i}{\\v{c}}ek, Hynek and Ben Allal, Loubna and Lozhkov, Anton
    and Mitchell, Margaret and Raffel, Colin and von Werra, Leandro and Wolf, Thomas},
  year = {2024},
  eprint = {2406.17557},
  archivePrefix = {arXiv}
}"""
_DEDUPLICATING = """@inproceedings{lee2022deduplicating,
  title = {Deduplicating Training Data Makes Language Models Better},
  author = {Lee, Katherine and Ippolito, Daphne and Nystrom, Andrew and Zhang, Chiyuan and Eck, Douglas
    and Callison-Burch, Chris and Carlini, Nicholas},
  booktitle = {Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics},
  pages = {8424--8445},
  year = {2022}
}"""

_OF_STAGES = {
    "signals": _REDPAJAMA,
    "signal_rules": _REDPAJAMA,
    "url_filter": _REFINEDWEB,
    "line_corrections": _REFINEDWEB,
    "gopher_repetition": _GOPHER,
    "gopher_quality": _GOPHER,
    "c4_quality": _C4,
    "fine_web_quality": _FINEWEB,
    "exact_substring": _DEDUPLICATING,
    "roll": _LONGCRAWL64,
}
"""Whose invention a stage is, where it is somebody's."""


@dataclass(frozen=True)
class Cited:
    """An entry of BibTeX."""

    bibtex: str
    used: tuple[str, ...]
    """Source, stages and output of a run for which it is cited."""

    @property
    def key(self) -> str:
        """The name by which texts cite it."""
        found = _ENTRY.match(self.bibtex)
        return found["key"] if found else ""


def citations(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> list[Cited]:
    """Return the works that a run builds on, each once: those of its source, its stages and its output.

    Args:
        recipe: of a run, as its manifest holds it.
        inputs: the files that it read, by part.

    >>> source, stages = {"builder": "redpajama-v2"}, [{"signal_rules": {}}, {"roll": {}}]
    >>> for each in citations({"source": source, "stages": stages, "outputs": {"rectangle": {}}}, {}):
    ...     print(each.key, each.used)
    weber2024redpajama ('redpajama-v2', 'signal_rules')
    buckman2024longcrawl64 ('roll',)
    """
    used: dict[str, list[str]] = {}
    for name, entry in _works(recipe, inputs):
        names = used.setdefault(entry, [])
        names += [] if name in names else [name]
    return [Cited(entry, tuple(names)) for entry, names in used.items()]


def _works(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    source = recipe["source"]["builder"]
    if source == "redpajama-v2":
        yield source, _REDPAJAMA
    named = any(_COMMON_CRAWL_FILE.search(file) for files in inputs.values() for file in files)
    if source == "warc" and (named or recipe.get("card", {}).get("license_name") == _COMMON_CRAWL_TERMS):
        yield source, _COMMON_CRAWL
    stages = [name for stage in recipe["stages"] for name in stage]
    yield from ((name, _OF_STAGES[name]) for name in stages if name in _OF_STAGES)
    outputs = [OUTPUTS.find(name).name for name in recipe["outputs"]]
    yield from ((name, RESULTS[name].citation) for name in outputs if RESULTS[name].citation)


def software(version: str) -> Cited:
    """Return the entry of longcrawl itself."""
    title = "longcrawl: from a web crawl to long-context training data"
    return Cited(f"@software{{longcrawl,\n  title = {{{title}}},\n  version = {{{version}}}\n}}", ("longcrawl",))


def bibtex_problem(text: str) -> str | None:
    """Describe what keeps a text from being entries of BibTeX; None where nothing does.

    >>> bibtex_problem("Smith, 2026")
    'is no BibTeX: write entries such as @misc{smith2026, title = {Our Pages}, author = {Smith, Ann}, year = {2026}}'
    """
    rest = text.strip()
    while rest:
        entry = _ENTRY.match(rest)
        if entry is None:
            return f"is no BibTeX: write entries such as {_EXAMPLE}"
        end = _end_of(rest)
        if end is None:
            return f"has an entry {entry['key']!r} whose braces do not close: write as many }} as {{"
        rest = rest[end:].strip()
    return None if text.strip() else f"is empty: leave it out, or write entries such as {_EXAMPLE}"


def _end_of(text: str) -> int | None:
    """Return where the braces that open first are closed; an escaped brace is none."""
    depth = 0
    for brace in re.finditer(r"(?<!\\)[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return None
