"""Judges of the Gym control protocol and of what a Gym-bearing snapshot holds."""
