"""Relying parties' side: trust files, what they name, verified files and folders of them (README.md)."""
