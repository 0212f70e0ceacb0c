"""`issuer demo`: a real run of Inspect AI is signed, written, verified and attacked, with a title for each step."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from issuer.adapters import Built, Supplied, inspect_ai
from issuer.cli.terminal import paint, say
from issuer.cli.verify.report import show
from issuer.client.credential import Credential
from issuer.client.files import put_entry
from issuer.client.tokens import explain_request, read_answer, request_of, request_token, request_tokens
from issuer.codes import Code
from issuer.dev.provider import REQUEST_URL
from issuer.dev.sandbox import AUDIENCE, LOG_POLICY, SAMPLE_RUN, Sandbox, environment, sandbox
from issuer.errors import IssuerError, Refused, SetupError, Undecided
from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.formats.times import show_when
from issuer.io.files import replace as replace_file
from issuer.io.http_client import HttpRequest, send
from issuer.relying.verifier import FOLDER
from issuer.results.entry import read_entries, result_file_name
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import TokenLeaf
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.tlog.witness_policy import parse_policy
from issuer.token.verify_token import read_unverified, token_leaf
from issuer.token.wire import JWKS_PATH, IssuedToken
from issuer.verify import Context, verify_entries
from issuer.verify.check_log import AtHand
from issuer.verify.report import Report
from issuer.verify.trust import Trust, TrustedIssuer, TrustedLog

REPO = "acme/open-model"
SUPPLIED = Supplied(
    model_repo=REPO,
    model_revision="9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
    command="inspect eval gsm8k_mini.py --model mockllm/model",
    metrics={"accuracy": "match/accuracy"},
)
START_S = 20


def _new(_: click.Context, __: click.Parameter, folder: Path | None) -> Path | None:
    """Refuse a folder that has results. An older entry in it could fail the demo's checks."""
    if folder is not None and (folder / FOLDER).exists():
        raise click.BadParameter(f"{folder / FOLDER} exists already: remove it, or give another folder")
    return folder


@click.command()
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    callback=_new,
    help="Keep the model repository and a trust file in this folder.",
)
def demo(keep: Path | None) -> None:
    """Get a real run signed, verify the result, and show that a tampered copy fails."""
    with sandbox() as box:
        built = _step_run()
        with _step_service(box):
            identity = Credential(_step_identity(box), reusable=False)
            body = request_of(built)
            issued = _step_issue(box, identity, body)
            path = (keep or box.folder / "open-model") / result_file_name(built.claims.benchmark_repo)
            _step_write(path, issued)
            trust = _step_verify(box, path, issued)
            _step_tamper(path, trust, issued)
            _step_log(issued)
            _step_repeat(box, identity, body, issued)
            _step_reuse(box, identity, built)
            _step_explain(box, body)
            kept = [] if keep is None else _keep(keep, box, path)
    say(paint("\nDone: one run, one identity, one token. A changed digit and a second use were refused.", bold=True))
    for line in kept:
        say(line)


def _keep(folder: Path, box: Sandbox, path: Path) -> list[str]:
    """Write a trust file beside the repository. It contains the keys, because the issuer is about to stop."""
    keys = send(HttpRequest("GET", f"{box.settings.url}{JWKS_PATH}")).body.decode()
    trust = folder / "trust.yaml"
    text = f"""version: 1
audience: "{AUDIENCE}"
issuers:
  - issuer: "{box.settings.url}"
    keys: {{inline: {keys}}}
"""
    replace_file(trust, text.encode(), mode=None, durable=False)
    return [
        f"\nKept: {path} and {trust}, with the keys of the stopped issuer. Within the hour, run:",
        f"   issuer verify {path} --repo {REPO} --trust {trust}",
    ]


def _title(number: int, text: str) -> None:
    say(paint(f"\n{number}. {text}", bold=True))


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise IssuerError(Code.INTERNAL, f"the demo expected {what}")


