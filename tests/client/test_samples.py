"""The GitLab component and the samples of each CI: the very shell texts of their jobs, run by bash, against a real issuer
and a Hub. Small commands replace a vendor's agent: they print its output."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from issuer.dev.provider import LocalProvider
from tests.support.command import clean, install_issuer
from tests.support.hub_server import HubServer
from tests.support.running import Running, running
from tests.support.runs import DATA
from tests.support.shared import ROOT
from tests.support.submitting import MODEL, fill, texts_on, verify_open


class NoPipelineError(Exception):
    """GitLab says what is wrong with the file, and makes no pipeline."""


def inputs_of(spec: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return each input's value, as GitLab checks it by `spec:inputs`."""
    if unknown := set(given) - set(spec):
        raise NoPipelineError(f"unknown input arguments: {', '.join(sorted(unknown))}")
    values = {}
    for name, one in spec.items():
        if name not in given and "default" not in one:
            raise NoPipelineError(f"`{name}` input: required value has not been provided")
        value, kind = given.get(name, one.get("default")), one.get("type", "string")
        if not isinstance(value, {"string": str, "boolean": bool, "array": list}[kind]):
            raise NoPipelineError(f"`{name}` input: provided value is not a {kind}")
        if "options" in one and value not in one["options"]:
            raise NoPipelineError(f"`{name}` input: {value} is not in the list of options")
        if "regex" in one and not re.search(one["regex"], str(value)):
            raise NoPipelineError(f"`{name}` input: provided value does not match the required regex")
        values[name] = value
    return values


INPUT = re.compile(r"\$\[\[\s*inputs\.([A-Za-z0-9_-]+)\s*\]\]")


def interpolate(node: Any, inputs: Mapping[str, Any]) -> Any:
    """Put the inputs into the nodes of a document, after GitLab's CI/CD inputs reference and its `lib/gitlab/ci/config`: a
    value that is one block alone becomes the input itself, of its type; in a longer one it is written out."""
    if isinstance(node, dict):
        return {interpolate(name, inputs): interpolate(item, inputs) for name, item in node.items()}
    if isinstance(node, list):
        return [interpolate(item, inputs) for item in node]
    if not isinstance(node, str):
        return node
    if whole := INPUT.fullmatch(node):
        return inputs[whole[1]]
    return INPUT.sub(lambda match: str(inputs[match[1]]), node)


