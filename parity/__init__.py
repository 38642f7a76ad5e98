"""Parity: what a restored run trained on, against a run that nothing interrupted.

Two stages. ``measure`` reads the rows of both runs batch by batch and leaves one small line a pair of rows; the gates are pure
functions over those lines and the other tables of the two runs, and can be asked again later. A named profile sets the
numbers. Nothing here has ever seen a running world.
"""
