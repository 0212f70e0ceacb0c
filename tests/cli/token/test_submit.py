"""`issuer submit` and `issuer check` against a real service, a real provider and a Hub over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE, LOG_POLICY
from issuer.identity import pat
from issuer.results.entry import read_entries
from tests.support.command import clean, issuer
from tests.support.hub_server import Asked, HubServer
from tests.support.leaks import Secrets, assert_nothing_secret
from tests.support.logged import logged_service
from tests.support.reusable import Issuers, create_pat, issuers
from tests.support.running import Running, running
from tests.support.submitting import BENCHMARK, INSPECT, LM_EVAL, MODEL, PATH, fill, plain_runs, texts_on, write_run

pytestmark = pytest.mark.long

GRANTS = {
    "frameworks": [{"name": "inspect-ai"}, {"name": "lm-eval"}],
    "benchmarks": ["*/*"],
    "models": ["*/*"],
    "tasks": ["gsm8k_mini", "choice_mini", "task-*"],
    "metrics": ["*"],
}
Done = subprocess.CompletedProcess[str]


class Minting(LocalProvider):
    """A provider that remembers each token that it minted."""

    def __init__(self) -> None:
        super().__init__()
        self.minted: list[str] = []

    def token(self, audience: object, *, alg: str = "RS256", **overrides: Any) -> str:
        self.minted.append(super().token(audience, alg=alg, **overrides))
        return self.minted[-1]


@pytest.fixture(scope="module")
def known() -> Iterator[Issuers]:
    with Minting() as local, issuers(local) as known:
        yield known


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("issuer")
    known.write(folder, {"grants": GRANTS})
    with running(folder, known.local) as live:
        yield live
        assert_nothing_secret(live)


@dataclass
class Job:
    """A CI job's folder, environment and Hub; everything that it wrote is searched for its secrets."""

    folder: Path
    live: Running
    hub: HubServer
    env: dict[str, str]
    written: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = len(self._minted)

    @property
    def _minted(self) -> list[str]:
        assert isinstance(self.live.provider, Minting)
        return self.live.provider.minted

    def submit(self, *arguments: object, **env: str) -> Done:
        done = issuer("submit", *arguments, "--issuer", self.live.url, env={**self.env, **env})
        self.written += [done.stdout, done.stderr]
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def good(self, *arguments: object, **env: str) -> str:
        done = self.submit(*arguments, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def issued(self) -> list[dict[str, Any]]:
        """Return the service's decisions to sign, oldest first."""
        return [event for event in self.live.audit() if event.get("verdict") == "issued"]

    def secrets(self) -> Secrets:
        """Return what this job has in its environment, and the identity tokens that it was given."""
        secrets = Secrets()
        for name in ("HF_TOKEN", "ISSUER_ACCESS_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"):
            if self.env.get(name):
                own = self.env[name].removeprefix(pat.PREFIX)
                secrets.add(name, own.partition("_")[2] if own != self.env[name] else own)  # a PAT's id is public
        for token in self._minted[self._before :]:
            secrets.add_token("an identity token", token)
        return secrets

    def assert_nothing_secret(self) -> None:
        kept = [path.read_text() for path in self.folder.rglob("*") if path.is_file()]
        assert not self.secrets().found_in("\n".join([*self.written, *kept, *texts_on(self.hub)]).encode())


@pytest.fixture
def job(tmp_path: Path, live: Running) -> Iterator[Job]:
    with HubServer() as hub:
        env = {**live.provider.environment, "HF_TOKEN": hub.token(), "HF_ENDPOINT": hub.url}
        job = Job(tmp_path, live, hub, env)
        yield job
        job.assert_nothing_secret()


def arrived(job: Job, folder: Path, path: str = PATH, repo: str = MODEL) -> Path:
    """Lay out what a pull request has, as a checkout of its branch."""
    (talk,) = job.hub.repos["model", repo].open
    raw = job.hub.repos["model", repo].file(path, talk.ref)
    assert raw is not None
    place = folder / "arrived" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(raw)
    return place


def verified(job: Job, place: Path) -> None:
    benchmark = place.with_name("eval.yaml")
    benchmark.write_bytes(BENCHMARK)
    by = ("--issuer", job.live.url, "--audience", AUDIENCE)
    own = ("--benchmark", benchmark) if place.name == "gsm8k.yaml" else ()
    done = issuer("verify", place, "--repo", MODEL, *by, *own)
    assert done.returncode == 0, done.stdout + done.stderr


def checked_as_it_says(job: Job, folder: Path) -> str:
    """Run the very command of the pull request's text, in a checkout of its branch and without any secret."""
    (talk,) = job.hub.repos["model", MODEL].open
    (command,) = re.findall(r"```sh\n(.*?)\n```", talk.comments[0], re.DOTALL)
    env = {**clean(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder / "arrived", env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, command + done.stdout + done.stderr
    return done.stdout


# -- the whole flow -----------------------------------------------------------------------------------------------------


def test_a_run_of_inspect_ai_becomes_an_open_pull_request_that_verifies(job: Job) -> None:
    fill(job.hub)
    said = job.good(write_run(job.folder), *INSPECT)
    assert "  model_revision: 9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321 (run)\n" in said
    assert "  model_repo: acme/open-model (supplied)\n" in said
    assert "profile both (the primary metric is accuracy)" in said
    assert f"{job.hub.url}/{MODEL}/discussions/1: opened, 1 result, verified by the issuer's keys" in said
    place = arrived(job, job.folder)
    assert "\n  verified\n" in checked_as_it_says(job, job.folder)
    (seen,) = parse_eval_result_entries(yaml.safe_load(place.read_text()))
    assert (seen.dataset_id, seen.value) == ("openai/gsm8k", 0.625)


def test_a_run_of_lm_eval_becomes_an_open_pull_request_that_verifies(job: Job) -> None:
    fill(job.hub)
    said = job.good(write_run(job.folder, "lm_eval_dummy.json"), *LM_EVAL)
    assert "profile target (eval.yaml of acme/choice at that commit is unavailable" in said
    arrived(job, job.folder, ".eval_results/choice.yaml")
    assert "\n  verified\n" in checked_as_it_says(job, job.folder)


def test_the_same_command_again_finds_its_pull_request_and_then_its_entry_on_main(job: Job) -> None:
    repo, run = fill(job.hub), write_run(job.folder)
    job.good(run, *INSPECT)
    count = len(job.issued())
    assert f"in an open pull request already: {job.hub.url}/{MODEL}/discussions/1" in job.good(run, *INSPECT)
    repo.merge(1)
    assert "on main already, with a good token" in job.good(run, *INSPECT)
    assert (len(job.issued()), len(repo.talks)) == (count, 1)


def test_each_model_gets_a_pull_request_of_its_own(job: Job) -> None:
    fill(job.hub)
    job.hub.repo("acme/other")
    document = json.loads(
        job.good(
            plain_runs(job.folder, "task-1", "task-2"), plain_runs(job.folder, "task-1", model="acme/other"), "--json"
        )
    )
    assert [(one["model_repo"], one["number"], one["results"]) for one in document["pull_requests"]] == [
        (MODEL, 1, 2), ("acme/other", 1, 1),
    ]  # fmt: skip
    assert {each["fate"] for each in document["results"]} == {"proposed"}
    verified(job, arrived(job, job.folder, ".eval_results/math.yaml"))


def test_more_results_than_a_batch_has_are_signed_for_an_identity_each_batch(job: Job) -> None:
    fill(job.hub)
    before = job.live.provider.requests["/token"]
    job.good(plain_runs(job.folder, *(f"task-{number}" for number in range(120))))
    assert job.live.provider.requests["/token"] - before == 2
    assert len(read_entries(arrived(job, job.folder, ".eval_results/math.yaml").read_bytes(), "f")) == 120


def test_main_that_moves_meanwhile_is_merged_again(job: Job) -> None:
    repo, run = fill(job.hub), write_run(job.folder)
    other = b'# a comment\n- {dataset: {id: "openai/gsm8k", task_id: "other"}, value: 0.5}\n'
    job.hub.before(f"POST /api/models/{MODEL}/commit", lambda: repo.commit({PATH: other}))
    job.good(run, *INSPECT)
    place = arrived(job, job.folder)
    assert place.read_bytes().startswith(other)
    assert len(repo.open) == 1


def test_the_proof_of_the_log_goes_beside_the_file(tmp_path: Path) -> None:
    with Minting() as provider, logged_service(tmp_path / "issuer", provider) as logged, HubServer() as hub:
        env = {**provider.environment, "HF_TOKEN": hub.token(), "HF_ENDPOINT": hub.url}
        job, repo = Job(tmp_path / "job", logged, hub, env), fill(hub, benchmark=None)
        job.good(write_run(job.folder), *INSPECT)
        place = arrived(job, tmp_path)
        (proof,) = (path for path in repo.commits[repo.refs["refs/pr/1"]].files if path.endswith(".tlog-proof"))
        (place.parent / Path(proof).name).write_bytes(repo.file(proof, "refs/pr/1") or b"")
        keys = logged.http.get("/.well-known/jwks.json").text
        trust = tmp_path / "trust.yaml"
        trust.write_text(
            f'version: 1\naudience: "{AUDIENCE}"\nrequire: ["log"]\nissuers:\n  - issuer: "{logged.url}"\n'
            f"    keys: {{inline: {keys}}}\n    log: {{policy: {{file: {logged.folder / LOG_POLICY}}}}}\n"
        )
        done = issuer("verify", place, "--repo", MODEL, "--trust", trust)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "11  pass" in done.stdout


# -- a rehearsal --------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_change_and_leaves_nothing_anywhere(job: Job) -> None:
    repo, run = fill(job.hub), write_run(job.folder)
    count = len(job.issued())
    said = job.good(run, *INSPECT, "--dry-run", HF_TOKEN="")
    assert '+  verify_token: "(its token)"' in said
    assert "the issuer would sign 1 of 1; no token was requested, no file was changed" in said
    assert (len(job.issued()), repo.talks, [path.name for path in job.folder.iterdir()]) == (count, [], [run.name])


def test_a_dry_run_explains_every_refusal(job: Job) -> None:
    fill(job.hub)
    done = job.submit(plain_runs(job.folder, "task-1", "secret-1", "secret-2"), "--dry-run")
    assert done.returncode == 5
    assert done.stderr.count("refused, policy.task") == 2
    assert done.stderr.count("FAIL  policy.task /claims/task_id") == 2
    assert "the issuer would sign 1 of 3" in done.stdout


# -- what goes wrong ----------------------------------------------------------------------------------------------------


def test_one_refused_run_among_good_ones_keeps_all_of_them_back_unless_the_others_are_wanted(job: Job) -> None:
    repo, runs = fill(job.hub), plain_runs(job.folder, "task-1", "secret-1", "task-2")
    done = job.submit(runs)
    assert (done.returncode, repo.talks) == (5, [])
    assert "secret-1: refused, policy.task" in done.stderr
    assert "no result was proposed: 1 of 3 refused; --keep-going leaves refused results out" in done.stderr
    done = job.submit(runs, "--keep-going")
    assert (done.returncode, "opened, 2 results" in done.stdout) == (5, True)
    verified(job, arrived(job, job.folder, ".eval_results/math.yaml"))


def test_an_unreadable_run_among_good_ones_keeps_all_of_them_back_unless_the_others_are_wanted(job: Job) -> None:
    repo, runs = fill(job.hub), plain_runs(job.folder, "task-1")
    (job.folder / "bad.json").write_text("{")
    count = len(job.issued())
    done = job.submit(runs, job.folder / "bad.json")
    assert (done.returncode, repo.talks, len(job.issued())) == (3, [], count)
    assert "no request was sent: 1 of 2 runs failed; --keep-going submits the other 1" in done.stderr
    done = job.submit(runs, job.folder / "bad.json", "--keep-going")
    assert (done.returncode, len(repo.open)) == (3, 1)


def test_two_runs_for_one_entry_are_refused_before_anything_is_asked(job: Job) -> None:
    repo, count = fill(job.hub), len(job.issued())
    first = write_run(job.folder / "a")
    second = write_run(job.folder / "b", eval__created="2026-11-22T03:44:36+00:00")
    done = job.submit(first, second, *INSPECT)
    assert (done.returncode, repo.talks, len(job.issued())) == (3, [], count)
    assert "two runs are for the same entry" in done.stderr


@pytest.mark.parametrize("what", ["none", "pat", "read", "unknown"])
def test_a_token_of_the_hub_that_opens_nothing_is_told_before_an_identity_is_spent(job: Job, what: str) -> None:
    repo, run, count = fill(job.hub), write_run(job.folder), len(job.issued())
    own = create_pat(job.live.folder)
    token = {"none": "", "pat": own, "read": job.hub.token(role="read"), "unknown": "hf_" + "x" * 34}[what]
    job.env["HF_TOKEN"] = token
    done = job.submit(run, *INSPECT)
    assert (done.returncode, repo.talks) == (5 if what == "read" else 6, [])
    if what != "read":
        assert "issuer: hub.token: " in done.stderr
        assert len(job.issued()) == count
    assert own not in "".join(one.authorization for one in job.hub.asked)


@pytest.mark.parametrize(
    ("what", "code", "ends"),
    [
        ("gated", "hub.gated", 5), ("renamed", "hub.renamed", 5), ("a dataset", "hub.not_model", 5),
        ("gone", "hub.not_found", 5), ("no result file", "file.schema", 3),
    ],
)  # fmt: skip
def test_a_repository_that_takes_no_results_is_told_before_anything_is_done(
    job: Job, what: str, code: str, ends: int
) -> None:
    repo, run = fill(job.hub), write_run(job.folder)
    match what:
        case "gated":
            repo.gated = True
        case "renamed":
            job.hub.rename(MODEL, "acme/newer")
        case "no result file":
            repo.commit({PATH: b"dataset: {}\n"})
        case _:
            del job.hub.repos["model", MODEL]
    if what == "a dataset":
        repo = job.hub.repo(MODEL, kind="dataset")
    asked, main = job.live.provider.requests["/token"], repo.main
    done = job.submit(run, *INSPECT)
    assert (done.returncode, f"{code}: " in done.stderr) == (ends, True), done.stderr
    assert MODEL in done.stderr
    known = Code.named(code)
    assert known is not None
    assert known.meaning.remedy in done.stderr, done.stderr
    assert what != "renamed" or "acme/newer" in done.stderr
    assert job.live.provider.requests["/token"] == asked, "no identity was fetched"
    assert (repo.talks, repo.main, job.hub.count("POST ")) == ([], main, 0)
    assert [path.name for path in job.folder.iterdir()] == [run.name], "nothing is left beside the run"


def test_the_hub_s_token_goes_to_the_hub_alone_and_the_identity_to_the_issuer(job: Job) -> None:
    fill(job.hub)
    job.good(write_run(job.folder), *INSPECT)
    sent = {one.authorization for one in job.hub.asked}
    assert sent - {""} == {f"Bearer {job.env['HF_TOKEN']}"}
    assert job.env["HF_TOKEN"] not in job.live.log_text()


# -- what other processes see -------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Reads again and again what every process of the machine was started with, and the environment of those that one
    process starts."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.command_lines, self.environments = set[bytes](), set[bytes]()
        self.over = threading.Event()
        self._pid = pid

    def run(self) -> None:
        while not self.over.is_set():
            own = _read(self._pid, "cmdline")
            parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
            for pid in parents:
                self.command_lines.add(line := _read(pid, "cmdline"))
                # Until it starts its program, a child has its parent's command line and environment.
                if line not in {b"", own} and self._is_below(pid, parents):
                    self.environments.add(_read(pid, "environ"))

    def _is_below(self, pid: int, parents: Mapping[int, int]) -> bool:
        above = parents.get(pid, 0)
        while above > 1 and above != self._pid:
            above = parents.get(above, 0)
        return above == self._pid


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[1]) if fields else 0


@pytest.mark.parametrize("kind", ["request token", "access token", "agent"])
def test_no_secret_is_in_the_process_list_or_given_to_another_program(job: Job, kind: str) -> None:
    fill(job.hub)
    if kind == "access token":
        job.env |= {"ISSUER_ACCESS_TOKEN": create_pat(job.live.folder)}
        job.live.secrets.append(job.env["ISSUER_ACCESS_TOKEN"])
    if kind == "agent":
        place = job.folder.parent / f"{job.folder.name}-agent"
        place.mkdir()
        (place / "identity").write_text(job.live.token())
        (place / "buildkite-agent").write_text(f"#!/bin/sh\nsleep 0.5\ncat {place}/identity\n")
        (place / "buildkite-agent").chmod(0o755)
        job.env = {"HF_TOKEN": job.env["HF_TOKEN"], "HF_ENDPOINT": job.hub.url, "BUILDKITE": "true",
                   "PATH": f"{place}:{os.environ['PATH']}"}  # fmt: skip
    run = write_run(job.folder)
    command = [sys.executable, "-m", "issuer", "submit", str(run), *INSPECT, "--issuer", job.live.url]
    process = subprocess.Popen(command, env={**clean(), **job.env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    watch = Watch(process.pid)
    watch.start()
    said, _ = process.communicate(timeout=120)
    watch.over.set()
    watch.join()
    job.written.append(said.decode())
    assert process.returncode == 0, said
    seen, given = b"\n".join(watch.command_lines), b"\n".join(watch.environments)
    assert str(run).encode() in seen, "it was looked at while it ran"
    assert (b"buildkite-agent" in seen, b"BUILDKITE=true" in given) == (kind == "agent",) * 2
    assert not job.secrets().found_in(seen)
    assert not job.secrets().found_in(given)


# -- killed and started again -------------------------------------------------------------------------------------------

# Ends itself as the kernel does, at the Nth thing that it does with a file, a folder or a socket since it first connected.
KILLER = """
import os, runpy, signal, sys
at, seen = int(os.environ.pop("KILL_AT")), 0
def hook(event, _):
    global seen
    if (seen or event == "socket.connect") and event.startswith(("socket.", "os.", "open")):
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
sys.argv[0] = "issuer"
sys.addaudithook(hook)
try:
    runpy.run_module("issuer", run_name="__main__")
finally:
    if at == 0:
        print(seen, file=sys.stderr)
"""
POINTS = 10


def killed(job: Job, at: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLER, "submit", *map(str, arguments), "--issuer", job.live.url]
    env = {**clean(), **job.env, "KILL_AT": str(at)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("kind", ["identity token", "access token"])
def test_killed_at_any_point_and_started_again_there_is_one_pull_request(
    tmp_path: Path, live: Running, kind: str
) -> None:
    """Ten points of each kind of credential, over the whole of what leaves the process."""
    moments = int(_killed_once(tmp_path / "all", live, kind, 0).rpartition("\n")[2])
    assert moments >= POINTS, moments
    for number in range(POINTS):
        _killed_once(tmp_path / str(number), live, kind, 1 + number * (moments - 1) // (POINTS - 1))


def _killed_once(folder: Path, live: Running, kind: str, at: int) -> str:
    with HubServer() as hub:
        own = live.provider.environment
        if kind == "access token":
            own = {"ISSUER_ACCESS_TOKEN": create_pat(live.folder)}
            live.secrets += own.values()
        job = Job(folder, live, hub, {**own, "HF_TOKEN": hub.token(), "HF_ENDPOINT": hub.url})
        repo, run, count = fill(hub), write_run(folder), len(job.issued())
        first = killed(job, at, run, *INSPECT)
        job.written += [first.stdout, first.stderr]
        if at:
            assert first.returncode == -signal.SIGKILL, (at, first.stdout, first.stderr)
            job.good(run, *INSPECT)
        else:
            assert first.returncode == 0, first.stdout + first.stderr
        assert len(repo.open) == 1, (at, [talk.status for talk in repo.talks])
        verified(job, arrived(job, folder))
        tokens = {str(event["jti"]) for event in job.issued()[count:]}
        assert len(tokens) == 1 or kind == "identity token", (at, tokens)
        job.assert_nothing_secret()
        return first.stderr.strip()


class Deadly(HubServer):
    """A Hub before whose answer to a commit, which is taken, the caller is killed."""

    caller: subprocess.Popen[bytes] | None = None

    def answer(self, asked: Asked) -> tuple[int, Any, Mapping[str, str]]:
        answer = super().answer(asked)
        if self.caller is not None and asked.method == "POST" and "/commit/" in asked.path:
            self.caller.kill()
        return answer


def test_killed_when_the_commit_was_taken_and_started_again_there_is_one_pull_request(
    tmp_path: Path, live: Running
) -> None:
    hub = Deadly()
    with hub:
        env = {**live.provider.environment, "HF_TOKEN": hub.token(), "HF_ENDPOINT": hub.url}
        job, repo, run = Job(tmp_path, live, hub, env), fill(hub), write_run(tmp_path)
        command = [sys.executable, "-m", "issuer", "submit", str(run), *INSPECT, "--issuer", live.url]
        hub.caller = subprocess.Popen(command, env={**clean(), **env})
        assert hub.caller.wait(60) == -signal.SIGKILL
        hub.caller = None
        (first,) = repo.open
        assert f"in an open pull request already: {hub.url}/{MODEL}/discussions/{first.num}" in job.good(run, *INSPECT)
        assert repo.talks == [first]


# -- check --------------------------------------------------------------------------------------------------------------


def lines(done: Done) -> dict[str, str]:
    document = json.loads(done.stdout)
    return {line["name"]: line["verdict"] for line in document["lines"]}


def check(job: Job, *arguments: object, **env: str) -> Done:
    done = issuer("check", "--issuer", job.live.url, *arguments, "--json", env={**job.env, **env})
    job.written += [done.stdout, done.stderr]
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_check_says_before_an_evaluation_what_would_stand_in_its_way(job: Job) -> None:
    fill(job.hub)
    run = ("--framework-name", "inspect-ai", "--framework-version", "0.3.285", "--task-id", "gsm8k_mini")
    done = check(job, *run, "--model-repo", MODEL, "--benchmark-repo", "openai/gsm8k", "--metric-id", "accuracy")
    assert (done.returncode, set(lines(done).values())) == (0, {"pass"}), done.stdout
    count = len(job.issued())
    done = check(job, "--framework-name", "inspect-ai", "--framework-version", "0.3.285")
    assert (done.returncode, lines(done)["framework"], lines(done)["task"]) == (0, "pass", "warning")
    done = check(job, "--task-id", "other")
    assert (done.returncode, lines(done)["task"]) == (5, "FAIL")
    assert len(job.issued()) == count


@pytest.mark.parametrize("kind", ["identity token", "access token"])
def test_check_of_nothing_asks_of_the_caller_alone_and_is_no_refusal(job: Job, kind: str) -> None:
    if kind == "access token":
        job.env |= {"ISSUER_ACCESS_TOKEN": create_pat(job.live.folder)}
        job.live.secrets.append(job.env["ISSUER_ACCESS_TOKEN"])
    before = len(job.live.audit())
    done = check(job)
    assert (done.returncode, lines(done)["registered"], lines(done)["tokens"]) == (0, "pass", "pass")
    assert (lines(done)["run"], "task" in lines(done)) == ("warning", False)
    assert [(event["verdict"], event["results"]) for event in job.live.audit()[before:]] == [("granted", [])]


def test_check_tells_a_caller_without_an_identity_and_one_who_is_not_registered(job: Job) -> None:
    job.env = {name: text for name, text in job.env.items() if not name.startswith(("ACTIONS_", "GITHUB_"))}
    done = check(job)
    assert (done.returncode, lines(done)["identity"]) == (6, "FAIL")
    stranger = job.live.token(repository_id="1")
    done = check(job, ISSUER_ID_TOKEN=stranger)
    assert (done.returncode, lines(done)["registered"]) == (5, "FAIL")
    done = check(job, ISSUER_ID_TOKEN=job.live.provider.token("https://elsewhere.example"))
    assert (done.returncode, "wanted: aud" in done.stdout) == (5, True)


def test_check_of_what_is_no_issuer_cannot_decide(job: Job) -> None:
    done = issuer("check", "--issuer", job.hub.url, env=job.env)
    assert done.returncode == 4
    assert "FAIL     issuer: " in done.stdout
