"""Data planes of the real world: rows in SQLite, or in TransferQueue, behind the same messages as the simulator's."""
