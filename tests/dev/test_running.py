"""`issuer dev` while it runs: it follows the author's folder, has no limits, and removes its files."""

import re
from pathlib import Path
from typing import Any

import pytest

from issuer import client
from issuer.dev.discovery import find
from issuer.dev.local_issuer import write_samples
from tests.support.command import issuer
from tests.support.dev import running_dev
from tests.support.running import BODY
from tests.support.waiting import eventually, log_says

pytestmark = pytest.mark.long


def token_of(state: Path, *job: str) -> Any:
    done = issuer("dev", "token", *job, env={"XDG_STATE_HOME": str(state)})
    assert done.returncode == 0, done.stderr
    return client.identity_token(done.stdout.strip(), "x")


def test_dev_follows_the_folder_and_reports_policies_that_do_not_load(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "mine") / "inspect-ai.yaml"
    text, errors = path.read_text(), tmp_path / "errors"

    def decision() -> str:
        explained = client.explain_request(url, token_of(tmp_path), BODY)
        return str(explained.code) if explained.verdict == "refused" else explained.verdict

    with running_dev(tmp_path, "--policies", "mine", XDG_STATE_HOME=str(tmp_path)) as output:
        url = re.findall(r"^issuer +(\S+)$", output, re.MULTILINE)[0]
        folder = Path(re.findall(r"^folder +(\S+)", output, re.MULTILINE)[0])
        assert decision() == "granted"
        path.write_text(text.replace("mode: active", "mode: activ"))
        log_says(errors, "policies: not loaded")
        log_says(errors, "mine/inspect-ai.yaml:5:7: file.schema")
        assert decision() == "granted", "the old policies stay in force"
        path.write_text(text.replace('benchmarks: ["openai/gsm8k", ', "benchmarks: [").partition("tests:")[0])
        log_says(errors, "policies: loaded")
        eventually(lambda: decision() == "policy.benchmark")
        path.write_text(text)
        eventually(lambda: decision() == "granted")
        assert folder.exists()
    assert not folder.exists()
    assert not [*(tmp_path / "eval-token-issuer" / "dev").iterdir()]


def test_more_than_300_results_are_signed_at_once(tmp_path: Path) -> None:
    with running_dev(tmp_path, XDG_STATE_HOME=str(tmp_path)):
        url = find(tmp_path / "eval-token-issuer", None).issuer
        for batch in range(4):
            results = [{**BODY, "details": {"notes": f"run {batch} {number}"}} for number in range(100)]
            assert len(client.request_batch(url, token_of(tmp_path), {"results": results})) == 100
        huge = issuer("dev", "token", "--claim", f"x={'x' * 70_000}", env={"XDG_STATE_HOME": str(tmp_path)})
        assert (huge.returncode, "too large" in huge.stderr) == (6, True)
