"""From a framework's finished run to run claims: one reader a source, none of which imports its framework.

    run = inspect_ai.read(Path("log.json").read_bytes(), "log.json")
    built = run.claims(Supplied(model_revision="<40 hex>", command="inspect eval ..."))
    built.claims, built.details, built.origins

`read` knows the format and refuses runs that are not whole; `Run.claims` adds what the owner of the run supplies and
says of each claim where it came from. Both raise InputError with the place, and nothing else.
"""

from issuer.adapters.run import Built, Origin, Run, Said, Score, Supplied

__all__ = ["Built", "Origin", "Run", "Said", "Score", "Supplied"]
