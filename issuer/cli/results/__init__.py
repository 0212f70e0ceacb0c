"""Commands that make, check and compare result files."""
