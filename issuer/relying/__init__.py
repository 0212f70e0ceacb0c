"""A relying party's effects: trust files and their sources, and the verification of files and folders (README.md)."""