def variables_of(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a job, of which GitLab takes strings and integers."""
    for name, one in job["variables"].items():
        if not isinstance(one["value"], str | int) or isinstance(one["value"], bool):
            raise NoPipelineError(f"jobs:variables:{name} config value must be an alphanumeric string")
    return {name: str(one["value"]) for name, one in job["variables"].items()}


EXAMPLES = ROOT / "deploy" / "examples"
COMPONENT = ROOT / "deploy" / "gitlab" / "templates" / "submit.yml"
LOG = (DATA / "inspect_two_scorers.json").read_bytes().replace(b"mockllm/model", b"hf/acme/open-model")


class Job(NamedTuple):
    """The texts of a job that has its runs, and its variables."""

    install: str
    submit: str
    env: Mapping[str, str]


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def gitlab(**given: str) -> Job:
    spec, jobs = documents(COMPONENT)
    (used,) = documents(EXAMPLES / "gitlab.yml")[0]["include"]
    commit = {"commit": "0" * 40} if used["inputs"]["commit"] == "COMMIT" else {}  # which its user fills in
    inputs = inputs_of(spec["spec"]["inputs"], {**used["inputs"], **commit, **given})
    job = interpolate(jobs["submit-results"], inputs)
    return Job(
        job["before_script"][0], job["script"][0], {**variables_of(job), "ISSUER_COMMIT": used["inputs"]["commit"]}
    )


def buildkite() -> Job:
    (document,) = documents(EXAMPLES / "buildkite.yml")
    step = document["steps"][-1]
    download, install, submit = (text.replace("$$", "$") for text in step["commands"])
    return Job(install, f"{download}\n{submit}", {**step["env"], "BUILDKITE": "true"})


def circleci() -> Job:
    (document,) = documents(EXAMPLES / "circleci.yml")
    job = document["jobs"]["evaluate"]
    install, submit = (step["run"]["command"] for step in job["steps"][-2:])
    return Job(install, submit, {**job["environment"], "CIRCLECI": "true"})


def kubernetes() -> Job:
    (document,) = documents(EXAMPLES / "kubernetes.yaml")
    pod = document["spec"]["template"]["spec"]
    (install,), (submit,) = pod["initContainers"], pod["containers"]
    return Job(install["args"][0], submit["args"][0], {one["name"]: one.get("value", "") for one in submit["env"]})


JOBS = {"gitlab": gitlab, "buildkite": buildkite, "circleci": circleci, "kubernetes": kubernetes}


def test_samples_install_alike_and_no_input_of_the_component_is_part_of_a_shell_text() -> None:
    samples = [job() for job in JOBS.values()]
    assert len({job.install for job in samples}) == 1
    assert {job.env["ISSUER_COMMIT"] for job in samples} == {"COMMIT"}, "they name none"
    spec, jobs = documents(COMPONENT)
    job = jobs["submit-results"]
    assert not INPUT.search("".join([*job["before_script"], *job["script"]]))
    assert all(one["expand"] is False for one in job["variables"].values())
    assert set(INPUT.findall(COMPONENT.read_text("utf-8"))) == set(spec["spec"]["inputs"]), "each is used"


def test_only_an_input_of_the_component_reaches_the_job_and_is_unchanged() -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"commit": "main"}, "`commit` input: provided value does not match the required regex"),
        ({"dry-run": True}, "`dry-run` input: provided value is not a string"),
        ({"dry-run": "yes"}, "`dry-run` input: yes is not in the list of options"),
        ({"hf-token": "x"}, "unknown input arguments: hf-token"),
    ]
    for given, why in refusals:
        with pytest.raises(NoPipelineError, match=re.escape(why)):
            gitlab(**given)
    spec, jobs = documents(COMPONENT)
    needed = {"issuer": "https://issuer.example", "runs": "a b", "source": "https://git.example", "commit": "0" * 40}
    job = interpolate(jobs["submit-results"], inputs_of(spec["spec"]["inputs"], needed))
    assert variables_of(job)["DRY_RUN"] == "false", "one with a default may be omitted"
    said = 'it\'s "$(touch x)" $HOME \\ #: {a}'
    assert gitlab(command=said, **{"dry-run": "true"}).env["ISSUER_RUN_COMMAND"] == said
    flag = interpolate(jobs["submit-results"], {**inputs_of(spec["spec"]["inputs"], needed), "dry-run": True})
    with pytest.raises(NoPipelineError, match="DRY_RUN config value must be an alphanumeric string"):
        variables_of(flag)  # which a flag would be, written alone


def test_the_cluster_s_token_is_made_for_the_issuer_and_mounted_where_it_is_read() -> None:
    (document,) = documents(EXAMPLES / "kubernetes.yaml")
    pod = document["spec"]["template"]["spec"]
    ((source,),) = (one["projected"]["sources"] for one in pod["volumes"] if "projected" in one)
    assert source["serviceAccountToken"]["audience"] == kubernetes().env["ISSUER_URL"]
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert f"{mounts['identity']}/{source['serviceAccountToken']['path']}" == kubernetes().env["ID_TOKEN_FILE"]
    assert {one["name"] for one in pod["volumes"]} == set(mounts)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


def bash(
    folder: Path, text: str, env: Mapping[str, str], passed: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", text], cwd=folder, env={**clean(), **env},
        pass_fds=passed, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def agents(folder: Path, identity: Path, hub_token: str) -> Path:
    """Write the commands of Buildkite's and CircleCI's agents: they know an identity and a secret."""
    folder.mkdir()
    said = {"buildkite-agent": f'case "$1" in oidc) cat {identity};; secret) echo {hub_token};; artifact) ;; *) exit 2; esac',
            "circleci": f'[ "$1 $2 $3" = "run oidc get" ] && cat {identity}'}  # fmt: skip
    for name, text in said.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o700)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_with_an_open_pull_request_that_verifies(tmp_path: Path, service: Running, name: str) -> None:
    job, identity = JOBS[name](), tmp_path / "identity"
    identity.write_text(service.token())
    (tmp_path / "work" / "logs").mkdir(parents=True)
    (tmp_path / "work" / "logs" / "run.json").write_bytes(LOG)
    (tmp_path / "work" / ".issuer" / ".venv").mkdir(parents=True)
    starter = install_issuer(tmp_path / "work" / ".issuer" / ".venv" / "bin")
    with HubServer() as hub:
        fill(hub)
        token = hub.token()
        own = {"ISSUER_URL": service.url, "HF_TOKEN": token, "HF_ENDPOINT": hub.url, "RUNS": "logs"}
        own["PATH"] = f"{agents(tmp_path / 'agents', identity, token)}:{clean()['PATH']}"
        if name == "gitlab":
            own["ISSUER_ID_TOKEN"] = identity.read_text()
        if name == "kubernetes":
            own["ID_TOKEN_FILE"] = str(identity)
        if name == "buildkite":
            del own["HF_TOKEN"]
        done = bash(tmp_path / "work", job.submit, {**job.env, **own}, (starter,))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{hub.url}/{MODEL}/discussions/1: opened, 1 result" in done.stdout
        said = "\n".join([done.stdout, done.stderr, *texts_on(hub)])
        assert not [secret for secret in (token, identity.read_text()) if secret in said]
        verify_open(hub, service.url, tmp_path / "arrived")


@pytest.mark.long
def test_they_install_the_commit_with_the_packages_of_its_lock(tmp_path: Path) -> None:
    source = tmp_path / "source"
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(source))
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        if name.startswith(("issuer/", "policies/", "deploy/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    for name in ("work", "option"):
        (tmp_path / name).mkdir()
    as_option = {"ISSUER_SOURCE": "--upload-pack=touch pwned;", "ISSUER_COMMIT": "0" * 40}
    assert bash(tmp_path / "option", gitlab().install, as_option).returncode, "a source is never an option of git"
    assert not list(tmp_path.rglob("pwned"))
    (tmp_path / "work" / ".issuer").symlink_to(tmp_path / "elsewhere")
    for name in ("venv", "ensurepip", "pip", "hatchling"):
        (tmp_path / "work" / f"{name}.py").write_text("open('pwned', 'w')\n")
    env = {"ISSUER_SOURCE": source.as_uri(), "ISSUER_COMMIT": commit}
    done = bash(tmp_path / "work", gitlab().install, env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.rglob("pwned")), "files in the job's folder are not imported"
    ran = bash(tmp_path / "work", ".issuer/.venv/bin/issuer submit --help", {})
    assert "pull request" in ran.stdout, ran.stderr


@pytest.mark.long
def test_a_mirror_has_the_component_at_its_top(tmp_path: Path) -> None:
    """By the command of its README, in a checkout."""
    (split,) = re.findall(r"`(git subtree split [^`]+)`", (COMPONENT.parents[1] / "README.md").read_text("utf-8"))
    place = tmp_path / COMPONENT.relative_to(ROOT)
    place.parent.mkdir(parents=True)
    place.write_bytes(COMPONENT.read_bytes())
    (tmp_path / "LICENSE").write_text("not of the component\n")
    say = "git -c user.name=t -c user.email=t@example.org"
    done = bash(
        tmp_path, f"git init -q\ngit add -A\n{say} commit -qm all\n{split}\ngit ls-tree -r --name-only component", {}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "templates/submit.yml"
    assert "LICENSE" not in done.stdout
