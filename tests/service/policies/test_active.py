"""The policies of a running service change as a whole or not at all, and no request meanwhile gets an error."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from issuer.dev.provider import KEY_SET_PATH, LocalProvider
from issuer.dev.sandbox import free_port, settings_for
from issuer.io.followed import Look, look
from issuer.issuance.ports import Authority, NoLog
from issuer.policy.authoring.load import FolderStep, PolicySource, load_policies
from issuer.policy.match import PolicySet
from issuer.service.audit.sink import FileAudit
from issuer.service.policies.active import Active, Live
from issuer.service.policies.watcher import MAX_DEPTH, FailedLoad, Follower, keep_policies
from issuer.service.settings.background import Background
from tests.support.command import issuer
from tests.support.disk import disk_calls
from tests.support.http_load import answer_to_head
from tests.support.no_tls import NO_TLS
from tests.support.running import Running, numbered, rewrite, running, start, write_folder
from tests.support.waiting import eventually

GOOD, OTHER = "ttl_s: 3600", "ttl_s: 1800"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("reload"), provider) as service:
        shutil.copytree(service.folder / "policies", service.folder / "as it was")
        yield service


@pytest.fixture
def live(shared: Running) -> Running:
    """The one service, with its folder as it was at first, and audit and log empty."""
    shutil.rmtree(shared.folder / "policies", ignore_errors=True)
    shutil.copytree(shared.folder / "as it was", shared.folder / "policies")
    hang_up(shared)
    eventually(lambda: not ready(shared)["stale"])
    shared.settings.audit_file.rename(shared.folder / "audit.before")
    os.truncate(shared.folder / "service.log", 0)
    return shared


def policy_of(live: Running) -> Path:
    return live.folder / "policies" / "inspect-ai.yaml"


def change(live: Running, old: str, new: str) -> None:
    """Change the policy, and leave it to the service to see it."""
    rewrite(live.folder, f"^( *){re.escape(old)}$", new if old.startswith("mode") else f"  {new}")


def apply(live: Running, old: str, new: str) -> None:
    """Change the policy and have it loaded: not every test needs to wait for two looks."""
    before = ready(live)["digest"]
    change(live, old, new)
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: ready(live)["digest"] != before)


def hang_up(live: Running) -> None:
    """Have the folder read, and wait until that is on record."""

    def reads() -> int:
        return len(events(live, "policies_loaded")) + len(events(live, "policies_refused"))

    before = reads()
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: reads() > before)


def ready(live: Running) -> dict[str, Any]:
    answer = live.http.get("/health/ready")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()["policies"]
    return found


def events(live: Running, name: str) -> list[dict[str, Any]]:
    if not live.settings.audit_file.exists():
        return []
    return [event for event in live.audit() if event["event"] == name]


# -- change ---------------------------------------------------------------------------------------------------------------


def test_a_changed_file_decides_from_now_on_and_is_audited(live: Running) -> None:
    before, first = ready(live), live.post(live.token()).json()
    change(live, GOOD, OTHER)
    eventually(lambda: ready(live)["digest"] != before["digest"])
    second = live.post(live.token()).json()
    assert second["expires_at"] - second["issued_at"] == 1800
    assert second["policy"] != first["policy"]
    assert ready(live)["stale"] is False
    (loaded,) = events(live, "policies_loaded")
    assert loaded["policies"] == ready(live)["digest"]
    assert loaded["changed"] == {"inspect-ai": [second["policy"]]}
    assert loaded["removed"] == []


def test_every_process_follows_the_folder_by_itself(live: Running) -> None:
    with running(live.folder, live.provider, url=live.url) as other:
        before = ready(live)["digest"]
        assert ready(other)["digest"] == before
        (started,) = events(live, "policies_loaded")
        assert started["policies"] == before
        assert started["changed"].keys() == {"inspect-ai", "lm-eval"}
        change(live, GOOD, OTHER)
        eventually(lambda: before not in {ready(live)["digest"], ready(other)["digest"]})
        assert ready(live)["digest"] == ready(other)["digest"]
        assert live.post(live.token()).json()["policy"] == other.post(live.token()).json()["policy"]


def test_a_changed_registered_benchmark_is_another_policy_and_is_kept_with_it(live: Running) -> None:
    """Else the same digest would stand for two decisions."""
    file = live.folder / "policies" / "benchmarks" / "openai" / "gsm8k" / "eval.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    rewrite(live.folder, "^  tasks:", "  registered_only: true\n  tasks:")
    defined = 'name: "GSM8K"\ntasks: [{id: "gsm8k"}]\nmetrics: [{id: "accuracy"}]\n'
    digests: list[str] = []
    for text in (defined, defined.replace('"gsm8k"}', '"gsm8k"}, {id: "hard"}')):
        file.write_text(text, "utf-8")
        hang_up(live)
        answer = live.post(live.token(), numbered(len(digests)))
        assert answer.status_code == 201, answer.text
        digests.append(answer.json()["policy"])
        assert events(live, "policies_loaded")[-1]["changed"] == {"inspect-ai": [digests[-1]]}
        kept = live.folder / "data" / "policies"
        value = msgspec.json.decode((kept / f"{digests[-1].removeprefix('sha256:')}.json").read_bytes())
        named = value["benchmarks"]["openai/gsm8k/eval.yaml"].removeprefix("sha256:")
        assert (kept / f"{named}.yaml").read_text("utf-8") == text
    assert digests[0] != digests[1]
    checked = issuer("policy", "check", live.folder / "policies", "--url", live.url, "--development")
    assert digests[1] in checked.stdout


def test_every_policy_that_signed_stays_retrievable_by_its_digest(live: Running) -> None:
    digests = []
    for old, new in ((GOOD, OTHER), (OTHER, "ttl_s: 900"), ("ttl_s: 900", GOOD)):
        digests.append(live.post(live.token()).json()["policy"])
        apply(live, old, new)
    for digest, ttl_s in zip(digests, (3600, 1800, 900), strict=True):
        kept = live.folder / "data" / "policies" / f"{digest.removeprefix('sha256:')}.json"
        assert msgspec.json.decode(kept.read_bytes())["policy"]["token"]["ttl_s"] == ttl_s


# With a disk that is full, or killed on the way: each policy is larger than the limit.
KEEP = """
import os, pathlib, resource, sys
from issuer.policy.authoring.load import load_policies
from issuer.policy.match import PolicySet
from issuer.service.policies.watcher import keep_policies
policies = load_policies(pathlib.Path(sys.argv[1]), "https://issuer.example", development=True)
if sys.argv[3] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
if sys.argv[3] == "killed":
    sys.addaudithook(lambda event, args: os._exit(9) if event == "os.rename" else None)
