"""Makes this folder importable: what several kinds of tests build their data with lies here."""
