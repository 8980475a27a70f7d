"""Running recipes: jobs, their parts and segments, plans, engines, manifests and dataset cards."""
