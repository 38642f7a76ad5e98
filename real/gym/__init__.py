"""Gym instances over HTTP."""
