"""General plugins of vLLM: what it lacks on CPUs. Loaded in the front end and in the engine core; elsewhere they do nothing."""
