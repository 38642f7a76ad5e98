"""Judges of liveness: one guarantee a file."""