def _step_run() -> Built:
    _title(1, "A finished run: values from its log, and values from its owner")
    built = inspect_ai.read(SAMPLE_RUN.read_bytes(), SAMPLE_RUN.name).claims(SUPPLIED, allow_mock=True)
    framework = msgspec.structs.asdict(built.claims.framework)
    values = {**built.claims.to_json(), **{f"framework.{name}": value for name, value in framework.items()}}
    for member, origin in built.origins.items():
        value = values.get(member)
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        say(f"   {origin:<9}{member:<20}{shown}")
    say(f"   claims digest   {built.claims.digest}")
    return built


@contextlib.contextmanager
def _step_service(box: Sandbox) -> Iterator[None]:
    _title(2, "A service, its store, and an identity provider that imitates GitHub Actions")
    env = {**os.environ, **environment(box.settings)}
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen([sys.executable, "-m", "issuer", "serve"], env=env, stdout=log, stderr=log)
        try:
            _wait_until_ready(box.settings.url, child, log)
            say(f"   issuer    {box.settings.url}  (Litestar; embedded Valkey; a transparency log)")
            say(f"   provider  {box.provider.issuer}  (discovery and key set over HTTP)")
            yield
        finally:
            child.terminate()
            child.wait(30)


def _wait_until_ready(url: str, child: subprocess.Popen[bytes], log: BinaryIO) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(Undecided):
            if send(HttpRequest("GET", f"{url}/health/ready")).status == 200:
                return
        time.sleep(0.05)
    log.seek(0)
    messages = log.read().decode("utf-8", "replace")[-2000:]
    raise SetupError(Code.SETTINGS_INVALID, f"the service did not start:\n{messages}")


def _step_identity(box: Sandbox) -> str:
    _title(3, "The CI job gets its identity token, which only this issuer accepts")
    url = f"{box.provider.environment[REQUEST_URL]}&audience={box.settings.url}"
    answer = send(HttpRequest("GET", url, {"Authorization": f"bearer {box.provider.request_token}"}))
    token: str = msgspec.json.decode(answer.body)["value"]
    claims = msgspec.json.decode(jose.parse_compact(token).unverified_payload)
    for name in ("iss", "aud", "repository_id", "repository_owner_id", "workflow_ref", "event_name", "jti"):
        say(f"   {name:<20} {claims[name]}")
    return token


def _step_issue(box: Sandbox, identity: Credential, body: dict[str, JSON]) -> IssuedToken:
    _title(4, "POST /tokens: identity and claims in, a signed token out")
    answer = request_tokens(box.settings.url, identity, body)
    _expect(answer.status == 201, "201")
    issued = read_answer(answer, IssuedToken)
    say(f"   201: integration {issued.integration}, identity {issued.identity}, jti {issued.jti}")
    payload = msgspec.json.decode(jose.parse_compact(issued.verify_token).unverified_payload)
    for name in ("iss", "sub", "aud", "exp", "claims_digest", "content_digest", "policy"):
        when = f", {show_when(payload[name], int(time.time()))}" if name == "exp" else ""
        say(f"   {name:<20} {payload[name]}{when}")
    return issued


def _step_write(path: Path, issued: IssuedToken) -> None:
    _title(5, f"The entry goes into the model repository: {'/'.join(path.parts[-2:])}")
    put_entry(path, issued.entry)
    for line in path.read_text("utf-8").splitlines():
        say(f"   {line if len(line) < 110 else line[:107] + '...'}")


def _step_verify(box: Sandbox, path: Path, issued: IssuedToken) -> Trust:
    _title(6, "A relying party verifies the file by the published keys and the log proof")
    keys = jose.parse_key_set(send(HttpRequest("GET", f"{box.settings.url}{JWKS_PATH}")).body)
    log = TrustedLog(parse_policy((box.folder / LOG_POLICY).read_bytes(), LOG_POLICY), LOG_POLICY)
    issuer = TrustedIssuer(box.settings.url, keys, log=log)
    trust = Trust(AUDIENCE, {box.settings.url: issuer}, require=frozenset({"log"}))
    _expect(_judge(path, path.read_bytes(), trust, issued).verdict == "verified", "the file to be verified")
    return trust


