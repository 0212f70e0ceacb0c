"""`issuer submit` and `issuer check` against a real service, a real provider and a Hub over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
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
from tests.support.command import clean, issuer
from tests.support.hub_server import HubServer
from tests.support.leaks import Secrets, assert_nothing_secret
from tests.support.logged import logged_service
from tests.support.reusable import Issuers, create_pat, issuers
from tests.support.running import Running, running
from tests.support.submitting import BENCHMARK, INSPECT, MODEL, PATH, fill, plain_runs, texts_on, write_run

pytestmark = pytest.mark.long

GRANTS = {
    "frameworks": [{"name": "inspect-ai"}, {"name": "lm-eval"}], "benchmarks": ["*/*"], "models": ["*/*"],
    "tasks": ["gsm8k_mini", "choice_mini", "task-*"], "metrics": ["*"],
}  # fmt: skip
Done = subprocess.CompletedProcess[str]


class Minting(LocalProvider):
    """A provider that records each token that it made."""

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
    """A CI job's folder, environment and Hub; all of its output is searched for its secrets."""

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
        """Return the secrets of this job's environment, and its identity tokens."""
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
    """Write a pull request's file as in a checkout of its branch."""
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


def checked_as_described(job: Job, folder: Path) -> str:
    """Run the command of the pull request's text, in a checkout of its branch and without any secret."""
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
    output = job.good(write_run(job.folder), *INSPECT)
    for line in (
        "  model_revision: 9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321 (run)\n",
        "  model_repo: acme/open-model (supplied)\n",
        "profile both (the primary metric is accuracy)",
        f"{job.hub.url}/{MODEL}/discussions/1: opened, 1 result, verified by the issuer's keys",
    ):
        assert line in output
    place = arrived(job, job.folder)
    assert "\n  verified\n" in checked_as_described(job, job.folder)
    (seen,) = parse_eval_result_entries(yaml.safe_load(place.read_text()))
    assert (seen.dataset_id, seen.value) == ("openai/gsm8k", 0.625)
    assert {one.authorization for one in job.hub.asked} - {""} == {f"Bearer {job.env['HF_TOKEN']}"}
    assert job.env["HF_TOKEN"] not in job.live.log_text()


def test_each_model_gets_its_own_pull_request(job: Job) -> None:
    fill(job.hub)
    job.hub.repo("acme/other")
    runs = plain_runs(job.folder, "task-1", "task-2"), plain_runs(job.folder, "task-1", model="acme/other")
    document = json.loads(job.good(*runs, "--json"))
    found = [(one["model_repo"], one["number"], one["results"]) for one in document["pull_requests"]]
    assert found == [(MODEL, 1, 2), ("acme/other", 1, 1)]
    assert {each["fate"] for each in document["results"]} == {"proposed"}
    verified(job, arrived(job, job.folder, ".eval_results/math.yaml"))


def test_a_later_run_of_the_same_integration_replaces_the_one_on_main_and_says_so(job: Job) -> None:
    repo = fill(job.hub)
    job.good(write_run(job.folder), *INSPECT)
    repo.merge(1)
    later, old = write_run(job.folder, eval__run_id="later"), "openai/gsm8k, gsm8k_mini, inspect-ai, accuracy 0.625"
    assert f"would replace, signed before for the same integration: {old}" in job.good(later, *INSPECT, "--dry-run")
    (made,) = json.loads(job.good(later, *INSPECT, "--json"))["pull_requests"]
    assert [line.startswith(old) for line in made["replaced"]] == [True]
    assert f"- `{old}" in repo.open[0].comments[0]


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


def test_a_dry_run_shows_the_change_and_makes_no_file_or_request(job: Job) -> None:
    repo, run = fill(job.hub), write_run(job.folder)
    count = len(job.issued())
    output = job.good(run, *INSPECT, "--dry-run", HF_TOKEN="")
    assert '+  verify_token: "(its token)"' in output
    assert "the issuer would sign 1 of 1; no token was requested, no file was changed" in output
    assert (len(job.issued()), repo.talks, [path.name for path in job.folder.iterdir()]) == (count, [], [run.name])


# -- refusals -----------------------------------------------------------------------------------------------------------


def test_a_refused_or_unreadable_run_stops_all_results_without_keep_going(job: Job) -> None:
    repo, runs, bad = fill(job.hub), plain_runs(job.folder, "task-1", "secret-1", "task-2"), job.folder / "bad.json"
    done = job.submit(runs)
    assert (done.returncode, repo.talks) == (5, [])
    assert "secret-1: refused, policy.task" in done.stderr
    assert "no result was proposed: 1 of 3 refused; --keep-going leaves refused results out" in done.stderr
    bad.write_text("{")
    count, good = len(job.issued()), plain_runs(job.folder, "task-1", "task-2")
    done = job.submit(good, bad)
    assert (done.returncode, repo.talks, len(job.issued())) == (3, [], count)
    assert "no request was sent: 1 of 3 runs failed; --keep-going submits the other 2" in done.stderr
    done = job.submit(runs, "--keep-going")
    assert (done.returncode, "opened, 2 results" in done.stdout) == (5, True)
    verified(job, arrived(job, job.folder, ".eval_results/math.yaml"))
    done = job.submit(good, bad, "--keep-going")
    assert (done.returncode, len(repo.open)) == (3, 2)


