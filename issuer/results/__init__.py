"""Evaluation results (contract sections 1 to 3): run claims, entries of result files, and canonical forms. Pure."""
