"""A released NeMo Gym (0.7) in the place of the core's own Gym instances: what its routes allow, and no more."""
