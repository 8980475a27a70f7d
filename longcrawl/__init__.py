"""From a web crawl to long-context training data, with a reason for every removed document.

Importing longcrawl registers its builder, so that ``datasets.load_dataset("longcrawl", …)`` works. Nothing heavier than
`datasets` itself is imported here; numba, zarr, transformers and torch are imported where they are used.
"""

from longcrawl._adopt_builders import adopt_builders
from longcrawl._moved import find_moved_modules

adopt_builders()
find_moved_modules()

from longcrawl import dedup, engines, formats, loading, report, text, tokens  # noqa: E402  # the builders must be found first
from longcrawl._version import __version__ as __version__  # noqa: E402  # as above
from longcrawl.audit.compose import compose  # noqa: E402  # as above
from longcrawl.audit.finished import analysis, clusters, funnel, inspect, removal_rates, why  # noqa: E402  # as above
from longcrawl.audit.verify import verify  # noqa: E402  # as above
from longcrawl.builders.longcrawl import load  # noqa: E402  # as above
from longcrawl.builders.register import register  # noqa: E402  # as above
from longcrawl.card.write import Card, card  # noqa: E402  # as above
from longcrawl.crawl import Crawl  # noqa: E402  # as above
from longcrawl.crawl import open_crawl as open  # noqa: A004, E402  # lc.open reads as it should; as above
from longcrawl.errors import LongCrawlError  # noqa: E402  # as above
from longcrawl.formats.shards.convert import convert  # noqa: E402  # as above
from longcrawl.hub.push import Push, push  # noqa: E402  # as above
from longcrawl.ledger.clusters import Cluster, Clusters  # noqa: E402  # as above
from longcrawl.ledger.funnel import Funnel  # noqa: E402  # as above
from longcrawl.ledger.reasons import Reason  # noqa: E402  # as above
from longcrawl.plan import ClusterPlan, Plan, plan, plan_cluster  # noqa: E402  # as above
from longcrawl.recipe import Recipe, load_recipe, recipes  # noqa: E402  # as above
from longcrawl.report.page import write_report  # noqa: E402  # as above
from longcrawl.report.removed_documents import removed_documents  # noqa: E402  # as above
from longcrawl.run.job import run  # noqa: E402  # as above
from longcrawl.run.summary import RunSummary  # noqa: E402  # as above
from longcrawl.run.tokenize_files import tokenize  # noqa: E402  # as above

register()

__all__ = [
    "Card",
    "Cluster",
    "ClusterPlan",
    "Clusters",
    "Crawl",
    "Funnel",
    "LongCrawlError",
    "Plan",
    "Push",
    "Reason",
    "Recipe",
    "RunSummary",
    "analysis",
    "card",
    "clusters",
    "compose",
    "convert",
    "dedup",
    "engines",
    "formats",
    "funnel",
    "inspect",
    "load",
    "load_recipe",
    "loading",
    "open",
    "plan",
    "plan_cluster",
    "push",
    "recipes",
    "removal_rates",
    "removed_documents",
    "report",
    "run",
    "text",
    "tokenize",
    "tokens",
    "verify",
    "why",
    "write_report",
]
