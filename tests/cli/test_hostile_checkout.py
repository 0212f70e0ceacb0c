"""Every command in a hostile checkout: it ends, prints no control sequence, and shows and changes no file outside.

A new path of a command has to be added to LINES, or the first test fails.
"""

import json
import os
import pty
import re
import shlex
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from issuer.cli import cli
from issuer.dev.sandbox import SAMPLE_POLICIES, SAMPLE_RUN
from issuer.formats import jcs
from issuer.io import keyfile
from issuer.relying.logs.proof import sought_of
from tests.support import make
from tests.support.command import Forked, clean, issuer
from tests.support.hostile_issuer import HostileIssuer
from tests.support.in_process import Done, run
from tests.support.samples import BY_NAME
from tests.support.scripted import reply
from tests.support.settings import settings_text
from tests.support.tlog import ANNOUNCED, LOG_KEY, ORIGIN, Tree, policy_text
from tests.support.tree import write_trust

# What a terminal would obey: C0, DEL, C1 and bidi controls. What a CI would: commands, wherever a line is broken.
DRAWN = "::echo::on \x1b[2J\x1b]0;x\x07\r\b\x7f\x9b2J\x85\u202e\u2066verified ##[group]x" + " ::stop-commands::x" * 6
# Not a known form of a secret: only a command that shows no content hides it.
CANARY = "canary4711"
# Root can read it.
UNREADABLE = "unreadable.yaml"
OTHERS_FILES = {
    "secret.yaml": f"{CANARY}: {CANARY}\n",
    # A report may name the benchmark of a result, also through a link: the Hub's cache consists of links.
    "results.yaml": f'- {{dataset: {{id: "x/x"}}, {CANARY}: "{CANARY}"}}\n',
    "secret.json": json.dumps({CANARY: CANARY, "auths": {CANARY: CANARY}}),
    "netrc": f"machine x login y password {CANARY}\n",
    "inner/kept": CANARY,
}