keep_policies(policies, pathlib.Path(sys.argv[2]))
"""


@pytest.mark.parametrize(("how", "code"), [("full", 1), ("killed", 9)])
def test_no_policy_is_ever_kept_by_half(tmp_path: Path, provider: LocalProvider, how: str, code: int) -> None:
    """Half of one under a digest would be taken for the policy that signed, by this process and every later one."""
    write_folder(tmp_path, provider)
    kept = tmp_path / "data" / "policies"
    command = [sys.executable, "-c", KEEP, str(tmp_path / "policies"), str(kept)]
    assert subprocess.run([*command, how], capture_output=True, check=False, timeout=60).returncode == code
    assert not list(kept.glob("*.json"))
    subprocess.run([*command, "well"], check=True, timeout=60)
    policies = load_policies(tmp_path / "policies", "https://issuer.example", development=True)
    assert {f"sha256:{path.stem}": path.read_bytes() for path in kept.glob("*.json")} == dict(policies.digests)
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.glob("*.json")} == {0o600}


def test_a_policy_is_on_the_disk_before_it_decides(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    policies = load_policies(tmp_path / "policies", "https://issuer.example", development=True)
    keep_policies(policies, tmp_path)
    (tmp_path / f"{next(iter(policies.digests)).removeprefix('sha256:')}.json").unlink()
    assert disk_calls(lambda: keep_policies(policies, tmp_path)) == ["file", "rename", "folder"]
    assert disk_calls(lambda: keep_policies(policies, tmp_path)) == []


def test_an_integration_can_come_and_go(live: Running) -> None:
    text = policy_of(live).read_text("utf-8").replace("integration: inspect-ai", "integration: newcomer")
    newcomer = policy_of(live).with_name("newcomer.yaml")
    newcomer.write_text(text.replace('repository_id: "700000001"', 'repository_id: "5"'), "utf-8")
    identity = live.token(repository_id="5")
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: live.post(identity).status_code in {200, 201})
    newcomer.unlink()
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: live.post(identity).json().get("code") == "integration.unknown")
    assert events(live, "policies_loaded")[-1]["removed"] == ["newcomer"]


def test_a_suspended_integration_is_refused_even_its_repeats(live: Running) -> None:
    identity = live.token()
    assert live.post(identity).status_code == 201
    apply(live, "mode: active", "mode: suspended")
    repeated = live.post(identity)
    assert (repeated.status_code, repeated.json()["code"]) == (403, "integration.suspended")
    for path, verdict in (("/tokens", b" 403 "), ("/tokens/batch", b" 403 "), ("/tokens/explain", b" 200 ")):
        unread = answer_to_head(live.settings.listen.port, path, identity, b"{" * 10_000)
        assert verdict in unread, "the body was not waited for"
        assert b'"code":"integration.suspended"' in unread
    assert "results" not in live.audit()[-1]
    apply(live, "mode: suspended", "mode: active")
    assert live.post(identity).status_code == 200


def test_a_repeat_after_a_reload_keeps_its_template_and_the_audit_names_both_policies(live: Running) -> None:
    identity = live.token()
    first = live.post(identity)
    apply(live, GOOD, OTHER)
    again = live.post(identity)
    assert again.content == first.content
    event = live.audit()[-1]
    assert event["verdict"] == "repeated"
    assert event["template_policy"] == first.json()["policy"] != event["policy"]


# -- what does not load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [("mode: active", "mode: actve"), ("mode: active", "mode: active\nmode: active"), (GOOD, "ttl_s: [secret-thing")],
)
def test_a_folder_that_does_not_load_changes_nothing_and_says_so(live: Running, old: str, new: str) -> None:
    before, good = ready(live), live.post(live.token()).json()["policy"]
    good_text = policy_of(live).read_text("utf-8")
    change(live, old, new)
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: ready(live)["stale"])
    assert ready(live) == {**before, "stale": True}
    assert live.post(live.token()).json()["policy"] == good
    (event,) = events(live, "policies_refused")
    assert event["policies"] == before["digest"]
    assert event["code"].startswith("file.")
    assert event["file"] == str(policy_of(live))
    assert event["line"] > 0
    assert "secret-thing" not in live.log_text() + live.settings.audit_file.read_text("utf-8")
    assert "policies refused" in live.log_text()
    write_again(live, good_text)
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: not ready(live)["stale"])
    assert ready(live)["digest"] == before["digest"]


def write_again(live: Running, text: str) -> None:
    draft = policy_of(live).with_suffix(".draft")
    draft.write_text(text, "utf-8")
    draft.rename(policy_of(live))


def test_a_refused_folder_is_told_once_and_seen_to_be_good_again(live: Running) -> None:
    change(live, "mode: active", "mode: actve")
    hang_up(live)
    assert ready(live)["stale"]
    time.sleep(2.5)  # two looks
    assert len(events(live, "policies_refused")) == 1, "once, not at every look"
    change(live, "mode: actve", "mode: active")
    eventually(lambda: not ready(live)["stale"])


FAILING = (
    '\ntests:\n  - {name: "it is granted", expect: granted, provider: github-actions, identity: {repository_id: "1"}}\n'
)


def test_a_policy_whose_own_tests_fail_never_becomes_active(live: Running) -> None:
    before = ready(live)
    text = policy_of(live).read_text("utf-8").partition("\ntests:")[0]
    policy_of(live).write_text(text + FAILING, "utf-8")
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: ready(live)["stale"])
    assert ready(live)["digest"] == before["digest"]
    assert events(live, "policies_refused")[0]["code"] == "policy.test_failed"
    assert live.post(live.token()).status_code == 201


def test_a_folder_that_vanishes_changes_nothing(live: Running) -> None:
    folder = live.folder / "policies"
    folder.rename(folder.with_name("away"))
    hang_up(live)
    assert ready(live)["stale"]
    assert live.post(live.token()).status_code == 201
    folder.with_name("away").rename(folder)
    hang_up(live)
    eventually(lambda: not ready(live)["stale"])


class Restless(type(Path())):  # type: ignore[misc]
    """A folder in which something is written whenever somebody looks: no machine is too slow to write in time."""

    looks = 0
    quiet = False

    def __str__(self) -> str:
        folder = str(super().__str__())
        if not self.quiet and os.path.isdir(folder):
            self.looks += 1
            Path(folder, "README.txt").write_text("x" * self.looks, "utf-8")
        return folder


async def test_a_folder_that_is_being_written_is_left_alone(
    tmp_path: Path, provider: LocalProvider, background: Background
) -> None:
    """Half of a deployment is not a policy: as long as every check finds something new, nothing is loaded."""
    write_folder(tmp_path, provider)
    audit, folder = FileAudit(tmp_path / "audit.jsonl"), Restless(tmp_path / "policies")
    folder.quiet = True
    live = live_of(followed(tmp_path, folder), audit)
    first, folder.quiet = live.active, False
    policy = tmp_path / "policies" / "inspect-ai.yaml"
    policy.write_text(policy.read_text("utf-8").replace(GOOD, OTHER), "utf-8")
    before = folder.looks
    background.watch("policies", live.turn)
    await asyncio.to_thread(eventually, lambda: folder.looks >= before + 3)
    assert live.active is first
    folder.quiet = True
    await asyncio.to_thread(eventually, lambda: live.active is not first)
    await background.aclose()
    audit.close()


def followed(tmp_path: Path, folder: Path | None = None) -> Follower:
    """Load the policies of a service in this folder."""
    kept = tmp_path / "data" / "policies"
    return Follower(PolicySource(folder or tmp_path / "policies", "https://issuer.example", True), kept)


def live_of(follower: Follower, audit: FileAudit) -> Live[Active]:
    """Answer by what is followed; `loaded_at` counts the loads."""
    loads = itertools.count(1)

    def activate(policies: PolicySet) -> Active:
        authority = Authority(
            "https://issuer.example", policies, None, None, None, None, NoLog(), None, audit, None, None, None, None  # type: ignore[arg-type]
        )  # fmt: skip
        return Active(authority, next(loads))

    return Live(follower, activate, audit)


# -- SIGHUP ---------------------------------------------------------------------------------------------------------------


def test_sighup_loads_at_once_and_disturbs_nothing(live: Running) -> None:
    for _ in range(3):  # nothing has changed: without a signal nothing would ever be loaded
        hang_up(live)
    assert events(live, "policies_loaded")[-1]["changed"] == {}
    assert live.post(live.token()).status_code == 201


def test_sighup_during_the_start_does_not_kill(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    settings = settings_for(tmp_path, free_port())
    process = start(settings, tmp_path, TMPDIR=str(tmp_path))
    try:
        eventually(lambda: bool(list(tmp_path.glob("issuer-valkey-*"))))  # its store is on the way, the server is not
        process.send_signal(signal.SIGHUP)
        eventually(lambda: process.poll() is not None or answers(settings.url))
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(60) == 0


# -- under load -----------------------------------------------------------------------------------------------------------


def test_a_folder_that_flips_under_load_turns_no_answer_into_an_error(live: Running) -> None:
    """Two good versions and a bad one in turn, under four clients: every token is one of the two policies'."""
    good = policy_of(live).read_text("utf-8")
    versions = [good.replace(GOOD, OTHER), good.replace("mode: active", "mode: actve"), good]
    seen: list[tuple[int, str]] = []
    stop = threading.Event()

    def client(number: int) -> None:
        sent = number * 1_000_000
        while not stop.is_set():
            sent += 1
            answer = live.post(live.token(), numbered(sent))
            seen.append((answer.status_code, answer.json().get("policy", answer.text)))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    try:
        for version in versions * 2:
            write_again(live, version)
            hang_up(live)
            answered = len(seen)
            eventually(lambda answered=answered: len(seen) > answered + 20)  # type: ignore[misc]
    finally:  # a client that goes on would fail the test after this one
        stop.set()
        for thread in clients:
            thread.join()
    assert {status for status, _ in seen} == {201}
    assert len({policy for _, policy in seen}) == 2
    assert len(events(live, "policies_refused")) >= 2
    assert len(events(live, "policies_loaded")) >= 4
    assert "unforeseen" not in live.log_text()


