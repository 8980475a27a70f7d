"""Web archives."""