def _judge(path: Path, raw: bytes, trust: Trust, issued: IssuedToken) -> Report:
    now = int(time.time())
    entries = read_entries(raw, path.name)
    context = Context(now, witnessed=True, proofs={_leaf_of(issued): AtHand(_proof_of(issued))})
    reports = verify_entries(entries, REPO, f"{FOLDER}/{path.name}", trust, now, context)
    show(reports, path.name, now)
    return reports[0]


def _leaf_of(issued: IssuedToken) -> TokenLeaf:
    jws = jose.parse_compact(issued.verify_token)
    claims, _ = read_unverified(jws.unverified_payload)
    return token_leaf(claims, issued.kid, jws.signing_input)


def _proof_of(issued: IssuedToken) -> bytes:
    _expect(issued.log, "a place in the log")
    return str(issued.log and issued.log.proof).encode()


def _step_tamper(path: Path, trust: Trust, issued: IssuedToken) -> None:
    _title(7, "The same file with one digit changed: 0.625 becomes 0.925")
    tampered = path.read_bytes().replace(b"value: 0.625", b"value: 0.925")
    _expect(_judge(path, tampered, trust, issued).verdict == "failed", "the tampered file to fail")


def _step_log(issued: IssuedToken) -> None:
    _title(8, "The log contained this leaf before the issuer signed the token")
    leaf, proof = _leaf_of(issued).to_bytes(), parse_proof(_proof_of(issued))
    for line in leaf.decode("ascii").splitlines():
        say(f"   {line}")
    checkpoint = parse_checkpoint(parse_note(proof.checkpoint).text)

    def leads_to_root(leaf: bytes) -> bool:
        return verify_inclusion(proof.index, checkpoint.size, leaf_hash(leaf), proof.hashes, checkpoint.root)

    _expect(leads_to_root(leaf), "the proof to lead from the leaf to the root")
    say(f"   leaf {proof.index} of {checkpoint.size}: its hashes lead to the root that the log has signed")
    flipped = leaf.replace(b"\nexp 1", b"\nexp 2")
    _expect(flipped != leaf and not leads_to_root(flipped), "that the log lacks the changed leaf")
    say("   the same leaf with one digit changed: its hashes lead to another root")


def _step_repeat(box: Sandbox, identity: Credential, body: dict[str, JSON], issued: IssuedToken) -> None:
    _title(9, "The same request again, as after a lost answer, gets the same token")
    answer = request_tokens(box.settings.url, identity, body)
    same = read_answer(answer, IssuedToken).verify_token == issued.verify_token
    _expect(answer.status == 200 and same, "the same token")
    say(f"   200, Idempotent-Replay: {answer.headers['idempotent-replay']}, byte for byte the same token")


def _step_reuse(box: Sandbox, identity: Credential, built: Built) -> None:
    _title(10, "The same identity token with another body is refused: it allows one request")
    other = msgspec.structs.replace(built, details={**built.details, "notes": "a second result"})
    try:
        request_token(box.settings.url, identity, request_of(other))
    except Refused as refusal:
        _expect(refusal.code is Code.IDENTITY_REPLAYED, "identity.replayed")
        say(f"   409 {refusal.code}: {refusal.detail}")
    else:
        _expect(False, "a refusal")


def _step_explain(box: Sandbox, body: dict[str, JSON]) -> None:
    _title(11, "POST /tokens/explain says why the issuer would refuse the same run from a feature branch")
    branch = "refs/heads/feature"
    workflow = f"example-org/inspect-evals/.github/workflows/evaluate.yml@{branch}"
    identity = Credential(box.provider.token(box.settings.url, ref=branch, workflow_ref=workflow), reusable=False)
    explained = explain_request(box.settings.url, identity, body)
    _expect(explained.verdict == "refused", "a refusal")
    failed = [check for check in explained.checks if not check.passed]
    say(f"   {explained.verdict}, {explained.code}: {len(failed)} of {len(explained.checks)} checks failed")
    for check in failed:
        say(f"   FAIL      {check.actual}\n   expected  {check.expected}\n   rule      {check.rule}")
    say(f"   next      {failed[0].hint}")
