"""A token issuer authority for AI evaluation results, and both ends of its wire.

    import issuer

    run = issuer.read("logs/run.json")
    token = issuer.Client("https://issuer.example").request(run)

`api.py` has what this module offers by name, loaded when it is first used: `import issuer` alone costs nothing.
`issuance` is the line of one request, `verify` what a relying party runs, `client` what a framework's CI runs.
CONTRACT.md says what must hold, DECISIONS.md why it is built so.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # `typing`, which has it, takes longer to load than all of this
if TYPE_CHECKING:
    from issuer.api import (
        AsyncClient,
        Built,
        Client,
        Credential,
        Denied,
        Explained,
        InputError,
        IssuedToken,
        IssuerError,
        Outcome,
        Refused,
        Report,
        Run,
        SetupError,
        Supplied,
        Undecided,
        VerificationError,
        access_token,
        credential_here,
        identity_token,
        put_entry,
        read,
        read_all,
        result_file_name,
        trust_issuer,
        verify_file,
    )

__all__ = [
    "AsyncClient", "Built", "Client", "Credential", "Denied", "Explained", "InputError", "IssuedToken", "IssuerError",
    "Outcome", "Refused", "Report", "Run", "SetupError", "Supplied", "Undecided", "VerificationError", "access_token",
    "credential_here", "identity_token", "put_entry", "read", "read_all", "result_file_name", "trust_issuer",
    "verify_file",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker would believe that every name is there

    def __getattr__(name):
        """Load a name of the API when it is first used (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import issuer.api as api

        globals()[name] = value = getattr(api, name)
        return value

    def __dir__():
        """Name what is there, loaded or not."""
        return sorted({*globals(), *__all__})
