"""One life of a job on Ray: every process of the core an actor of its own, in a cluster that only this job has."""
