"""Decisions: pure functions on values.

No clock, no chance, no I/O: what they need of these is an argument. Everything that the hub decides
is decided here; ``hub.service`` loads what a decision needs and applies what it says.
"""
