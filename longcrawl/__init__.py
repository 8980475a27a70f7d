"""Public API of longcrawl, which turns web crawls into long-context training data.

Importing longcrawl registers its builder, so that ``datasets.load_dataset("longcrawl", …)`` works. Everything else is
imported on first use, including `datasets`: ``longcrawl --help`` takes 0.2 s instead of 1.8 s.
"""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy
from longcrawl._version import __version__ as __version__
from longcrawl.builders import register_with_datasets

if TYPE_CHECKING:
    from longcrawl import dedup, formats, loading, long, text, tokens
    from longcrawl.builders.longcrawl import load
    from longcrawl.core.funnel import Funnel
    from longcrawl.core.ledger import Cluster, Clusters, Reason
    from longcrawl.crawl import Crawl
    from longcrawl.crawl import open_crawl as open  # noqa: A004  # public as lc.open
    from longcrawl.errors import LongCrawlError
    from longcrawl.formats.shards.convert import convert
    from longcrawl.loading import evaluate, integrations
    from longcrawl.publish import report
    from longcrawl.publish.compose import compose
    from longcrawl.publish.hub.fetch import Fetched, fetch
    from longcrawl.publish.hub.push import Push, push, write_tables
    from longcrawl.publish.questions import analysis, inspect, queue, why
    from longcrawl.publish.report.page import write_report
    from longcrawl.publish.report.removed_documents import removed_documents
    from longcrawl.publish.reread import clusters, contamination, page_blocks
    from longcrawl.publish.trace import Trace, trace
    from longcrawl.publish.verify import verify
    from longcrawl.run import engines, samples
    from longcrawl.run.card.write import Card, card
    from longcrawl.run.first_recipe import first_recipe
    from longcrawl.run.job import preview_run, run
    from longcrawl.run.manifest import RunSummary, funnel, removal_rates
    from longcrawl.run.plan import ClusterPlan, Plan, plan, plan_cluster
    from longcrawl.run.recipe import Recipe, load_recipe
    from longcrawl.run.shipped import recipes
    from longcrawl.run.takedown import Takedown, takedown
    from longcrawl.run.tokenize_files import tokenize

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
    "page_blocks",
    "plan",
    "plan_cluster",
    "preview_run",
    "push",
    "queue",
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
