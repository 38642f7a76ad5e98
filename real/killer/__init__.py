"""What kills, stops and starts the processes of a real job, from outside of its session."""
