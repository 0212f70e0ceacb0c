"""Readers that turn a framework's finished run into run claims: one module for each source.

    run = adapters.read("logs/2026-11-21_gsm8k.eval")
    built = run.claims(Supplied(model_revision="<40 hex>", command="inspect eval ..."))
    built.claims, built.details, built.origins

`read` recognises the format and refuses runs that must not be used. `Run.claims` adds the values that the run's owner
supplies, refuses incomplete claims, and returns the origin of each claim. Both raise only InputError, with the place.
`read_all` reads files and folders with many runs.  No reader imports its framework. README.md describes the formats.
"""

from issuer.adapters.load import SOURCES, SourceName, read, read_all, read_each
from issuer.adapters.run import Built, Origin, Run, RunText, Supplied
from issuer.adapters.score import Score
from issuer.adapters.verievals import Anchors

__all__ = [
    "SOURCES", "Anchors", "Built", "Origin", "Run", "RunText", "Score", "SourceName", "Supplied", "read", "read_all",
    "read_each",
]  # fmt: skip
