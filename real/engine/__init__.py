"""The engine of a generation worker, and the model server in front of the worker."""