def test_the_provider_s_keys_that_are_kept_survive(live: Running) -> None:
    assert live.post(live.token()).status_code == 201
    fetched = live.provider.requests[KEY_SET_PATH]
    apply(live, GOOD, OTHER)
    assert live.post(live.token()).status_code == 201
    assert live.provider.requests[KEY_SET_PATH] == fetched


def test_a_provider_that_was_taken_out_is_unknown(live: Running) -> None:
    identity = live.token()
    assert live.post(identity).status_code == 201
    policy_of(live).unlink()
    providers = live.folder / "policies" / "providers.yaml"
    providers.write_text('version: 1\nproviders:\n  gitlab-ci: {profile: "gitlab-ci"}\n', "utf-8")
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: live.post(identity).json().get("code") == "identity.issuer_unknown")
    published = live.http.get("/.well-known/eval-token-issuer").json()["identity_providers"]
    assert [provider["id"] for provider in published] == ["gitlab-ci"], "what is published changes with it"


MANY = 300


def test_loading_hundreds_of_files_holds_no_request_up(live: Running) -> None:
    """As many are answered while it loads as come; it would be one or two if the load held them up."""
    text = policy_of(live).read_text("utf-8").partition("\ntests:")[0]
    most = 0
    for round_number in range(5):  # for the case that this process, too, stood still meanwhile
        for number in range(MANY):
            one = text.replace("integration: inspect-ai", f"integration: many-{number}")
            one = one.replace('"700000001"', f'"{number}"') + f"\n# {round_number}\n"
            policy_of(live).with_name(f"many-{number}.yaml").write_text(one, "utf-8")
        loads, answered = len(events(live, "policies_loaded")), 0
        live.process.send_signal(signal.SIGHUP)
        while len(events(live, "policies_loaded")) == loads:
            assert live.post(live.token()).status_code == 201
            answered += 1
        most = max(most, answered)
        if most > 10:
            break
    assert most > 10


