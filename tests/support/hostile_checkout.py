"""A hostile checkout for commands, and the files outside that they must neither show nor change."""

import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from issuer.formats import jcs
from issuer.io import keyfile
from issuer.relying.logs.proof import sought_of
from tests.support import make
from tests.support.samples import BY_NAME
from tests.support.settings import settings_text
from tests.support.tlog import ANNOUNCED, LOG_KEY, ORIGIN, Tree, policy_text
from tests.support.tree import write_trust

# What a terminal would obey: C0, DEL, C1 and bidi controls.
DRAWN = "\x1b[2J\x1b]0;x\x07\r\b\x7f\x9b2J\x85\u202e\u2066verified"
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
        """The files outside, with their modes."""
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
    _lay_operated(good)
    Tree([*ANNOUNCED, leaf.to_bytes(), f"{DRAWN}\n".encode()], time=int(time.time())).write(good / "log")


def _lay_operated(good: Path) -> None:
    """Settings of a service whose log's database is lost."""
    members = {
        "url": "https://issuer.example", "policies": "p", "store_url": "embedded", "log_origin": ORIGIN,
        "keys_folder": f"{good}/operated/keys", "data": f"{good}/operated/data", "log_records": f"{good}/operated/records",
    }  # fmt: skip
    (good / "settings.yaml").write_text(settings_text(**members))
    (good / "operated" / "keys" / "log").mkdir(parents=True, mode=0o700)
    keyfile.write(good / "operated" / "keys" / "log" / "log.pem", LOG_KEY)


def problem() -> dict[str, Any]:
    """An issuer's answer with control characters in every text."""
    names = ("code", "pointer", "rule", "actual", "expected", "hint")
    check = {**dict.fromkeys(names, DRAWN), "passed": False}
    fault = {"pointer": DRAWN, "code": DRAWN, "detail": DRAWN}
    return {"type": DRAWN, "title": DRAWN, "status": 403, "detail": DRAWN, "instance": DRAWN, "code": "policy.model",
            "retryable": False, "request_id": DRAWN, "errors": [fault], "checks": [check]}  # fmt: skip
