"""What a run would give and take, from a sample of its input."""

from longcrawl.plan.estimates import Estimate
from longcrawl.plan.result import Checked, Plan, PlanRow
from longcrawl.plan.run_plan import plan

__all__ = ["Checked", "Estimate", "Plan", "PlanRow", "plan"]
