"""The process that appends to the log: its socket, its batches, and the records of the newest published checkpoint."""
