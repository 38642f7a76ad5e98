"""Judges of recovery inside a model call: cuts, chunk rows, restored prefixes, routes and media."""
