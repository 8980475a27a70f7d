"""How to cite what a shipped recipe makes again, and longcrawl itself."""

__all__ = ["citations"]

_LONGCRAWL64 = """@misc{buckman2024longcrawl64,
  title = {LongCrawl64: A Long-Context Natural-Language Dataset},
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
_BUCKETS = """@misc{liu2024bucket,
  title = {Bucket Pre-training is All You Need},
  author = {Liu, Hongtao and Peng, Qiyao and Yang, Qing and Liu, Kai and Xu, Hongyan},
  year = {2024}
}"""
_OF_RECIPES = {
    "longcrawl64": _LONGCRAWL64,
    "longcrawl64-clean": _LONGCRAWL64,
    "refinedweb": _REFINEDWEB,
    "refinedweb-multilingual": _REFINEDWEB,
    "bucket-pretraining": _BUCKETS,
}


def citations(recipe: str, version: str) -> list[str]:
    """Give BibTeX of the work that the shipped recipe of this name follows, if any, and of longcrawl.

    >>> len(citations("refinedweb", "1.0")), len(citations("mine", "1.0"))
    (2, 1)
    """
    software = (
        "@software{longcrawl,\n  title = {longcrawl: from a web crawl to long-context training data},\n"
        f"  version = {{{version}}}\n}}"
    )
    return [*([_OF_RECIPES[recipe]] if recipe in _OF_RECIPES else []), software]
