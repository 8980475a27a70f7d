"""What a run would give and take, from a sample of its input."""

from longcrawl.planning.estimates import Estimate
from longcrawl.planning.plan import Plan, PlanRow, plan

__all__ = ["Estimate", "Plan", "PlanRow", "plan"]
