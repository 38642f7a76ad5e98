"""Figures of a run, computed from its recorded history alone: the numbers of NeMo RL's telemetry, and lost work."""
