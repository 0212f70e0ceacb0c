"""The API of `import issuer`: read a run, get a verify token for it, and verify a file.

    run = issuer.read("logs/run.json")
    token = issuer.Client("https://issuer.example").request(run, issuer.Supplied(command="inspect eval gsm8k.py"))
    issuer.put_entry(Path(".eval_results/gsm8k.yaml"), token.entry)
    reports = issuer.verify_file(".eval_results/gsm8k.yaml", repo="acme/open-model", trust="trust.yaml")

Errors are those of `issuer.errors`. Each function is a call or two of the rooms below. issuer/client/README.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from issuer.adapters import Built, Run, Supplied, read, read_all
from issuer.client import (
    BuildOptions,
    Credential,
    access_token,
    build_results,
    credential_here,
    explain_request,
    identity_token,
    put_entry,
    request_batch,
    request_of,
    request_token,
)
from issuer.client.batches import FOLDER as KEPT
from issuer.client.batches import IssuerAccess, ResumeState
from issuer.client.hub import Hub
from issuer.client.proposal import Destination, InFolder, OnHub
from issuer.client.submit import Outcome, plan_of, propose, sign
from issuer.errors import InputError, IssuerError, Refused, SetupError, Undecided, VerificationError
from issuer.formats import strict_yaml
from issuer.io import files
from issuer.io.http_client import PATIENCE_S, check_url
from issuer.relying.documents import Documents, default_folder
from issuer.relying.folders import OneBenchmark
from issuer.relying.logs.proof import AskedLogs
from issuer.relying.trusted import SeenLists, Trusted, default_state
from issuer.relying.verifier import FileVerifier, path_in_repo
from issuer.results.benchmark import Benchmark
from issuer.results.claims import is_repo
from issuer.results.entry import result_file_name
from issuer.token.wire import Denied, Explained, IssuedToken
from issuer.verify import Context, Report

__all__ = [
    "AsyncClient", "Built", "Client", "Credential", "Denied", "Explained", "InputError", "IssuedToken", "IssuerError",
    "Outcome", "Refused", "Report", "Run", "SetupError", "Supplied", "Undecided", "VerificationError", "access_token",
    "credential_here", "identity_token", "put_entry", "read", "read_all", "result_file_name", "trust_issuer",
    "verify_file",
]  # fmt: skip

# A credential, or a function that gets one when it is needed: an identity token is valid for minutes.
Identity: TypeAlias = Credential | Callable[[], Credential]
P = ParamSpec("P")
T = TypeVar("T")


# -- get tokens -------------------------------------------------------------------------------------------------------


class Client:
    """A client for one issuer. It sends no request and fetches no credential before a method is called.

    `identity` is a credential, or a function that gets one. Without it, each call looks for one in the environment or
    in the CI job (`credential_here`). If the issuer cannot decide, the client repeats the request for up to
    `patience_s`. Threads may share a client. Raises SetupError if the URL cannot be that of an issuer.
    """

    def __init__(self, url: str, identity: Identity | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self.url = check_url(url)
        self._identity = identity
        self._patience_s = patience_s

    def request(self, run: Run | Built, supplied: Supplied | None = None, *, nonce: str = "") -> IssuedToken:
        """Request a token for the claims of a run. `put_entry` writes the answer's `entry` into a result file.

        `supplied` has the values that the run lacks. Give a mock or partial run as `run.claims(supplied,
        allow_mock=True)`. With a reusable credential, give the same `nonce` in a repeated job to get the same token.

        Raises InputError (the run lacks a value, or may not be used), SetupError (no credential), Refused, Denied with
        its checks (a policy refused), Undecided (send it again) and VerificationError (the answer does not verify).
        """
        body = _with(request_of(_built(run, supplied)), nonce)
        return request_token(self.url, self._credential(), body, patience_s=self._patience_s)

    def request_batch(
        self, runs: Sequence[Run | Built], supplied: Supplied | None = None, *, nonce: str = ""
    ) -> tuple[IssuedToken, ...]:
        """Request tokens for 1 to 100 runs with one use of the identity: for all of them, or for none. `supplied` is
        for every run. The tokens are in the order of the runs."""
        body = _with({"results": [request_of(_built(run, supplied)) for run in runs]}, nonce)
        return request_batch(self.url, self._credential(), body, patience_s=self._patience_s)

    def explain(self, run: Run | Built, supplied: Supplied | None = None) -> Explained:
        """Ask for the decision about a request and its reasons, without a token and without using up the credential. A
        denial by a policy is returned, not raised. Other errors are those of `request`."""
        body = request_of(_built(run, supplied))
        return explain_request(self.url, self._credential(), body, patience_s=self._patience_s)

    def submit(
        self,
        runs: Run | Sequence[Run],
        supplied: Supplied | None = None,
        *,
        primary: str | None = None,
        out: Path | str | None = None,
        state: Path | str = KEPT,
    ) -> tuple[Outcome, ...]:
        """Request tokens for runs, and open a pull request with the entries in each model's repository, as `issuer
        submit` does.

        It uses $HF_TOKEN at $HF_ENDPOINT. `primary` names the metric that today's readers show, if a run has several
        and its benchmark's `eval.yaml` names none; otherwise they cannot read the entry. With `out` it writes the files
        below that folder, and opens no pull request. It keeps received tokens in `state`, and continues from there when
        it is called again. It returns an outcome for each repository with new or already proposed entries; entries that
        are on main have no outcome.

        It opens no pull request before all results have tokens. Raises as `request` does: Denied has the checks of the
        first refused result. Errors of the Hub are InputError, Refused, SetupError or Undecided.
        """
        listed = [runs] if isinstance(runs, Run) else runs
        results = build_results(listed, Path(), BuildOptions(supplied or Supplied()))
        place: Destination = OnHub(Hub.here()) if out is None else InFolder(Path(out))
        asking = IssuerAccess(self.url, self._credential, patience_s=self._patience_s)
        signed = sign(plan_of(results, place, None, primary), place, asking, ResumeState(Path(state)))
        for refusal in signed.refusals.values():
            raise Denied(refusal.code, checks=refusal.checks)
        existing = {repo: request for (repo, _), request in signed.open.items()}
        outcomes = tuple(propose(signed, place, asking))
        others = existing.keys() - {outcome.repo for outcome in outcomes}
        return (*outcomes, *(Outcome(repo, (), existing[repo], 0) for repo in sorted(others)))

    def _credential(self) -> Credential:
        if self._identity is None:
            return credential_here(self.url)
        return self._identity if isinstance(self._identity, Credential) else self._identity()


class AsyncClient:
    """A `Client` for an event loop, which makes each call in a thread (`asyncio.to_thread`). A cancelled call returns
    at once, but its request continues in the thread. With the same identity token or nonce, it gets the same token
    later."""

    def __init__(self, url: str, identity: Identity | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self._client = Client(url, identity, patience_s=patience_s)

    async def request(self, run: Run | Built, supplied: Supplied | None = None, *, nonce: str = "") -> IssuedToken:
        """Request a token for the claims of a run, as `Client.request` does."""
        return await _in_thread(self._client.request, run, supplied, nonce=nonce)

    async def request_batch(
        self, runs: Sequence[Run | Built], supplied: Supplied | None = None, *, nonce: str = ""
    ) -> tuple[IssuedToken, ...]:
        """Request tokens for the claims of 1 to 100 runs, as `Client.request_batch` does."""
        return await _in_thread(self._client.request_batch, runs, supplied, nonce=nonce)

    async def submit(
        self,
        runs: Run | Sequence[Run],
        supplied: Supplied | None = None,
        *,
        primary: str | None = None,
        out: Path | str | None = None,
        state: Path | str = KEPT,
    ) -> tuple[Outcome, ...]:
        """Request tokens for runs and propose the entries, as `Client.submit` does."""
        return await _in_thread(self._client.submit, runs, supplied, primary=primary, out=out, state=state)

    async def explain(self, run: Run | Built, supplied: Supplied | None = None) -> Explained:
        """Ask for the decision about a request, as `Client.explain` does."""
        return await _in_thread(self._client.explain, run, supplied)


async def _in_thread(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    import asyncio  # imported late: `Client` does not need it

    return await asyncio.to_thread(call, *arguments, **named)


def _built(run: Run | Built, supplied: Supplied | None) -> Built:
    if isinstance(run, Run):
        return run.claims(supplied or Supplied())
    if supplied is not None:
        raise ValueError("these claims are complete: give `supplied` to run.claims(supplied)")
    return run


def _with(body: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    return {**body, "nonce": nonce} if nonce else dict(body)


# -- verify a file ----------------------------------------------------------------------------------------------------


def verify_file(
    path: Path | str,
    *,
    repo: str,
    trust: Path | str | Trusted,
    received: int | Literal["now"] | None = None,
    in_repo: str = "",
    benchmark: Benchmark | None = None,
) -> tuple[Report, ...]:
    """Verify every entry of a result file in the model repository `repo` (OWNER/NAME), as `issuer verify` does.

    `trust` is a trust file, or the result of `trust_issuer`. `received` is the time when the file was received: "now",
    or Unix seconds that you vouch for. None means that you do not know it. `in_repo` is the file's path in the
    repository, if `path` is a copy elsewhere. `benchmark` is a definition that you vouch for. The verdict is
    `report.verdict`; members of the file cannot contain it.

    Key sets and revocations are fetched and kept as the command does, but no receipt is written
    (`issuer.relying.verifier`). Raises InputError if the file or the trust file cannot be read, SetupError for local
    state, and ValueError if `repo` is not OWNER/NAME. If a server does not answer, checks are `unknown`.
    """
    if not is_repo(repo):
        raise ValueError("repo must be OWNER/NAME")
    now, file = int(time.time()), Path(path)
    trusted = trust if isinstance(trust, Trusted) else Trusted.by_file(Path(trust), _documents(now), _seen())
    benchmarks = {} if benchmark is None else OneBenchmark(benchmark)
    context = Context(now, witnessed=received == "now", benchmarks=benchmarks, asked=AskedLogs(trusted.trust, now))
    at = now if received == "now" else received
    verifier = FileVerifier(trusted.trust, at, context, renew=trusted.renew, lines=True)
    place = in_repo or path_in_repo(os.path.abspath(file))
    return verifier.verify(files.read(file, strict_yaml.MAX_BYTES), str(file), repo, place)


def trust_issuer(url: str, audience: str) -> Trusted:
    """Return trust in one issuer, with its currently published keys. `audience` is your name, which tokens must have as
    `aud`. Raises SetupError if the URL cannot be that of an issuer."""
    return Trusted.in_issuer(url, audience, _documents(int(time.time())), _seen())


def _documents(now: int) -> Documents:
    return Documents(default_folder(), now)


def _seen() -> SeenLists | None:
    state = default_state()
    return None if state is None else SeenLists(state)