def test_an_unusable_token_of_the_hub_is_refused_before_an_identity_is_spent(job: Job) -> None:
    repo, run, count = fill(job.hub), write_run(job.folder), len(job.issued())
    own = create_pat(job.live.folder)
    for token in ("", own, "hf_" + "x" * 34):
        done = job.submit(run, *INSPECT, HF_TOKEN=token)
        assert (done.returncode, "issuer: hub.token: " in done.stderr, repo.talks) == (6, True, [])
    assert len(job.issued()) == count
    assert own not in "".join(one.authorization for one in job.hub.asked)
    done = job.submit(run, *INSPECT, HF_TOKEN=job.hub.token(role="read"))
    assert (done.returncode, repo.talks) == (5, [])


def test_a_repository_that_accepts_no_results_is_refused_before_any_request(job: Job) -> None:
    repo, run = fill(job.hub), write_run(job.folder)
    main = repo.main
    identities = job.live.provider.requests["/token"]
    for code, ends in (("hub.gated", 5), ("file.schema", 3), ("hub.renamed", 5)):
        repo.gated = code == "hub.gated"
        if code == "file.schema":
            repo.commit({PATH: b"dataset: {}\n"})
            main = repo.main
        if code == "hub.renamed":
            job.hub.rename(MODEL, "acme/newer")
        done = job.submit(run, *INSPECT)
        assert (done.returncode, f"{code}: " in done.stderr, MODEL in done.stderr) == (ends, True, True), done.stderr
        known = Code.named(code)
        assert known is not None
        assert known.meaning.remedy in done.stderr, done.stderr
        assert (repo.talks, repo.main, job.hub.count("POST ")) == ([], main, 0)
    assert job.live.provider.requests["/token"] == identities, "no identity was fetched"
    assert [path.name for path in job.folder.iterdir()] == [run.name]


# -- killed and started again -------------------------------------------------------------------------------------------

# Kills itself at the Nth event of a file, a folder or a socket since its first connection.
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
def test_a_job_that_was_killed_and_repeated_opens_one_pull_request(tmp_path: Path, live: Running, kind: str) -> None:
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


# -- check --------------------------------------------------------------------------------------------------------------


def lines(done: Done) -> dict[str, str]:
    document = json.loads(done.stdout)
    return {line["name"]: line["verdict"] for line in document["lines"]}


def check(job: Job, *arguments: object, **env: str) -> Done:
    done = issuer("check", "--issuer", job.live.url, *arguments, "--json", env={**job.env, **env})
    job.written += [done.stdout, done.stderr]
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_check_reports_before_an_evaluation_what_would_be_refused(job: Job) -> None:
    fill(job.hub)
    run = ("--framework-name", "inspect-ai", "--framework-version", "0.3.285")
    names = {"task-id": "gsm8k_mini", "model-repo": MODEL, "benchmark-repo": "openai/gsm8k", "metric-id": "accuracy"}
    full = [word for name, value in names.items() for word in (f"--{name}", value)]
    done = check(job, *run, *full)
    assert (done.returncode, set(lines(done).values())) == (0, {"pass"}), done.stdout
    count = len(job.issued())
    done = check(job, *run)
    assert (done.returncode, lines(done)["framework"], lines(done)["task"]) == (0, "pass", "warning")
    done = check(job, "--task-id", "other")
    assert (done.returncode, lines(done)["task"], len(job.issued())) == (5, "FAIL", count)


@pytest.mark.parametrize("kind", ["identity token", "access token"])
def test_check_without_a_run_judges_the_caller_alone(job: Job, kind: str) -> None:
    if kind == "access token":
        job.env |= {"ISSUER_ACCESS_TOKEN": create_pat(job.live.folder)}
        job.live.secrets.append(job.env["ISSUER_ACCESS_TOKEN"])
    before = len(job.live.audit())
    done = check(job)
    assert (done.returncode, lines(done)["registered"], lines(done)["tokens"]) == (0, "pass", "pass")
    assert (lines(done)["run"], "task" in lines(done)) == ("warning", False)
    assert [(event["verdict"], event["results"]) for event in job.live.audit()[before:]] == [("granted", [])]


def test_check_reports_an_absent_and_an_unregistered_identity(job: Job) -> None:
    job.env = {name: text for name, text in job.env.items() if not name.startswith(("ACTIONS_", "GITHUB_"))}
    done = check(job)
    assert (done.returncode, lines(done)["identity"]) == (6, "FAIL")
    done = check(job, ISSUER_ID_TOKEN=job.live.token(repository_id="1"))
    assert (done.returncode, lines(done)["registered"]) == (5, "FAIL")
    done = check(job, ISSUER_ID_TOKEN=job.live.provider.token("https://elsewhere.example"))
    assert (done.returncode, "wanted: aud" in done.stdout) == (5, True)
    done = issuer("check", "--issuer", job.hub.url, env={**job.env, **job.live.provider.environment})
    assert (done.returncode, "FAIL     issuer: " in done.stdout) == (4, True)
