"""A torch trainer as the core's trainer."""
