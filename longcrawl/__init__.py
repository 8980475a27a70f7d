"""From a web crawl to long-context training data, with a reason for every removed document.

Importing longcrawl registers its builder, so that ``datasets.load_dataset("longcrawl", …)`` works. All else is imported
where it is first used, `datasets` too: ``longcrawl --help`` answers in 0.2 s, and would take 1.8.
"""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy
from longcrawl._version import __version__ as __version__
from longcrawl.builders import register_with_datasets

if TYPE_CHECKING:
    from longcrawl import dedup, engines, evaluate, formats, integrations, loading, long, report, samples, text, tokens
    from longcrawl.audit.compose import compose
    from longcrawl.audit.finished import analysis, clusters, contamination, funnel, inspect, removal_rates, why
    from longcrawl.audit.trace import Trace, trace
    from longcrawl.audit.verify import verify
    from longcrawl.builders.longcrawl import load
    from longcrawl.card.write import Card, card
    from longcrawl.crawl import Crawl
    from longcrawl.crawl import open_crawl as open  # noqa: A004  # lc.open reads as it should
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

lazy(__name__)
register_with_datasets()
