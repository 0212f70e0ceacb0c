"""A token issuer authority for AI evaluation results, and both ends of its wire.

`issuance` is the line of one request, `verify` what a relying party runs, `client` what a framework's CI runs.
CONTRACT.md says what must hold, DECISIONS.md why it is built so.
"""

__version__ = "0.1.0"
