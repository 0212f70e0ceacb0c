"""Commands for relying parties: judge files and folders, rank them, compare runs."""
