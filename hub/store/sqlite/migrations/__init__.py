"""Numbered migrations, applied in order and checked against the real schema at every start."""
