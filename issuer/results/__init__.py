"""What an evaluation result is: run claims, entries of result files, and their canonical forms. Pure.

Implements contract sections 1 to 3: reads, checks, digests, writes and edits. Does not know who may publish a result
(`policy`) or whether a token belongs to it (`verify`).
"""