async def test_what_changed_while_it_was_read_is_not_taken(tmp_path: Path, provider: LocalProvider) -> None:
    """A folder that is written while it is loaded was never anybody's: neither a verdict nor policies come of it."""
    write_folder(tmp_path, provider)
    audit, folder = FileAudit(tmp_path / "audit.jsonl"), tmp_path / "policies"
    more, kept, source = folder / "more.yaml", tmp_path / "kept", PolicySource(folder, "https://issuer.example", True)
    turns: list[Callable[[], object]] = []

    def note() -> None:
        """Do, while a file is judged, what comes next."""
        if turns:
            turns.pop()()

    follower = Follower(source, kept, note)
    live = live_of(follower, audit)
    rewrite(tmp_path, f"^  {GOOD}$", f"  {OTHER}")
    turns.append(lambda: more.write_text("nothing good"))
    await live.turn(True)  # read well, and changed meanwhile
    assert (turns, live.active.loaded_at, live.stale) == ([], 1, False)
    turns.append(more.unlink)
    await live.turn(True)  # refused, and set right meanwhile
    assert (turns, live.active.loaded_at, live.stale) == ([], 1, False)
    await live.turn(True)
    assert (live.active.loaded_at, live.stale) == (2, False)
    audit.close()


@pytest.mark.parametrize("what", ["the file that is read", "a file that comes", "a file that goes"])
def test_a_change_of_one_file_is_not_taken_where_what_is_read_changes_meanwhile(
    tmp_path: Path, provider: LocalProvider, what: str
) -> None:
    write_folder(tmp_path, provider)
    folder = tmp_path / "policies"
    turns: list[Callable[[], object]] = []
    source, gone = PolicySource(folder, "https://issuer.example", True), folder / "lm-eval.yaml"
    follower = Follower(source, tmp_path / "kept", lambda: turns.pop()() if turns else None)
    meanwhile: dict[str, Callable[[], object]] = {
        "the file that is read": lambda: rewrite(tmp_path, f"^  {OTHER}$", f"  {OTHER}  # once more"),
        "a file that comes": lambda: (folder / "more.yaml").write_text("nothing good"),
        "a file that goes": gone.unlink,
    }
    rewrite(tmp_path, f"^  {GOOD}$", f"  {OTHER}")
    turns.append(meanwhile[what])
    assert (follower.turn(False), follower.turn(False), turns) == (None, None, [])
    (folder / "more.yaml").unlink(missing_ok=True)
    assert any(isinstance(follower.turn(False), FolderStep) for _ in range(2))


