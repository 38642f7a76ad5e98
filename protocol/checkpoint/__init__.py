"""Checkpoints and snapshots: the cut, the Gym phase, publication, trainer checkpoints, restore."""
