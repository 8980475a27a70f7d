"""Interfaces of stages, sources and outputs, and the ledgers and funnels that they share."""