@dataclass(frozen=True)
class HostileCheckout:
    """`folder` is the checkout, `outside` are files that stay unchanged."""

    folder: Path
    outside: Path
    good: Path

    @property
    def paths(self) -> dict[str, Path]:
        """Everything in it, by name, links and folders too; and itself."""
        names = sorted(os.listdir(self.folder))
        return {"the checkout": self.folder, **{ascii(name): self.folder / name for name in names}}

    def seen_outside(self) -> list[tuple[str, int, bytes]]:
        found = sorted(self.outside.rglob("*"))
        return [(str(path), path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for path in found]


def lay(folder: Path) -> HostileCheckout:
    """Lay it out, and good files that commands need beside it."""
    outside, checkout, good = folder / "outside", folder / "checkout", folder / "good"
    for name, text in OTHERS_FILES.items():
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(text)
    checkout.mkdir()
    _lay_links(checkout, outside)
    _lay_what_is_no_file(checkout)
    for name, text in _texts().items():
        (checkout / name).write_text(text, "utf-8")
    (checkout / "binary").write_bytes(bytes(range(256)) * 40)
    for name in ("\udcff.yaml", f"{DRAWN}.yaml", "a\nissuer: verified.yaml", "n" * 250 + ".yaml"):
        (checkout / name).write_text(_texts()["results.yaml"])
    _lay_repository(checkout / "repository", checkout, outside)
    _lay_good(good)
    return HostileCheckout(checkout, outside, good)


def _lay_links(checkout: Path, outside: Path) -> None:
    for name in OTHERS_FILES:
        (checkout / f"link to {name.replace('/', ' ')}").symlink_to(outside / name)
    (checkout / "link to a folder").symlink_to(outside)
    (checkout / "link to passwd").symlink_to("/etc/passwd")
    (checkout / "link to zeros").symlink_to("/dev/zero")
    (checkout / "link to environ").symlink_to("/proc/self/environ")
    (checkout / "dangling.yaml").symlink_to(outside / "made")
    (checkout / "loop.yaml").symlink_to("loop.yaml")


def _lay_what_is_no_file(checkout: Path) -> None:
    os.mkfifo(checkout / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(checkout, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{here}/socket.yaml")
        os.close(here)
    with (checkout / "huge.yaml").open("wb") as file:
        file.truncate(2**40)
    (checkout / UNREADABLE).touch(0o000)
    (checkout / "empty.yaml").touch()
    (checkout / "folder.yaml").mkdir()
    os.makedirs(checkout / "deep" / "/".join(["d" * 200] * 15))


def _texts() -> dict[str, str]:
    """Texts of every kind of file, with control characters in every place that can hold them."""
    item = make.submission({"notes": "x"})
    header = {**make.HEADER, "kid": DRAWN, DRAWN: DRAWN}
    payload = jcs.canonical({**make.payload_of(item), "jti": DRAWN, "sub": DRAWN, "caller": {DRAWN: DRAWN}})
    drawn = json.dumps(DRAWN)  # JSON is YAML
    entry = {"dataset": {"id": DRAWN, "task_id": DRAWN}, "framework": {"name": DRAWN, "version": DRAWN}, DRAWN: DRAWN,
             "metrics": [{"metric_id": DRAWN, "value": 1}], "notes": DRAWN}  # fmt: skip
    claims = make.claims(task_id=DRAWN, benchmark_repo=DRAWN)
    event = {"time": make.NOW, "event": DRAWN, "integration": DRAWN, "request_id": DRAWN, "code": DRAWN}
    return {
        "results.yaml": json.dumps([{**entry, "verify_token": token} for token in (make.signed(header, payload), DRAWN)]),
        "good.yaml": make.file_for(item).replace('"gsm8k"', drawn).replace('"x"', drawn),
        "raw.yaml": f"- dataset: {DRAWN}\n  {DRAWN}: 1\n",
        "keys.yaml": f"{drawn}: {drawn}\nbad: [\n",
        "eval.yaml": json.dumps({"name": DRAWN, "tasks": [{"id": DRAWN, DRAWN: 1}], "metrics": [{"id": DRAWN}]}),
        "providers.yaml": json.dumps({"version": 1, "providers": {DRAWN: {"profile": DRAWN}, "x": {DRAWN: DRAWN}}}),
        "inspect-ai.yaml": json.dumps({"version": 1, "integration": DRAWN, "contacts": [DRAWN], DRAWN: DRAWN}),
        "trust.yaml": json.dumps({"version": 1, "audience": DRAWN, "issuers": [{"issuer": DRAWN, "keys": {"file": DRAWN}}]}),
        "settings.yaml": json.dumps({"url": DRAWN, DRAWN: DRAWN}),
        "claims.json": json.dumps({"claims": claims, "details": {"notes": DRAWN, DRAWN: 1}, "integration": DRAWN}),
        "bare.json": json.dumps({DRAWN: [DRAWN]}),
        "identity.json": json.dumps({"iss": DRAWN, "aud": DRAWN, DRAWN: DRAWN}),
        "inspect.json": json.dumps({"version": 2, "status": "success", "eval": {"task": DRAWN, "model": DRAWN}, DRAWN: 1}),
        "results_x.json": json.dumps({"results": {DRAWN: {DRAWN: 1}}, "configs": {DRAWN: {}}, "n-shot": {DRAWN: 0}}),
        "run_spec.json": json.dumps({"name": DRAWN, "adapter_spec": {"model": DRAWN}}),
        "stats.json": json.dumps([{"name": {"name": DRAWN}, "mean": 1}]),
        "audit.jsonl": json.dumps(event) + "\n" + DRAWN + "\n" + '{"event": "' + DRAWN + "\n",
        "token.txt": make.signed(header, payload),
        "credential.txt": DRAWN,
    }  # fmt: skip


def _lay_repository(repository: Path, checkout: Path, outside: Path) -> None:
    """Lay a model repository with all these files as results, and one with a link as its folder of results."""
    inner = repository / "acme" / "open-model" / ".eval_results"
    inner.mkdir(parents=True)
    for name in os.listdir(checkout):
        path = checkout / name
        if path.is_symlink():
            (inner / f"{name.removesuffix('.yaml')}.yaml").symlink_to(os.readlink(path))
        elif path.is_file() and name.endswith(".yaml") and name not in {"huge.yaml", UNREADABLE}:
            (inner / name).write_bytes(path.read_bytes())
    (inner / UNREADABLE).touch(0o000)
    os.mkfifo(inner / "pipe.yaml")
    linked = repository / "acme" / "linked"
    linked.mkdir()
    (linked / ".eval_results").symlink_to(outside)
    (repository / "acme" / "loop").symlink_to(repository)


def _lay_good(good: Path) -> None:
    good.mkdir()
    write_trust(good)
    (good / "gsm8k.yaml").write_text(make.file_for(make.submission()))
    (good / "claims.json").write_text(json.dumps(make.claims()))
    (good / "credential").write_text("an-access-token")
    (good / "identity.json").write_text("{}")
    job = {"iss": "https://token.actions.githubusercontent.com", **BY_NAME["github-actions"].claims}
    (good / "job.json").write_text(json.dumps(job))
    (good / "policy.txt").write_text(policy_text())
    leaf = sought_of(make.token_for(make.submission())).leaf
    assert leaf
    members = {
        "url": "https://issuer.example", "policies": "p", "store_url": "embedded", "log_origin": ORIGIN,
        "keys_folder": f"{good}/operated/keys", "data": f"{good}/operated/data", "log_records": f"{good}/operated/records",
    }  # fmt: skip
    (good / "settings.yaml").write_text(settings_text(**members))  # of a service whose log's database is lost
    (good / "operated" / "keys" / "log").mkdir(parents=True, mode=0o700)
    keyfile.write(good / "operated" / "keys" / "log" / "log.pem", LOG_KEY)
    Tree([*ANNOUNCED, leaf.to_bytes(), f"{DRAWN}\n".encode()], time=int(time.time())).write(good / "log")


def problem() -> dict[str, Any]:
    names = ("code", "pointer", "rule", "actual", "expected", "hint")
    check = {**dict.fromkeys(names, DRAWN), "passed": False}
    fault = {"pointer": DRAWN, "code": DRAWN, "detail": DRAWN}
    return {"type": DRAWN, "title": DRAWN, "status": 403, "detail": DRAWN, "instance": DRAWN, "code": "policy.model",
            "retryable": False, "request_id": DRAWN, "errors": [fault], "checks": [check]}  # fmt: skip


HERE = "{here}"  # the hostile path
TRUST = ("--trust", "{good}/trust.yaml")
LOG = ("{good}/log", "--policy", "{good}/policy.txt")
# Options that several lines below have in common.
PARTS = {
    "SUBMIT": "submit --issuer {issuer}"
    " --model-repo acme/open-model --model-revision 9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321 --command x --metric accuracy=match/accuracy --allow-mock mockllm/model",
    "BUILD": "results build {run} --allow-mock mockllm/model --metric accuracy=match/accuracy --command x"
    " --model-repo acme/open-model --model-revision 9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
    "EXPORT": "--to eee --repo acme/open-model --source-type evaluation_run --organization x --evaluator other",
    "FILE": "verify {good}/gsm8k.yaml --repo acme/open-model --path .eval_results/gsm8k.yaml",
    "TRUST": "--trust {good}/trust.yaml",
    "LOG": "{good}/log --policy {good}/policy.txt",
    "VERIEVALS": "--verievals-key 00 --verievals-root 00 --verievals-ledger",
    "CLIENT": "--token-endpoint {issuer} --client-id x --client-secret-file",
    "TOKEN": "--access-token-file {good}/credential",
}
# Every path that a command takes, by the name of its parameter behind `@`; a folder of keys has its own lines below.
LINES = """
$BUILD --out @out
$BUILD --out {made}/out $VERIEVALS @verievals_ledger
$BUILD --out {made}/out --map @map_path
$BUILD --out {made}/out --profile both --benchmark @benchmark_path
$FILE $TRUST --badge @badge
$FILE $TRUST --benchmark @benchmark
$FILE $TRUST --benchmarks @benchmarks
$FILE $TRUST --keep-receipts @keep_receipts
$FILE $TRUST --keep-receipts {good} --receipt-key @receipt_key
$FILE $TRUST --receipts @receipts
$FILE --issuer {issuer} --audience x --cache @cache
$FILE --issuer {issuer} --audience x --state @state
$FILE --trust @trust
$SUBMIT @paths $TOKEN --state {made}/state --out {made}/out
$SUBMIT {run} $TOKEN --out {made}/out --state @state
$SUBMIT {run} $TOKEN --state {made}/state --out @out
$SUBMIT {run} $TOKEN --state {made}/state --out {made}/out $VERIEVALS @verievals_ledger
$SUBMIT {run} $TOKEN --state {made}/state --out {made}/out --benchmark @benchmark_path
$SUBMIT {run} $TOKEN --state {made}/state --out {made}/out --map @map_path
$SUBMIT {run} $TOKEN --state {made}/state --out {made}/out --report @report.json
$SUBMIT {run} $TOKEN --state {made}/state --out {made}/out --summary @summary.md
$SUBMIT {run} --state {made}/state --out {made}/out $CLIENT @client_secret_file
$SUBMIT {run} --state {made}/state --out {made}/out --access-token-file @access_token_file
$SUBMIT {run} --state {made}/state --out {made}/out --id-token-file @id_token_file
abuse across @files
abuse list --config @config
abuse quarantine x y --for 1h --reason x --config @config
abuse release x y --for 1h --reason x --config @config
abuse show x y --config @config
audit find @files --integration x
audit tail @file
audit verify @files
audit verify {good}/identity.json --heads @heads
benchmark init --name x --description x --higher m=M --task t --out @out
benchmark lint @paths
check --issuer {issuer} $CLIENT @client_secret_file
check --issuer {issuer} --access-token-file @access_token_file
check --issuer {issuer} --id-token-file @id_token_file
config check --config @config
config show --origin --config @config
demo --keep @keep
doctor --issuer {issuer} $CLIENT @client_secret_file
doctor --issuer {issuer} --access-token-file @access_token_file
doctor --issuer {issuer} --id-token-file @id_token_file
doctor --server --config @config
init @folder --url https://issuer.example
keys public --of @kind
leaderboard build @path --jobs 1 $TRUST --out {made}/board
leaderboard build {policies} --jobs 1 $TRUST --out @out
leaderboard build {policies} --jobs 1 $TRUST --out {made}/board --benchmarks @benchmarks
leaderboard build {policies} --jobs 1 $TRUST --out {made}/board --receipts @receipts
leaderboard build {policies} --jobs 1 --out {made}/board --issuer {issuer} --audience x --cache @cache
leaderboard build {policies} --jobs 1 --out {made}/board --issuer {issuer} --audience x --state @state
leaderboard build {policies} --out {made}/board --trust @trust
log accept --size 0 --root 0000000000000000000000000000000000000000000000000000000000000000 --reason x --config @config
log export @folder --from {good}/log
log export {made}/log --from {good}/log --policy @policy_file
log init --config @config
log monitor $LOG --state @state
log monitor $LOG --state {made}/state --integration inspect-ai --tokens @tokens
log monitor {good}/log --policy @policy_file --state {made}/state
log proof $LOG --iat 1 --token 0000000000000000000000000000000000000000000000000000000000000000 --out @out
log proof {good}/log --policy @policy_file --for {good}/gsm8k.yaml#0
log restore {good}/log --config @config
log verify {good}/log --policy @policy_file
page export @folder
pat create --account x --config @config
pat create --account x --dir @folder
pat list --config @config
pat list --json --dir @folder
pat revoke 4Fq0ZtB2x9Lm --config @config
pat revoke 4Fq0ZtB2x9Lm --dir @folder
policy check @directory
policy check {policies} --config @config
policy explain @directory --identity-claims-file {good}/identity.json
policy explain {policies} --url https://issuer.example --identity-claims-file @claims_file
policy explain {policies} --url https://issuer.example --identity-claims-file {good}/identity.json --claims @run_file
policy explain {policies} --url https://issuer.example --identity-claims-file {good}/identity.json --counts @counts_file
policy explain {policies} --url https://issuer.example --identity-token-file @token_file
policy fmt @files
policy new mine --from-token @token_file --dir {made}/new
policy new mine --from-token {good}/job.json --dir @directory
policy plan @old {policies} --audit {good}/identity.json
policy plan {policies} @new --audit {good}/identity.json
policy plan {policies} {policies} --audit @audit
policy test @directory
policy test {policies} --config @config
reproduce compare @paths @paths
reproduce compare {run} {run} $VERIEVALS @verievals_ledger
reproduce compare {run} {run} --map @map_path
results build @paths --out {made}/out
results diff @left {good}/gsm8k.yaml
results diff {good}/gsm8k.yaml @right
results digest --repo acme/open-model @paths
results export @file $EXPORT --benchmark {good}/eval.yaml -o {made}/records
results export {good}/gsm8k.yaml $EXPORT --benchmark @benchmark_path -o {made}/records
results export {good}/gsm8k.yaml $EXPORT --benchmark {good}/eval.yaml -o @out
results export {good}/gsm8k.yaml $EXPORT --benchmark {good}/eval.yaml -o {made}/records --trust @trust
results fmt --check {good}/gsm8k.yaml --benchmark @benchmark_path
results fmt @paths --drop-comments
results lint @paths
results lint {good}/gsm8k.yaml --benchmark @benchmark_path
resume everything --config @config
resume everything --dir @folder
serve --config @config
stop everything --reason x --config @config
stop everything --reason x --dir @folder
stops --config @config
stops --dir @folder
token request --issuer {issuer} $TOKEN --allow-mock mockllm/model --inspect-log @inspect_log
token request --issuer {issuer} $TOKEN --claims @claims_path
token request --issuer {issuer} --claims {good}/claims.json $CLIENT @client_secret_file
token request --issuer {issuer} --claims {good}/claims.json $TOKEN --out @out
token request --issuer {issuer} --claims {good}/claims.json $TOKEN --profile both --benchmark @benchmark_path
token request --issuer {issuer} --claims {good}/claims.json --access-token-file @access_token_file
token request --issuer {issuer} --claims {good}/claims.json --id-token-file @id_token_file
verify @path --repo acme/open-model $TRUST
verify {good} $TRUST --engine tls://127.0.0.1:1 --engine-tls @engine_tls
verify {good} --jobs 1 $TRUST --to @to.parquet
witness init --name w.example/1 --dir @folder
witness serve --dir {made} --logs @logs
witness serve --host 192.0.2.1 --logs {good}/policy.txt --dir @folder
"""
KEPT = {
    "config": "--config {here}",
    "folder": "--dir {here} --data {made}/data",
    "data": "--dir {made}/keys --data {here}",
    "passphrase_file": "--dir {made}/keys --data {made}/data --passphrase-file {here}",
}
READERS = ("keys list", "keys public", f"keys revoke key-{'A' * 43} --from 0 --reason x")  # they need existing keys
REVOCATIONS = ("revocations init", "revocations renew", "revocations show", f"revoke --jti {'A' * 22} --reason x")


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for inner in command.list_commands(context):
        found = command.get_command(context, inner)
        assert found
        yield from leaves(found, f"{name} {inner}".strip())


NAMES = [name for name, _ in leaves(cli)]
COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in NAMES}


def add(line: str, parameter: str) -> None:
    (name,) = (name for name in NAMES if f"{line} ".startswith(f"{name} "))
    COMMANDS[name][parameter] = tuple(shlex.split(line))


for line in LINES.strip().splitlines():
    whole = re.sub(r"\$([A-Z]+)", lambda part: PARTS[part[1]], line)
    add(re.sub(r"@[a-z_]+", HERE, whole), re.findall(r"@([a-z_]+)", line)[0])
for name, options in KEPT.items():
    for line in ("keys generate", "keys rotate", *READERS):
        folder = "{good}" if line in READERS and name == "data" else "{made}/keys"
        add(f"{line} {options.replace('{made}/keys', folder)}", name)
    for line in REVOCATIONS:
        url = "" if name == "config" else " --url https://issuer.example"
        add(f"{line} {options}{url}", "keys" if name == "folder" else name)
# The same in the form for machines, and where a folder is judged.
MORE: dict[str, tuple[str, ...]] = {
    "keys list as json": ("keys", "list", "--json", "--dir", HERE, "--data", "{made}/data"),
    "token inspect given": ("token", "inspect", HERE),
    "policy check as github": ("policy", "check", HERE, "--format", "github"),
    **{f"policy test as {form}": ("policy", "test", HERE, "--format", form) for form in ("junit", "json")},
    **{
        f"results lint as {form}": ("results", "lint", HERE, "--format", form)
        for form in ("json", "sarif", "junit", "github")
    },
    "results digest as json": ("results", "digest", HERE, "--json"),
    "results diff as json": ("results", "diff", HERE, "{good}/gsm8k.yaml", "--json"),
    "policy plan as json": ("policy", "plan", "{policies}", "{policies}", "--json", "--audit", HERE),
    "log verify a log": ("log", "verify", HERE, "--policy", "{good}/policy.txt"),
    "log monitor a log": ("log", "monitor", HERE, "--policy", "{good}/policy.txt", "--state", "{made}/state"),
    "log export a log": ("log", "export", "{made}/log", "--from", HERE),
    "log proof from a log": ("log", "proof", HERE, "--policy", "{good}/policy.txt", "--for", "{good}/gsm8k.yaml#0"),
    "log proof for an entry": ("log", "proof", *LOG, "--for", HERE + "#0"),
    "log restore from a log": ("log", "restore", HERE, "--config", "{good}/settings.yaml"),
    "leaderboard build a table": ("leaderboard", "build", HERE + "/r.parquet", "--out", "{made}/board"),
    "verify as json": ("verify", HERE, "--repo", "acme/open-model", "--json", *TRUST),
    **{
        f"verify {place}as {form}": ("verify", HERE, *judged, "--format", form, *TRUST)
        for place, judged, forms in (
            ("", ("--repo", "acme/open-model"), ("junit", "csv")),
            ("a folder ", ("--jobs", "1"), ("sarif", "github")),
        )
        for form in forms
    },
    "verify to a folder's": ("verify", "{good}", "--jobs", "1", *TRUST, "--to", HERE + "/results.parquet"),
    "verify a folder": ("verify", HERE, "--jobs", "1", *TRUST),
    "verify a folder as json": ("verify", HERE, "--jobs", "1", "--json", *TRUST),
}
# Folders that an operator names may be links (issuer/DECISIONS.md); they hold no files of others.
OPERATOR_S = {
    "keys generate data", "keys rotate data", "log export folder", "pat create folder", "pat create config",
    "verify keep_receipts", "verify receipts", "leaderboard build receipts", "leaderboard build cache",
    "leaderboard build state", "verify cache", "verify state", "stop folder", "resume folder", "revoke data",
    "witness init folder",
}  # fmt: skip
EACH = {f"{command} {name}": each for command, paths in COMMANDS.items() for name, each in paths.items()} | MORE
# `demo` starts a service, and `audit tail` follows a file until it is interrupted.
APART = {"demo keep", "audit tail file"}
# The log stream of these commands needs a real standard error.
WITH_A_LOG_STREAM = ("log accept", "log init", "log restore", "serve", "witness")
ENV = {"ISSUER_URL": "https://issuer.example"}
# What `make test` tries; `make check` tries everything in the checkout.
FEW = ("'repository'", "'pipe.yaml'", "'results.yaml'")
LINKED = ("'link to a folder'", "'link to results.yaml'", "'dangling.yaml'")
WRITE = {
    "keys generate folder", "leaderboard build out", "log export folder", "log monitor state", "page export folder",
    "log proof out", "keys rotate folder", "policy fmt files", "policy new directory", "benchmark init out",
    "results build out", "results export out", "results fmt paths", "submit out", "submit report", "submit state",
    "submit summary", "token request out", "verify to", "verify to a folder's",
}  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> HostileCheckout:
    return lay(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def server() -> Iterator[HostileIssuer]:
    with HostileIssuer(answers=[reply(403, problem())]) as server:
        yield server


def fill(
    arguments: tuple[str, ...], path: Path, hostile: HostileCheckout, server: HostileIssuer, made: Path
) -> list[str]:
    names = {"here": path, "good": hostile.good, "issuer": server.url, "policies": SAMPLE_POLICIES, "made": made}
    return [argument.format(run=SAMPLE_RUN, **names) for argument in arguments]


def test_every_path_that_a_command_takes_is_tried_here() -> None:
    taken = {
        name: {option.name for option in command.params if isinstance(option.type, click.Path)}
        for name, command in leaves(cli)
    }
    assert taken == {name: set(paths) for name, paths in COMMANDS.items()}


ANNOTATIONS = ("::error file=", "::warning file=", "::notice file=")


def assert_harmless(written: str, own: tuple[str, ...] = ()) -> None:
    """`own` are the beginnings of the commands for a CI that the command itself writes."""
    assert "Traceback" not in written, written
    obeyed = {sign for sign in written if not sign.isprintable()} - {"\n", "\t"}
    assert not obeyed, (obeyed, written)
    commands = [line for line in written.splitlines() if re.match(r"\s*::|.*##\w*\[", line)]
    assert not [line for line in commands if not line.startswith(own)], commands
    assert CANARY not in written


@pytest.mark.parametrize("group", sorted({name.split()[0] for name in EACH.keys() - APART}))
def test_no_command_of_a_group_does_harm_in_a_hostile_checkout(
    hostile: HostileCheckout, server: HostileIssuer, tmp_path: Path, group: str, request: pytest.FixtureRequest
) -> None:
    few = request.config.option.markexpr == "not long"
    for name in sorted(name for name in EACH.keys() - APART if name.split()[0] == group):
        (tmp_path / name).mkdir()
        for chosen in (*FEW, *(LINKED if name in WRITE else ())) if few else hostile.paths:
            before, path = hostile.seen_outside(), hostile.paths[chosen]
            arguments = fill(EACH[name], path, hostile, server, tmp_path / name / "made")
            if name.startswith(WITH_A_LOG_STREAM):  # apart, which costs more
                apart = issuer(*arguments, env=ENV)
                done = Done(apart.returncode, apart.stdout, apart.stderr)
            else:
                done = run(arguments, tmp_path, env=ENV)
            assert done.code in range(7), (name, path, done)
            assert_harmless(done.out + done.err, ANNOTATIONS if "github" in arguments else ())
            if not (name in OPERATOR_S and path.is_symlink()):
                assert hostile.seen_outside() == before, (name, path)


def test_no_command_of_results_reads_a_link(hostile: HostileCheckout) -> None:
    repository = hostile.paths["'repository'"]
    lines = issuer("results", "lint", repository).stdout.splitlines()
    refused = [line for line in lines if "a symbolic link: not followed" in line]
    links = [path for path in repository.rglob("*.yaml") if path.is_symlink()]
    assert len(links) > 5
    assert len(refused) == len(links) + 1, "one folder of results is a link, too"
    assert issuer("results", "digest", repository / "acme" / "linked" / ".eval_results").returncode == 3


# Colours and the line of progress are ours; a terminal makes CR LF of a line's end.
_OURS = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[K|\r\n")
ON_A_TERMINAL = {
    "results lint paths": "'results.yaml'", "verify a folder": "'repository'", "policy check directory": "'results.yaml'",
    "token request claims_path": "'claims.json'",
}  # fmt: skip


def test_a_terminal_gets_no_control_sequences_except_our_colours(
    hostile: HostileCheckout, server: HostileIssuer, tmp_path: Path
) -> None:
    for name, chosen in ON_A_TERMINAL.items():
        path = hostile.paths[chosen]
        arguments = fill(EACH[name], path.parent if "policy" in name else path, hostile, server, tmp_path)
        ours, theirs = pty.openpty()
        child = Forked(arguments, {**clean(), "TERM": "xterm-256color"}, [theirs] * 3)
        os.close(theirs)
        written = b"".join(iter(lambda: read(ours), b"")).decode()  # noqa: B023
        os.close(ours)
        assert child.wait(60) in range(7), name
        assert_harmless(_OURS.sub("\n", written))
        assert "verified" in written, f"{name} shows the hostile text, escaped"


def read(descriptor: int) -> bytes:
    """Read the output of a terminal; Linux reports EIO when no process has it open."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


@pytest.mark.long
def test_the_demo_keeps_nothing_behind_a_link(hostile: HostileCheckout) -> None:
    before = hostile.seen_outside()
    done = issuer("demo", "--keep", hostile.paths["'link to a folder'"])
    assert (done.returncode, "symbolic link" in done.stderr) == (6, True)
    assert hostile.seen_outside() == before
