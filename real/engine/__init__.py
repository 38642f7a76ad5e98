"""vLLM as the core's engine, and the model server in front of a generation worker."""
