"""The scenario file that the tests of the command line sweep: small, and below turn level."""

SMALL = """
format = 1
name = "small"
[load]
groups = 2
siblings = 2
gym_instances = 1
[job]
target_level = "sibling"
train_steps = 1
[job.rollout_checkpointing]
interval_s = 0.2
"""
NO_JUDGE_EXPECTED = """
[expect]
judges = []
"""