def test_a_file_that_is_away_for_a_moment_takes_no_integration_away(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    folder = tmp_path / "policies"
    blinking, away = folder / "lm-eval.yaml", tmp_path / "away"
    moves: list[Callable[[], object]] = []

    class Looking(Follower):
        looked = 0

        def _look(self) -> Look:
            seen = super()._look()
            self.looked += 1
            if moves and self.looked == 3:
                moves.pop()()  # between the second look at the change and the reading
            return seen

    def come_back() -> None:
        if away.exists():
            away.rename(blinking)

    follower = Looking(PolicySource(folder, "https://issuer.example", True), tmp_path / "kept", come_back)
    rewrite(tmp_path, f"^  {GOOD}$", f"  {OTHER}")
    moves.append(lambda: blinking.rename(away))
    assert (follower.turn(False), follower.turn(False), moves) == (None, None, [])
    assert blinking.exists()
    assert "lm-eval" in follower.state.policies.policies


def test_known_policies_that_others_may_write_from_now_on_are_refused(tmp_path: Path, provider: LocalProvider) -> None:
    """A file's bytes are those that were judged, but not for long; of a folder's others, the next that comes counts."""
    write_folder(tmp_path, provider)
    folder = tmp_path / "policies"
    follower = Follower(PolicySource(folder, "https://issuer.example", True), tmp_path / "kept")

    def open_to_others(path: Path) -> None:
        path.chmod(path.stat().st_mode | stat.S_IWOTH)

    def next_change() -> object:
        follower.turn(False)  # one look is none
        return follower.turn(False)

    open_to_others(folder / "inspect-ai.yaml")
    change = next_change()
    assert isinstance(change, FailedLoad)
    assert change.code == "file.unsafe"
    (folder / "inspect-ai.yaml").chmod(0o600)
    assert isinstance(next_change(), FolderStep)
    open_to_others(folder)
    (folder / "inspect-ai.yaml").touch()
    change = next_change()
    assert isinstance(change, FailedLoad)
    assert change.code == "file.unsafe"


def test_in_dev_a_hangup_is_the_end_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as out:
        child = subprocess.Popen([sys.executable, "-m", "issuer", "dev"], stdout=out, stderr=subprocess.DEVNULL)
        eventually(lambda: "folder   " in (tmp_path / "out").read_text())
        printed = (tmp_path / "out").read_text()
        url = printed.split()[1]
        eventually(lambda: answers(url))
        child.send_signal(signal.SIGHUP)
        assert child.wait(60) == 0
        assert not Path(printed.partition("folder   ")[2].split()[0]).exists()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", verify=NO_TLS).status_code == 200
    except httpx.TransportError:
        return False


# -- looks ----------------------------------------------------------------------------------------------------------------


def test_a_look_sees_every_change_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    (folder / "benchmarks" / "openai" / "gsm8k").mkdir(parents=True)
    file, deep = folder / "a.yaml", folder / "benchmarks" / "openai" / "gsm8k" / "eval.yaml"
    file.write_text("one")
    deep.write_text("one")
    looks = [look(folder, MAX_DEPTH)]
    assert look(folder, MAX_DEPTH) == looks[0]

    def after(change: Callable[[], object]) -> None:
        time.sleep(0.02)
        change()
        assert look(folder, MAX_DEPTH) not in looks
        looks.append(look(folder, MAX_DEPTH))

    after(lambda: file.write_text("two"))
    after(lambda: deep.write_text("two"))
    after(lambda: file.rename(folder / "b.yaml"))
    after(lambda: (folder / "c.yaml").symlink_to(folder / "nowhere"))
    after(lambda: (folder / "b.yaml").chmod(0o600))
    after(lambda: shutil.rmtree(folder / "benchmarks"))
    after(lambda: shutil.rmtree(folder))


def test_a_look_follows_links_as_a_mounted_config_map_has_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(name)
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "..data").symlink_to(tmp_path / "one")
    (folder / "a.yaml").symlink_to(Path("..data") / "a.yaml")
    before = look(folder, MAX_DEPTH)
    (folder / "..new").symlink_to(tmp_path / "two")
    (folder / "..new").rename(folder / "..data")
    assert look(folder, MAX_DEPTH) != before


