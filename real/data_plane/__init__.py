"""Data planes: TransferQueue, and an embedded one."""
