"""Judges of durability: one guarantee a file."""
