"""The one process that writes the log: its server, its batches, and the records of how far the log was published."""