def test_a_link_to_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tmp_path)
    assert look(tmp_path, MAX_DEPTH)


def test_the_digest_is_the_one_that_the_loader_gives(live: Running) -> None:
    loaded = load_policies(live.folder / "policies", live.url, development=True)
    assert ready(live)["digest"] == loaded.digest


def test_a_file_whose_name_is_no_text_does_not_end_the_watch(live: Running) -> None:
    odd = os.fsencode(live.folder / "policies") + b"/\xff.yaml"
    with open(odd, "w") as file:
        file.write("version: 1\n")
    hang_up(live)
    assert ready(live)["stale"]
    assert len(events(live, "policies_refused")) == 1
    os.unlink(odd)
    apply(live, GOOD, OTHER)
    assert "unforeseen" not in live.log_text()


def test_what_cannot_be_audited_is_not_loaded_and_is_once_it_can(live: Running) -> None:
    """No audit, no token, and no other policy either; afterwards nobody has to ask for it again."""
    before = ready(live)["digest"]
    for _ in range(10):  # the limit below is for the log stream, too, which is shorter by then
        live.post(live.token())
    size = live.settings.audit_file.stat().st_size
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    change(live, "mode: active", "mode: suspended")
    eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
    assert live.post(live.token()).status_code in {403, 503}, "a refusal that is only counted needs no line"
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: live.http.get("/health/ready").status_code == 200 and ready(live)["digest"] != before)
    assert live.post(live.token()).json()["code"] == "integration.suspended"
    assert events(live, "policies_loaded")[-1]["changed"].keys() == {"inspect-ai"}, "the change is on record"


def test_a_hangup_that_could_not_be_audited_is_made_up_for(live: Running) -> None:
    """The folder is as it was, so no look would ever find a reason to load it again."""
    for _ in range(10):
        live.post(live.token())
    size = live.settings.audit_file.stat().st_size
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: live.http.get("/health/ready").status_code == 200 and len(events(live, "policies_loaded")) == 1)
    assert ready(live)["stale"] is False


def test_a_pipe_in_the_folder_does_not_end_the_watch(live: Running) -> None:
    pipe = live.folder / "policies" / "pipe.yaml"
    os.mkfifo(pipe)
    hang_up(live)
    assert ready(live)["stale"]
    pipe.unlink()
    hang_up(live)
    eventually(lambda: not ready(live)["stale"])
    apply(live, GOOD, OTHER)
