"""Decisions and values of the agent: pure, given the time and chance as arguments."""
