"""What a run would give and take, from a sample of its input."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.plan.cluster import ClusterPlan, ClusterRow, plan_cluster
    from longcrawl.plan.estimates import Estimate
    from longcrawl.plan.result import Checked, Plan, PlanRow
    from longcrawl.plan.run_plan import plan

__all__ = ["Checked", "ClusterPlan", "ClusterRow", "Estimate", "Plan", "PlanRow", "plan", "plan_cluster"]

lazy(__name__)
