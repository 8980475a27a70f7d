"""RedPajama-V2's quality signals."""
