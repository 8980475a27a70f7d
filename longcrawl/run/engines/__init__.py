"""Engines that execute a run's tasks and exchange rows between them: one machine, a shared folder, Apache Spark."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.core.exchange import Engine, Exchange
    from longcrawl.run.engines.local import Local
    from longcrawl.run.engines.shared import Shared
    from longcrawl.run.engines.spark import Spark

__all__ = ["Engine", "Exchange", "Local", "Shared", "Spark"]

lazy(__name__)
