"""A token issuer for AI evaluation results, with its clients and verifiers.

    import issuer

    run = issuer.read("logs/run.json")
    token = issuer.Client("https://issuer.example").request(run)

Python loads the names of this module from `api.py` when they are first used, so `import issuer` alone takes no time.
`issuance` decides one request, `verify` is for relying parties, and `client` is for a framework's CI. CONTRACT.md has
the rules, and DECISIONS.md the reasons for the design.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing it from `typing` would take longer than the rest of this module
if TYPE_CHECKING:
    from issuer.api import *  # noqa: F403  (mypy finds a name of `__all__` that is missing there)

# ruff: noqa: F405
__all__ = [
    "AsyncClient", "Built", "Client", "Credential", "Denied", "Explained", "InputError", "IssuedToken", "IssuerError",
    "Outcome", "Refused", "Report", "Run", "SetupError", "Supplied", "Undecided", "VerificationError", "access_token",
    "credential_here", "identity_token", "put_entry", "read", "read_all", "result_file_name", "trust_issuer",
    "verify_file",
]  # fmt: skip


if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name

    def __getattr__(name):
        """Load a name of the API when it is first used (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import issuer.api as api

        globals()[name] = value = getattr(api, name)
        return value

    def __dir__():
        """Return all names, also those that are not loaded yet."""
        return sorted({*globals(), *__all__})
