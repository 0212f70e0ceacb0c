"""Commands for relying parties: verify result files and folders, and rank results."""
