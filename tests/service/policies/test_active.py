"""The policies of a running service change as a whole or not at all, and no request gets an error meanwhile."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import resource
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from issuer.dev.provider import KEY_SET_PATH, LocalProvider
from issuer.dev.sandbox import free_port, settings_for
from issuer.errors import Undecided
from issuer.io.followed import Look, look
from issuer.issuance.ports import Authority, NoLog
from issuer.limits.rate import NO_CEILINGS
from issuer.policy.authoring.load import FolderStep, PolicySource, load_policies
from issuer.policy.match import PolicySet
from issuer.service.audit.sink import FileAudit
from issuer.service.policies.active import Active, Live
from issuer.service.policies.archive import PolicyArchive, keep_policies, unused_beside
from issuer.service.policies.watcher import MAX_DEPTH, FailedLoad, Follower
from tests.support.disk import disk_calls
from tests.support.http_load import answer_to_head
from tests.support.no_tls import NO_TLS
from tests.support.policies import POLICY, changed, load
from tests.support.running import Running, numbered, rewrite, running, start, until_live, write_folder
from tests.support.waiting import eventually

GOOD, OTHER = "ttl_s: 3600", "ttl_s: 1800"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("reload"), provider) as service:
        shutil.copytree(service.folder / "policies", service.folder / "first")
        yield service


@pytest.fixture
def live(shared: Running) -> Running:
    """The shared service, with its first folder of policies, and audit and log empty."""
    shutil.rmtree(shared.folder / "policies", ignore_errors=True)
    shutil.copytree(shared.folder / "first", shared.folder / "policies")
    hang_up(shared)
    eventually(lambda: not ready(shared)["stale"])
    shared.settings.audit_file.rename(shared.folder / "audit.before")
    os.truncate(shared.folder / "service.log", 0)
    return shared


def policy_of(live: Running) -> Path:
    return live.folder / "policies" / "inspect-ai.yaml"


def change(live: Running, old: str, new: str) -> None:
    """Change the policy, without a signal."""
    rewrite(live.folder, f"^ *{old}$", new if old.startswith("mode") else f"  {new}")


def apply(live: Running, old: str, new: str) -> None:
    """Change the policy and have it loaded by a signal, which is faster than two looks."""
    before = ready(live)["digest"]
    change(live, old, new)
    live.process.send_signal(signal.SIGHUP)
    eventually(lambda: ready(live)["digest"] != before)


def hang_up(live: Running) -> None:
    """Have the folder read, and wait until that is audited."""

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
    return [event for event in live.audit() if event["event"] == name] if live.settings.audit_file.exists() else []


# -- change ---------------------------------------------------------------------------------------------------------------


def test_a_changed_file_decides_once_it_is_seen_and_both_policies_are_kept(live: Running) -> None:
    before, first = ready(live), live.post(live.token()).json()
    change(live, GOOD, OTHER)
    eventually(lambda: ready(live)["digest"] != before["digest"])
    second = live.post(live.token()).json()
    assert [each["expires_at"] - each["issued_at"] for each in (first, second)] == [3600, 1800]
    for issued, ttl_s in ((first, 3600), (second, 1800)):
        kept = live.folder / "data" / "policies" / f"{issued['policy'].removeprefix('sha256:')}.json"
        assert msgspec.json.decode(kept.read_bytes())["policy"]["token"]["ttl_s"] == ttl_s
    assert ready(live)["stale"] is False
    assert ready(live)["digest"] == load_policies(live.folder / "policies", live.url, development=True).digest
    (loaded,) = events(live, "policies_loaded")
    assert loaded["policies"] == ready(live)["digest"]
    assert loaded["changed"] == {"inspect-ai": [second["policy"]]}
    assert loaded["removed"] == []
    hang_up(live)
    assert events(live, "policies_loaded")[-1]["changed"] == {}


def test_a_policy_with_a_changed_benchmark_has_another_digest(live: Running) -> None:
    """Otherwise one digest would name two different rules."""
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


def test_a_policy_is_on_the_disk_before_it_decides(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    policies = load_policies(tmp_path / "policies", "https://issuer.example", development=True)
    keep_policies(policies, tmp_path)
    (tmp_path / f"{next(iter(policies.digests)).removeprefix('sha256:')}.json").unlink()
    assert disk_calls(lambda: keep_policies(policies, tmp_path)) == ["file", "rename", "folder"]
    assert disk_calls(lambda: keep_policies(policies, tmp_path)) == []
    assert {f"sha256:{path.stem}": path.read_bytes() for path in tmp_path.glob("*.json")} == dict(policies.digests)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.json")} == {0o600}


def test_a_version_that_cannot_be_kept_decides_nothing(live: Running) -> None:
    apply(live, GOOD, "ttl_s: 1799")
    for path in unused_beside(live.settings.kept_folder).glob("*.json"):
        path.unlink()
    answer = live.post(live.token())
    assert (answer.status_code, answer.json()["code"]) == (503, "dependency.audit")
    assert not [event for event in live.audit() if event["event"] == "decision"]


def test_an_integration_can_come_and_go_and_so_can_a_provider(live: Running) -> None:
    text = policy_of(live).read_text("utf-8").replace("integration: inspect-ai", "integration: newcomer")
    newcomer = policy_of(live).with_name("newcomer.yaml")
    newcomer.write_text(text.replace('repository_id: "700000001"', 'repository_id: "5"'), "utf-8")
    identity = live.token(repository_id="5")

    def until_code(code: str | None) -> None:
        live.process.send_signal(signal.SIGHUP)
        eventually(lambda: live.post(identity).json().get("code") == code)

    until_code(None)
    newcomer.unlink()
    until_code("integration.unknown")
    assert events(live, "policies_loaded")[-1]["removed"] == ["newcomer"]
    policy_of(live).unlink()
    providers = live.folder / "policies" / "providers.yaml"
    providers.write_text('version: 1\nproviders:\n  gitlab-ci: {profile: "gitlab-ci"}\n', "utf-8")
    until_code("identity.issuer_unknown")
    published = live.http.get("/.well-known/eval-token-issuer").json()["identity_providers"]
    assert [provider["id"] for provider in published] == ["gitlab-ci"]


def test_repeats_of_a_suspended_integration_are_refused_too(live: Running) -> None:
    identity = live.token()
    assert live.post(identity).status_code == 201
    apply(live, "mode: active", "mode: suspended")
    repeated = live.post(identity)
    assert (repeated.status_code, repeated.json()["code"]) == (403, "integration.suspended")
    for path, verdict in (("/tokens", b" 403 "), ("/tokens/batch", b" 403 "), ("/tokens/explain", b" 200 ")):
        unread = answer_to_head(live.settings.listen.port, path, identity, b"{" * 10_000)
        assert verdict in unread, "the body was not awaited"
        assert b'"code":"integration.suspended"' in unread
    refusals = [event for event in live.audit() if event.get("code") == "integration.suspended"]
    assert not [event for event in refusals if "results" in event]
    apply(live, "mode: suspended", "mode: active")
    assert live.post(identity).status_code == 200


# -- folders that do not load ---------------------------------------------------------------------------------------------

FAILING = (
    '\ntests:\n  - {name: "it is granted", expect: granted, provider: github-actions, identity: {repository_id: "1"}}\n'
)


def write_again(live: Running, text: str) -> None:
    draft = policy_of(live).with_suffix(".draft")
    draft.write_text(text, "utf-8")
    draft.rename(policy_of(live))


def test_a_folder_that_does_not_load_changes_nothing_and_is_reported(live: Running) -> None:
    good = live.post(live.token()).json()["policy"]
    good_text = policy_of(live).read_text("utf-8")
    broken = {
        good_text.replace("mode: active", "mode: actve"): "file.",
        good_text.replace("mode: active", "mode: active\nmode: active"): "file.",
        good_text.replace(GOOD, "ttl_s: [secret-thing"): "file.",
        good_text.partition("\ntests:")[0] + FAILING: "policy.test_failed",
    }
    for count, (text, code) in enumerate(broken.items(), 1):
        before = ready(live)
        write_again(live, text)
        hang_up(live)
        assert ready(live) == {**before, "stale": True}
        assert live.post(live.token()).json()["policy"] == good
        event = events(live, "policies_refused")[count - 1]
        assert event["policies"] == before["digest"]
        assert event["code"].startswith(code)
        assert event["file"] == str(policy_of(live))
        assert event["line"] > 0
        write_again(live, good_text)
        live.process.send_signal(signal.SIGHUP)
        eventually(lambda: not ready(live)["stale"])
        assert ready(live)["digest"] == before["digest"]
    assert "secret-thing" not in live.log_text() + live.settings.audit_file.read_text("utf-8")
    assert "policies refused" in live.log_text()


def test_an_odd_entry_or_a_missing_folder_does_not_end_the_watch(live: Running) -> None:
    folder = live.folder / "policies"
    away, pipe, odd = folder.with_name("away"), folder / "pipe.yaml", os.fsencode(folder) + b"/\xff.yaml"
    faults: dict[Callable[[], object], Callable[[], object]] = {
        lambda: folder.rename(away): lambda: away.rename(folder),
        lambda: os.mkfifo(pipe): pipe.unlink,
        lambda: os.mkfifo(odd): lambda: os.unlink(odd),
    }
    for begin, end in faults.items():
        begin()
        hang_up(live)
        assert ready(live)["stale"]
        assert live.post(live.token()).status_code == 201
        end()
        hang_up(live)
        eventually(lambda: not ready(live)["stale"])
    apply(live, GOOD, OTHER)
    assert "unforeseen" not in live.log_text()


async def test_a_refused_folder_is_audited_once_and_again_when_it_is_good(
    tmp_path: Path, provider: LocalProvider
) -> None:
    write_folder(tmp_path, provider)
    audit, loads = FileAudit(tmp_path / "audit.jsonl"), itertools.count(1)

    def activate(policies: PolicySet) -> Active:
        authority = Authority(
            "https://issuer.example", policies, None, None, None, None, NoLog(), None, audit, None, None, None, None  # type: ignore[arg-type]
        )  # fmt: skip
        return Active(authority, next(loads))

    source = PolicySource(tmp_path / "policies", "https://issuer.example", True, NO_CEILINGS)
    live = Live(Follower(source, tmp_path / "data" / "policies"), activate, audit)
    await live.announce()
    rewrite(tmp_path, "^mode: active$", "mode: actve")
    stale = []
    for _ in range(5):
        await live.turn(False)
        stale.append(live.stale)
    rewrite(tmp_path, "^mode: actve$", "mode: active")
    for _ in range(2):
        await live.turn(False)
    assert stale == [False, *[True] * 4], "half of a deployment is not a policy: two looks must agree"
    assert not live.stale
    audit.close()
    recorded = [msgspec.json.decode(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert [event["event"] for event in recorded] == ["policies_loaded", "policies_refused", "policies_loaded"]
    assert recorded[0]["changed"].keys() == {"inspect-ai", "lm-eval"}


# -- SIGHUP ---------------------------------------------------------------------------------------------------------------


def test_sighup_during_the_start_does_not_kill(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    settings = settings_for(tmp_path, free_port())
    process = start(settings, tmp_path, TMPDIR=str(tmp_path))
    try:
        eventually(lambda: bool(list(tmp_path.glob("issuer-valkey-*"))))  # its store starts, before its server
        process.send_signal(signal.SIGHUP)
        with httpx.Client(base_url=settings.url, timeout=60, verify=NO_TLS) as http:
            until_live(http, process, tmp_path)
    finally:
        process.terminate()
        assert process.wait(60) == 0


# -- under load -----------------------------------------------------------------------------------------------------------


def test_changes_under_load_turn_no_answer_into_an_error(live: Running) -> None:
    """Two good versions and a bad one in turn, with four clients."""
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


def test_a_change_leaves_known_keys_and_tokens_and_a_repeat_names_both_policies(live: Running) -> None:
    identity = live.token()
    first, fetched = live.post(identity), live.provider.requests[KEY_SET_PATH]
    apply(live, GOOD, OTHER)
    assert live.post(live.token()).status_code == 201
    assert live.provider.requests[KEY_SET_PATH] == fetched
    assert live.post(identity).content == first.content
    (event,) = [event for event in events(live, "decision") if event["verdict"] == "repeated"]
    assert event["template_policy"] == first.json()["policy"] != event["policy"]


def test_loading_hundreds_of_files_delays_no_request(live: Running) -> None:
    """As many are answered during the load as come; a load that held them up would leave one or two."""
    text = policy_of(live).read_text("utf-8").partition("\ntests:")[0]
    most = 0
    for round_number in range(5):  # in case that this process stood still, too
        for number in range(150):
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


def test_a_change_of_one_file_does_not_count_if_the_folder_changes_during_its_load(
    tmp_path: Path, provider: LocalProvider
) -> None:
    meanwhile: tuple[Callable[[Path], object], ...] = (
        lambda folder: rewrite(folder.parent, f"^  {OTHER}$", f"  {OTHER}  # once more"),
        lambda folder: (folder / "more.yaml").write_text("nothing good"),
        lambda folder: (folder / "lm-eval.yaml").unlink(),
    )
    for number, change in enumerate(meanwhile):
        folder = tmp_path / str(number) / "policies"
        write_folder(folder.parent, provider)
        turns: list[Callable[[Path], object]] = []
        source = PolicySource(folder, "https://issuer.example", True, NO_CEILINGS)
        note = lambda turns=turns, folder=folder: turns.pop()(folder) if turns else None  # noqa: E731
        follower = Follower(source, tmp_path / "kept", note)
        rewrite(folder.parent, f"^  {GOOD}$", f"  {OTHER}")
        turns.append(change)
        assert (follower.turn(False), follower.turn(False), turns) == (None, None, []), number
        (folder / "more.yaml").unlink(missing_ok=True)
        assert any(isinstance(follower.turn(False), FolderStep) for _ in range(2)), number


def test_a_file_that_is_away_for_a_moment_removes_no_integration(tmp_path: Path, provider: LocalProvider) -> None:
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

    follower = Looking(PolicySource(folder, "https://issuer.example", True, NO_CEILINGS), tmp_path / "kept", come_back)
    rewrite(tmp_path, f"^  {GOOD}$", f"  {OTHER}")
    moves.append(lambda: blinking.rename(away))
    assert (follower.turn(False), follower.turn(False), moves) == (None, None, [])
    assert blinking.exists()
    assert "lm-eval" in follower.state.policies.policies


def test_known_policies_that_others_may_now_write_to_are_refused(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    folder = tmp_path / "policies"
    follower = Follower(PolicySource(folder, "https://issuer.example", True, NO_CEILINGS), tmp_path / "kept")
    for path in (folder / "inspect-ai.yaml", folder):
        before = path.stat().st_mode
        for mode in (before | stat.S_IWOTH, before):
            path.chmod(mode)
            (folder / "inspect-ai.yaml").touch()
            follower.turn(False)  # the first look
            change = follower.turn(False)
            code = change.code if isinstance(change, FailedLoad) else type(change)
            assert code == (FolderStep if mode == before else "file.unsafe"), path


# -- looks ----------------------------------------------------------------------------------------------------------------


def test_a_look_sees_every_change_also_behind_the_links_of_a_mounted_config_map(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    deep = folder / "benchmarks" / "openai" / "gsm8k" / "eval.yaml"
    deep.parent.mkdir(parents=True)
    file = folder / "a.yaml"
    file.write_text("one")
    deep.write_text("one")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mounted.yaml").write_text(name)
        (folder / f"..{name}").symlink_to(tmp_path / name)
    (folder / "mounted.yaml").symlink_to(Path("..one") / "mounted.yaml")
    looks = [look(folder, MAX_DEPTH)]
    assert look(folder, MAX_DEPTH) == looks[0]
    for change in (
        lambda: (folder / "..two").rename(folder / "..one"),
        lambda: os.utime(file, ns=(0, 1)),
        lambda: deep.write_text("three"),
        lambda: file.rename(folder / "b.yaml"),
        lambda: (folder / "c.yaml").symlink_to(folder / "nowhere"),
        lambda: shutil.rmtree(folder / "benchmarks"),
        lambda: shutil.rmtree(folder),
    ):
        change()
        seen = look(folder, MAX_DEPTH)
        assert seen not in looks
        looks.append(seen)


# -- without an audit file ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_disk(live: Running) -> Iterator[None]:
    """Let no file of the service grow beyond the audit file; the log stream is shorter than that."""
    for _ in range(10):
        live.post(live.token())
    size = live.settings.audit_file.stat().st_size
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_what_could_not_be_audited_is_loaded_and_audited_once_it_can(live: Running) -> None:
    """Also a signal for an unchanged folder, which no look would find a reason to load again."""
    for names in ([], ["inspect-ai"]):
        loads = len(events(live, "policies_loaded"))
        with full_disk(live):
            if names:
                change(live, "mode: active", "mode: suspended")
            live.process.send_signal(signal.SIGHUP)
            eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
            assert live.post(live.token()).status_code in {403, 503}, "a refusal that is only counted needs no event"
        eventually(lambda loads=loads: len(events(live, "policies_loaded")) > loads)  # type: ignore[misc]
        eventually(lambda: live.http.get("/health/ready").status_code == 200)
        assert events(live, "policies_loaded")[-1]["changed"].keys() == set(names)
        assert ready(live)["stale"] is False
    assert live.post(live.token()).json()["code"] == "integration.suspended"


# -- the archive of policies by their digests -----------------------------------------------------------------------------


def keep(folder: Path, raw: bytes, name: str = "") -> str:
    name = name or hashlib.sha256(raw).hexdigest()
    (folder / f"{name}.json").write_bytes(raw)
    return f"sha256:{name}"


def test_every_loaded_policy_is_known_by_its_digest(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    known = PolicyArchive(kept)
    earlier = load(tmp_path, inspect_ai=POLICY)
    (digest,) = earlier.digests
    assert known.integration_of(digest) is None
    keep_policies(earlier, kept)
    later = load(tmp_path, inspect_ai=changed(POLICY, "ttl_s: 3600", "ttl_s: 1800"))
    keep_policies(later, kept)
    assert {known.integration_of(each) for each in (*earlier.digests, *later.digests)} == {"inspect-ai"}


@pytest.mark.parametrize("unused_s", [300, 86_400])
async def test_of_the_versions_that_were_replaced_only_those_that_decided_stay(
    tmp_path: Path, provider: LocalProvider, unused_s: int
) -> None:
    write_folder(tmp_path, provider)
    kept, ceilings = tmp_path / "kept", replace(NO_CEILINGS, unused_s=unused_s)
    follower = Follower(PolicySource(tmp_path / "policies", "https://issuer.example", True, ceilings), kept)

    def change_to(ttl_s: int) -> str:
        before = follower.state.policies.digests.keys()
        rewrite(tmp_path, "^  ttl_s: [0-9]+$", f"  ttl_s: {ttl_s}")
        follower.turn(True)
        (new,) = follower.state.policies.digests.keys() - before
        return new

    decided = change_to(1801)
    await asyncio.gather(*(PolicyArchive(kept).keep(decided) for _ in range(8)))  # one for each worker
    replaced, in_force = change_to(1802), change_to(1803)
    for path in unused_beside(kept).iterdir():
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    newest = change_to(1804)
    stays = {replaced} if unused_s > 7200 else set()
    assert {f"sha256:{path.stem}" for path in unused_beside(kept).iterdir()} == {in_force, newest} | stays
    archive = PolicyArchive(kept)
    await archive.keep(in_force)  # of a worker that does not have the change yet
    assert {archive.integration_of(digest) for digest in (decided, in_force, newest)} == {"inspect-ai"}
    with contextlib.nullcontext() if stays else pytest.raises(Undecided):
        await archive.keep(replaced)


def test_any_other_file_or_digest_is_unknown(tmp_path: Path) -> None:
    archive, raw = PolicyArchive(tmp_path), b'{"policy":{"integration":"inspect-ai"}}'
    assert archive.integration_of(keep(tmp_path, raw)) == "inspect-ai"
    others = [
        keep(tmp_path, each) for each in (b"", b"{}", b"[]", b'{"policy":{}}', b'{"policy":{"integration":7}}', b"\xff")
    ]
    changed_later = keep(tmp_path, raw, "0" * 64)
    spellings = ["", "sha256:", "sha256:..", "sha256:" + "../" * 21 + "x", "sha256:" + "1" * 64, "x" * 64]
    for digest in (*others, changed_later, *spellings):
        assert archive.integration_of(digest) is None, digest
