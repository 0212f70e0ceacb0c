"""The client of an issuer, for frameworks and their CI jobs: it gets verify tokens and writes result files (README.md).

    credential = credential_here("https://issuer.example")
    issued = request_token("https://issuer.example", credential, request_of(built))
    put_entry(Path(".eval_results/gsm8k.yaml"), issued.entry)

A credential comes from the environment, the CI, an OAuth server or the caller (`credential`). Claims come from a run
(`build`) or a file (`tokens`). An issuer's answer is used only after it is verified (`answer`).
"""

from issuer.client.build import BuildOptions, Result, Unbuilt, build_each, build_results, write_results
from issuer.client.credential import (
    Credential,
    OAuthClient,
    access_token,
    client_credentials,
    credential_here,
    fresh_nonce,
    identity_token,
    token_endpoint,
)
from issuer.client.files import LogProof, put_entry, put_proof, wait_for_proof
from issuer.client.tokens import explain_request, read_request, request_batch, request_of, request_token, with_nonce
from issuer.token.wire import Denied, Explained, IssuedToken

__all__ = [
    "BuildOptions", "Credential", "Denied", "Explained", "IssuedToken", "LogProof", "OAuthClient", "Result", "Unbuilt",
    "access_token", "build_each", "build_results", "client_credentials", "credential_here", "explain_request",
    "fresh_nonce", "identity_token", "put_entry", "put_proof", "read_request", "request_batch", "request_of",
    "request_token", "token_endpoint", "wait_for_proof", "with_nonce", "write_results",
]  # fmt: skip
