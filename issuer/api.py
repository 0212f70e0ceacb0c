"""What `import issuer` offers: read a run, have it signed, verify a file; a call or two of the rooms below each.

    run = issuer.read("logs/run.json")
    token = issuer.Client("https://issuer.example").request(run, issuer.Supplied(command="inspect eval gsm8k.py"))
    issuer.put_entry(Path(".eval_results/gsm8k.yaml"), token.entry)
    reports = issuer.verify_file(".eval_results/gsm8k.yaml", repo="acme/open-model", trust="trust.yaml")

Every error is one of `issuer.errors`, and its text is the refusal. Decides nothing itself. issuer/client/README.md.
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
from issuer.relying.verifier import Verifier, path_in_repo
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

# A credential, or how to get one: an identity token lives for minutes, so it is fetched when it is used.
Identity: TypeAlias = Credential | Callable[[], Credential]
P = ParamSpec("P")
T = TypeVar("T")


# -- have a run signed ------------------------------------------------------------------------------------------------


class Client:
    """An issuer, as one caller asks it. Nothing is asked, and no identity fetched, before a method is called.
    `identity` is a credential, or a function that gets one; without it each call finds its own (`credential_here`: the
    environment, or the CI that this runs in). A request is repeated within `patience_s` where nobody decided. Safe to
    share between threads. Raises SetupError for a URL that is not an issuer's."""

    def __init__(self, url: str, identity: Identity | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self.url = check_url(url)
        self._identity = identity
        self._patience_s = patience_s

    def request(self, run: Run | Built, supplied: Supplied | None = None, *, nonce: str = "") -> IssuedToken:
        """Have the claims of a run signed. `entry` of the answer is what goes into a result file (`put_entry`).

        `supplied` is what the run does not say. A mock or partial run is taken as `run.claims(supplied,
        allow_mock=True)` alone. A `nonce`, for reusable credentials, has a repeated job get the same token.

        Raises InputError (the run lacks something, or may not be used), SetupError (no credential), Refused, or Denied
        with its checks where a policy refused, Undecided (ask the same again) and VerificationError (the answer is not
        what was asked for, and nothing of it counts).
        """
        body = _with(request_of(_built(run, supplied)), nonce)
        return request_token(self.url, self._credential(), body, patience_s=self._patience_s)

    def request_batch(
        self, runs: Sequence[Run | Built], supplied: Supplied | None = None, *, nonce: str = ""
    ) -> tuple[IssuedToken, ...]:
        """Do the same for 1 to 100 runs with one use of the identity: all of them are signed, or none. `supplied` is
        for every run of them. The tokens are in the order of the runs."""
        body = _with({"results": [request_of(_built(run, supplied)) for run in runs]}, nonce)
        return request_batch(self.url, self._credential(), body, patience_s=self._patience_s)

    def explain(self, run: Run | Built, supplied: Supplied | None = None) -> Explained:
        """Ask what `request` would be answered, and why; nothing is signed or used up. A policy's no is an answer here,
        and not raised; other errors are those of `request`."""
        body = request_of(_built(run, supplied))
        return explain_request(self.url, self._credential(), body, patience_s=self._patience_s)

    def submit(
        self,
        runs: Run | Sequence[Run],
        supplied: Supplied | None = None,
        *,
        out: Path | str | None = None,
        state: Path | str = KEPT,
    ) -> tuple[Outcome, ...]:
        """Have runs signed, and open a pull request with the entries in each model's repository, as `issuer submit`.

        $HF_TOKEN opens it, at $HF_ENDPOINT; with `out` the files go below that folder instead, and no pull request is
        opened. Tokens that were received are kept in `state`: called again, it goes on where it ended. Returns what
        became of each repository for which something was ready or is proposed already; main has the rest.

        All or nothing until the first pull request: raises as `request` does, Denied with the checks of the first
        result that is refused, and what the Hub does not take as InputError, Refused, SetupError or Undecided.
        """
        listed = [runs] if isinstance(runs, Run) else runs
        results = build_results(listed, Path(), BuildOptions(supplied or Supplied()))
        place: Destination = OnHub(Hub.here()) if out is None else InFolder(Path(out))
        asking = IssuerAccess(self.url, self._credential, patience_s=self._patience_s)
        signed = sign(plan_of(results, place), place, asking, ResumeState(Path(state)))
        for refusal in signed.refusals.values():
            raise Denied(refusal.code, checks=refusal.checks)
        found = {repo: request for (repo, _), request in signed.open.items()}
        made = tuple(propose(signed, place, asking))
        left = found.keys() - {outcome.repo for outcome in made}
        return (*made, *(Outcome(repo, (), found[repo], 0) for repo in sorted(left)))

    def _credential(self) -> Credential:
        if self._identity is None:
            return credential_here(self.url)
        return self._identity if isinstance(self._identity, Credential) else self._identity()


class AsyncClient:
    """The same for an event loop: each call is one of `Client` in a thread (`asyncio.to_thread`). A call that is
    cancelled returns at once, and its request goes on in its thread: asked again, the same request gets the same token
    where the credential is an identity token that was kept, or the nonce is given."""

    def __init__(self, url: str, identity: Identity | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self._client = Client(url, identity, patience_s=patience_s)

    async def request(self, run: Run | Built, supplied: Supplied | None = None, *, nonce: str = "") -> IssuedToken:
        """Have the claims of a run signed, as `Client.request` does."""
        return await _in_thread(self._client.request, run, supplied, nonce=nonce)

    async def request_batch(
        self, runs: Sequence[Run | Built], supplied: Supplied | None = None, *, nonce: str = ""
    ) -> tuple[IssuedToken, ...]:
        """Have the claims of 1 to 100 runs signed, as `Client.request_batch` does."""
        return await _in_thread(self._client.request_batch, runs, supplied, nonce=nonce)

    async def submit(
        self,
        runs: Run | Sequence[Run],
        supplied: Supplied | None = None,
        *,
        out: Path | str | None = None,
        state: Path | str = KEPT,
    ) -> tuple[Outcome, ...]:
        """Have runs signed and propose them, as `Client.submit` does."""
        return await _in_thread(self._client.submit, runs, supplied, out=out, state=state)

    async def explain(self, run: Run | Built, supplied: Supplied | None = None) -> Explained:
        """Ask what would be answered, as `Client.explain` does."""
        return await _in_thread(self._client.explain, run, supplied)


async def _in_thread(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    import asyncio  # who has no event loop does not load one

    return await asyncio.to_thread(call, *arguments, **named)


def _built(run: Run | Built, supplied: Supplied | None) -> Built:
    if isinstance(run, Run):
        return run.claims(supplied or Supplied())
    if supplied is not None:
        raise ValueError("`supplied` goes into run.claims(supplied), and these claims are made already")
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
    """Judge every entry of a result file in the model repository `repo` (OWNER/NAME), as `issuer verify` does.

    `trust` is a trust file, or `trust_issuer(...)`. `received` is when the file came, for who received it: "now", or
    Unix seconds that you state; None is a reader's question, who cannot know. `in_repo` is the file's place in the
    repository where `path` is a copy elsewhere; `benchmark` the definition that you vouch for. A verdict is in
    `report.verdict`, and never in a member of the file.

    Key sets and revocations are fetched and kept as by the command; no receipt is written (`issuer.relying.verifier`).
    Raises InputError where the file or the trust file cannot be read as one, SetupError for local state, and ValueError
    where `repo` is not OWNER/NAME. What a server does not answer makes checks `unknown` and raises nothing.
    """
    if not is_repo(repo):
        raise ValueError("repo is OWNER/NAME")
    now, file = int(time.time()), Path(path)
    trusted = trust if isinstance(trust, Trusted) else Trusted.by_file(Path(trust), _documents(now), _seen())
    benchmarks = {} if benchmark is None else OneBenchmark(benchmark)
    context = Context(now, witnessed=received == "now", benchmarks=benchmarks, asked=AskedLogs(trusted.trust, now))
    at = now if received == "now" else received
    verifier = Verifier(trusted.trust, at, context, renew=trusted.renew, lines=True)
    place = in_repo or path_in_repo(os.path.abspath(file))
    return verifier.verify(files.read(file, strict_yaml.MAX_BYTES), str(file), repo, place)


def trust_issuer(url: str, audience: str) -> Trusted:
    """Trust one issuer, by what it publishes now; `audience` is who you are, as tokens must name you. Raises SetupError
    for a URL that is not an issuer's."""
    return Trusted.in_issuer(url, audience, _documents(int(time.time())), _seen())


def _documents(now: int) -> Documents:
    return Documents(default_folder(), now)


def _seen() -> SeenLists | None:
    state = default_state()
    return None if state is None else SeenLists(state)
