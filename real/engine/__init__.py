"""The generation engine of the real world: vLLM, its environment, its tiny models, and what of it had to be verified."""
