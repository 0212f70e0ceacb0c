"""`issuer abuse`: an operator's commands for a quarantined caller, against real workers."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import redis

from issuer.audit.comparison import Across, describe
from issuer.audit.events import FrameworkRead, RequestCounts, ResultRead
from issuer.dev.provider import LocalProvider
from issuer.issuance.steps import Payer
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.script import names_of
from tests.support.command import issuer
from tests.support.decisions import decision
from tests.support.running import Running, listening, running, serve
from tests.support.settings import by_name, settings_text
from tests.support.waiting import eventually

COMMIT = "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("abuse")
    with (
        LocalProvider() as provider,
        EmbeddedValkey() as store,
        running(folder, provider, command=serve(2), store_url=store) as service,
    ):
        eventually(lambda: listening(service) == 2)
        (folder / "s.yaml").write_text(settings_text(**by_name(service.settings)))
        yield service


def identity_of(live: Running) -> str:
    """Return the id of the identity whose tokens the provider makes."""
    return str(live.post(live.token()).json()["identity"])


def codes(live: Running, count: int = 8) -> set[str]:
    """Ask each time over a new connection, so that both workers are asked."""
    found = set()
    for _ in range(count):
        live.http.headers["Connection"] = "close"
        answer = live.post(live.token())
        found.add(answer.json().get("code", str(answer.status_code)))
    return found


@pytest.mark.long
def test_a_quarantine_and_a_release_reach_every_worker(live: Running) -> None:
    name, config = identity_of(live), ("--config", str(live.folder / "s.yaml"))
    of = ("inspect-ai", name, *config)
    done = issuer("abuse", "quarantine", *of, "--reason", "a stolen key", "--for", "1h")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"inspect-ai/{name} is quarantined until 2" in done.stdout
    assert codes(live) == {"abuse.quarantined"}
    assert "By an operator of this service" in live.post(live.token()).json()["detail"]

    shown = issuer("abuse", "show", *of).stdout
    assert "quarantined until 2" in shown
    assert "by operator" in shown
    (row,) = issuer("abuse", "list", "--json", *config).stdout.splitlines()
    assert (json.loads(row)["identity"], json.loads(row)["quarantined_by"]) == (name, "operator")

    done = issuer("abuse", "release", *of, "--reason", "the key was changed", "--for", "1d")
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: codes(live) == {"201"})  # many requests must not extend a worker's cached standing
    assert "released until 2" in issuer("abuse", "list", *config).stdout

    ordered = [event for event in live.audit() if event["event"] == "abuse_ordered"]
    assert [(event["order"], event["why"]) for event in ordered] == [
        ("quarantine", "a stolen key"), ("release", "the key was changed"),
    ]  # fmt: skip
    assert all(event["identity"] == name and "@" in event["who"] for event in ordered)
    assert all(event["until"] > event["time"] for event in ordered)
    found = issuer("audit", "find", str(live.settings.audit_file), "--identity", f"inspect-ai/{name}")
    assert "abuse ordered" in found.stdout


@pytest.mark.long
def test_a_malformed_standing_is_reported_and_an_order_repairs_it(live: Running) -> None:
    name, config = identity_of(live), ("--config", str(live.folder / "s.yaml"))
    with redis.Redis.from_url(live.settings.store.url) as client:
        key = names_of(Payer("inspect-ai", name)).payer.decode()
        client.delete(key)
        client.rpush(key, "foreign")
    assert codes(live) == {"dependency.state"}
    assert "its record in the store is malformed" in issuer("abuse", "list", *config).stdout
    done = issuer("abuse", "release", "inspect-ai", name, "--reason", "broken", "--for", "1m", *config)
    assert (done.returncode, done.stderr) == (0, "")
    assert codes(live) == {"201"}


@pytest.mark.long
def test_a_misspelled_identity_is_a_usage_error(live: Running) -> None:
    for command, more in (
        ("show", ()),
        *((each, ("--reason", "x", "--for", "1h")) for each in ("release", "quarantine")),
    ):
        for name in (("inspect-aj", "main"), ("inspect-ai", "no-such")):
            done = issuer("abuse", command, *name, "--config", str(live.folder / "s.yaml"), *more)
            assert (done.returncode, "which has: " in done.stderr) == (2, True), done
    assert "no-such" not in live.settings.audit_file.read_text("utf-8")


@pytest.mark.long
def test_abuse_commands_work_beside_a_broken_policy(live: Running) -> None:
    config = ("--config", str(live.folder / "s.yaml"))
    name, broken = identity_of(live), live.folder / "policies" / "broken.yaml"
    broken.write_text("version: [\n")
    try:
        listed = issuer("abuse", "list", *config)
        assert (listed.returncode, "broken.yaml is unreadable" in listed.stderr) == (0, True)
        assert issuer("abuse", "show", "inspect-ai", name, *config).returncode == 0
    finally:
        broken.unlink()


def test_no_event_is_written_if_the_store_does_not_answer(tmp_path: Path) -> None:
    path, policies = tmp_path / "s.yaml", tmp_path / "policies"
    path.write_text(settings_text(
        url="http://127.0.0.1:8000", development=True, keys_folder=str(tmp_path / "keys"), data=str(tmp_path / "data"),
        listen_port=0, policies=str(policies), store_url="redis://127.0.0.1:1",
    ))  # fmt: skip
    policies.mkdir()
    (policies / "providers.yaml").write_text("version: 1\nproviders: {}\n")
    (policies / "inspect-ai.yaml").write_text("version: [\n")
    done = issuer("abuse", "release", "inspect-ai", "ci", "--reason", "x", "--for", "1h", "--config", path)
    assert (done.returncode, "state.unreachable" in done.stderr) == (6, True)
    assert not (tmp_path / "data" / "audit.jsonl").exists()


def line(identity: str, commit: str = COMMIT, model: str = "Acme/open-model", **members: object) -> bytes:
    result = ResultRead(model, commit, "openai/gsm8k", COMMIT, "gsm8k", (), FrameworkRead("inspect-ai", "1"))
    given = {"verdict": "issued", "identity": identity, "results": (result,), **members}
    return msgspec.json.encode(decision("r", **given))


def test_shared_runs_and_models_with_many_commits_are_counted(tmp_path: Path) -> None:
    counts = Across()
    for number in range(5):
        counts.read(line("ci", f"{number:040x}"))
    counts.read(line("nightly", f"{3:040x}", model="acme/OPEN-model"))
    for line_of_no_token in (line("b", verdict="granted"), line("b", verdict="repeated"), b'torn "issued"', b"{}"):
        counts.read(line_of_no_token)
    (shared,), (committed,) = counts.shared(2), counts.committed(5)
    assert (shared.model_revision, shared.identities) == (f"{3:040x}", ["inspect-ai/ci", "inspect-ai/nightly"])
    assert (committed.commits, committed.tokens, committed.model_repo) == (5, 6, "acme/open-model")
    assert list(counts.shared(3)) == list(counts.committed(6)) == []
    assert "2 identities: inspect-ai/ci, inspect-ai/nightly" in describe(shared)
    assert "5 commits, 6 tokens" in describe(committed)
    small = Across(capacity=4)
    for number in range(4):
        small.read(line("ci", f"{number:040x}"))
    small.read(line("ci", results=msgspec.UNSET, counts=RequestCounts(90, 900, 90)))
    assert (small.left_out, small.unread) == (1, 1), "memory is bounded"
    audit = tmp_path / "audit.jsonl"
    audit.write_bytes(line("ci") + b"\n" + line("nightly") + b"\n")
    done = issuer("abuse", "across", audit, "--json")
    assert (done.returncode, json.loads(done.stdout)["tokens"]) == (0, 2)
    assert issuer("abuse", "across", audit, "--identities", "3").returncode == 1, "without a finding"
