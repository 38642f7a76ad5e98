"""Gym for real: an instance's HTTP servers, the way to them, and an environment whose tools are SQL."""
