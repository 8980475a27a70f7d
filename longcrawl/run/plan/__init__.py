"""Estimates of a run's results and costs, from a sample of its input."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.run.plan.cluster import ClusterPlan, ClusterRow, plan_cluster
    from longcrawl.run.plan.estimates import Checked, Estimate, Plan, PlanRow
    from longcrawl.run.plan.run_plan import plan

__all__ = ["Checked", "ClusterPlan", "ClusterRow", "Estimate", "Plan", "PlanRow", "plan", "plan_cluster"]

lazy(__name__)
