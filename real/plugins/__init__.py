"""General plugins of vLLM: loaded in the front end and in the engine core."""
