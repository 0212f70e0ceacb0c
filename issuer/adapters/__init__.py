"""From a framework's finished run to run claims: one reader a source, none of which imports its framework.

    run = adapters.read("logs/2026-11-21_gsm8k.eval")
    built = run.claims(Supplied(model_revision="<40 hex>", command="inspect eval ..."))
    built.claims, built.details, built.origins

`read` knows the formats and refuses runs that must not be used; `Run.claims` adds what the owner of the run supplies,
refuses what is not complete, and gives the origin of each claim. Both raise InputError with the place, and nothing
else. `read_all` is for files and folders of many runs. README.md lists what each format gives and lacks.
"""

from issuer.adapters.load import SOURCES, SourceName, read, read_all, read_each
from issuer.adapters.run import Built, Origin, Run, Said, Supplied
from issuer.adapters.score import Score
from issuer.adapters.verievals import Anchors

__all__ = [
    "SOURCES", "Anchors", "Built", "Origin", "Run", "Said", "Score", "SourceName", "Supplied", "read", "read_all",
    "read_each",
]  # fmt: skip
