"""Commands that make, check, compare and export result files."""
