"""A token issuer authority for AI evaluation results, and both ends of its wire."""

__version__ = "0.1.0"
