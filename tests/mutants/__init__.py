"""Mutation tests: small faults are put into the code that must not have any, and some test must notice each.

`make mutants` runs them, `python -m tests.mutants PATH ...` those of some files. Not part of `make test`: it takes up to
an hour. A mutant that no test notices is killed by a new test, or named in `survivors.toml` with the reason why it may
live; a new one, and a name that is not needed any more, make the run fail.

We considered mutmut and cosmic-ray. mutmut 3 puts every mutant into one module, switches by an environment variable, and
traces in one process which test calls which function; our tests drive services in separate processes. cosmic-ray runs a
command for each mutant, as this does, and has neither statements that are left out or swapped nor text files.
"""
