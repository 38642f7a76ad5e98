"""vLLM general plugins: what vLLM lacks on CPUs. Each is loaded in the front end and in the engine core, and does nothing elsewhere."""
