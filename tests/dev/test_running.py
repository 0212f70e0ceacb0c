"""`issuer dev` while it runs: it follows the author's folder, limits nobody, and leaves nothing behind."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from issuer import client
from issuer.dev.discovery import find
from issuer.dev.local_issuer import write_samples
from tests.support.command import issuer
from tests.support.dev import running_dev
from tests.support.running import BODY
from tests.support.waiting import within

pytestmark = pytest.mark.long


def token_of(state: Path, *job: str) -> Any:
    done = issuer("dev", "token", *job, env={"XDG_STATE_HOME": str(state)})
    assert done.returncode == 0, done.stderr
    return client.identity_token(done.stdout.strip(), "x")


def test_it_follows_the_folder_and_says_what_it_does_not_take(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "mine") / "inspect-ai.yaml"
    text, errors = path.read_text(), tmp_path / "errors"

    def asked() -> str:
        explained = client.explain_request(url, token_of(tmp_path), BODY)
        return str(explained.code) if explained.verdict == "refused" else explained.verdict

    with running_dev(tmp_path, "--policies", "mine", XDG_STATE_HOME=str(tmp_path)) as said:
        url = re.findall(r"^issuer +(\S+)$", said, re.MULTILINE)[0]
        folder = Path(re.findall(r"^folder +(\S+)", said, re.MULTILINE)[0])
        assert asked() == "granted"
        path.write_text(text.replace("mode: active", "mode: activ"))
        assert within(30, lambda: "policies: not loaded" in errors.read_text())
        assert "mine/inspect-ai.yaml:5:7: file.schema" in errors.read_text()
        assert asked() == "granted", "the old ones stay in force"
        path.write_text(text.replace('benchmarks: ["openai/gsm8k", ', "benchmarks: [").partition("tests:")[0])
        assert within(30, lambda: "policies: loaded" in errors.read_text())
        assert within(30, lambda: asked() == "policy.benchmark")
        path.write_text(text)
        assert within(30, lambda: asked() == "granted")
        assert folder.exists()
    assert not folder.exists()
    assert not [*(tmp_path / "eval-token-issuer" / "dev").iterdir()]


def test_more_than_300_results_are_signed_at_once(tmp_path: Path) -> None:
    with running_dev(tmp_path, XDG_STATE_HOME=str(tmp_path)):
        url, began = find(tmp_path / "eval-token-issuer", None).issuer, time.monotonic()
        for batch in range(4):
            results = [{**BODY, "details": {"notes": f"run {batch} {number}"}} for number in range(100)]
            assert len(client.request_batch(url, token_of(tmp_path), {"results": results})) == 100
        assert time.monotonic() - began < 60, "no limit made it wait"
        huge = issuer("dev", "token", "--claim", f"x={'x' * 70_000}", env={"XDG_STATE_HOME": str(tmp_path)})
        assert (huge.returncode, "too large" in huge.stderr) == (6, True)
