"""From a web crawl to long-context training data, with a reason for every removed document.

Importing longcrawl registers its builder, so that ``datasets.load_dataset("longcrawl", …)`` works. All else is imported
where it is first used, `datasets` too: ``longcrawl --help`` answers in 0.2 s, and would take 1.8.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from longcrawl._adopt_builders import adopt_builders, register_with_datasets
from longcrawl._moved import find_moved_modules
from longcrawl._version import __version__ as __version__

if TYPE_CHECKING:
    from longcrawl import dedup, engines, evaluate, formats, loading, long, report, samples, text, tokens
    from longcrawl.audit.compose import compose
    from longcrawl.audit.finished import analysis, clusters, contamination, funnel, inspect, removal_rates, why
    from longcrawl.audit.trace import Trace, trace
    from longcrawl.audit.verify import verify
    from longcrawl.builders.longcrawl import load
    from longcrawl.builders.longcrawl import open_crawl as open  # noqa: A004  # lc.open reads as it should
    from longcrawl.card.write import Card, card
    from longcrawl.crawl import Crawl
    from longcrawl.errors import LongCrawlError
    from longcrawl.formats.shards.convert import convert
    from longcrawl.hub.fetch import Fetched, fetch
    from longcrawl.hub.prepare import write_tables
    from longcrawl.hub.push import Push, push
    from longcrawl.ledger.clusters import Cluster, Clusters
    from longcrawl.ledger.funnel import Funnel
    from longcrawl.ledger.reasons import Reason
    from longcrawl.plan import ClusterPlan, Plan, plan, plan_cluster
    from longcrawl.recipe import Recipe, load_recipe, recipes
    from longcrawl.report.page import write_report
    from longcrawl.report.removed_documents import removed_documents
    from longcrawl.run.first_recipe import first_recipe
    from longcrawl.run.job import run
    from longcrawl.run.preview import preview_run
    from longcrawl.run.summary import RunSummary
    from longcrawl.run.tokenize_files import tokenize
    from longcrawl.takedown.rewrite import Takedown, takedown

_PACKAGES = (
    "dedup",
    "engines",
    "evaluate",
    "formats",
    "integrations",
    "loading",
    "long",
    "report",
    "samples",
    "text",
    "tokens",
)
_NAMES = {
    "audit.compose": ("compose",),
    "audit.finished": ("analysis", "clusters", "contamination", "funnel", "inspect", "removal_rates", "why"),
    "audit.trace": ("Trace", "trace"),
    "audit.verify": ("verify",),
    "builders.longcrawl": ("load", "open_crawl"),
    "card.write": ("Card", "card"),
    "crawl": ("Crawl",),
    "errors": ("LongCrawlError",),
    "formats.shards.convert": ("convert",),
    "hub.fetch": ("Fetched", "fetch"),
    "hub.prepare": ("write_tables",),
    "hub.push": ("Push", "push"),
    "ledger.clusters": ("Cluster", "Clusters"),
    "ledger.funnel": ("Funnel",),
    "ledger.reasons": ("Reason",),
    "plan": ("ClusterPlan", "Plan", "plan", "plan_cluster"),
    "recipe": ("Recipe", "load_recipe", "recipes"),
    "report.page": ("write_report",),
    "report.removed_documents": ("removed_documents",),
    "run.first_recipe": ("first_recipe",),
    "run.job": ("run",),
    "run.preview": ("preview_run",),
    "run.summary": ("RunSummary",),
    "run.tokenize_files": ("tokenize",),
    "takedown.rewrite": ("Takedown", "takedown"),
}
"""Public names by the module that has them; ``open_crawl`` is ``lc.open``."""
_HOMES = {"open" if name == "open_crawl" else name: module for module, names in _NAMES.items() for name in names}


class _Package(ModuleType):
    """This package: what is public is imported when it is asked for.

    A function may have the name of the package that it is from, such as ``run``: the import of that package does not
    take its place.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), "open_crawl" if name == "open" else name)
        setattr(self, name, found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: `datasets` pickles a function of a script with the packages that it uses."""
        return import_module, (self.__name__,)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _Package
adopt_builders()
find_moved_modules()
register_with_datasets()

__all__ = [
    "Card",
    "Cluster",
    "ClusterPlan",
    "Clusters",
    "Crawl",
    "Fetched",
    "Funnel",
    "LongCrawlError",
    "Plan",
    "Push",
    "Reason",
    "Recipe",
    "RunSummary",
    "Takedown",
    "Trace",
    "analysis",
    "card",
    "clusters",
    "compose",
    "contamination",
    "convert",
    "dedup",
    "engines",
    "evaluate",
    "fetch",
    "first_recipe",
    "formats",
    "funnel",
    "inspect",
    "integrations",
    "load",
    "load_recipe",
    "loading",
    "long",
    "open",
    "plan",
    "plan_cluster",
    "preview_run",
    "push",
    "recipes",
    "removal_rates",
    "removed_documents",
    "report",
    "run",
    "samples",
    "takedown",
    "text",
    "tokenize",
    "tokens",
    "trace",
    "verify",
    "why",
    "write_report",
    "write_tables",
]
