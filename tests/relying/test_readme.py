"""The page for relying parties does what it says: each example is run, in order, in a folder that has its files.

Those of the client's page are run in tests/cli/test_token_request.py, against a real issuer.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import issuer.relying
from issuer import keyfile
from issuer.dev.provider import LocalProvider
from issuer.relying.documents import LONGEST_AGE_S, MAX_CACHE_BYTES, MAX_DOCUMENT_BYTES, Documents
from issuer.relying.trusted import trust_by_file
from issuer.tlog.note import Kind, vkey_of
from tests.support.make import (
    BENCHMARK_TEXT,
    RECEIPT_KEY,
    REVOCATION_KEY,
    file_for,
    jwks,
    revocation_list,
    submission,
)
from tests.support.witnessing import policy_text

LOG_KEY = vkey_of("issuer.example/log/2026-11-22-7f3a", RECEIPT_KEY.public_key().public_bytes_raw(), Kind.ED25519)
PAGE = (Path(issuer.relying.__file__).parent / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The folder that the examples are run in; the issuer's URL leads to a server here."""
    now = int(time.time())
    window = {"active_from": now - 86_400, "last_token_exp": now + 30 * 86_400}
    definition = submission().claims.benchmark_revision
    files: dict[str, bytes] = {
        ".eval_results/gsm8k.yaml": file_for(submission(), iat=now, nbf=now, exp=now + 3600).encode(),
        "revocations.jwt": revocation_list(iat=now, next_update=now + 86_400),
        "log-policy.txt": policy_text([LOG_KEY], [], "quorum none").encode(),
        "receipt-keys.json": jwks(RECEIPT_KEY),
        "revocation-keys.json": jwks(REVOCATION_KEY),
        f"benchmarks/openai/gsm8k/{definition}/eval.yaml": BENCHMARK_TEXT.encode(),
    }
    files["hub/acme/open-model/.eval_results/gsm8k.yaml"] = files[".eval_results/gsm8k.yaml"]
    for name, raw in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    keyfile.write(tmp_path / "receipt.pem", RECEIPT_KEY)
    with LocalProvider() as site:
        site.answers["/.well-known/jwks.json"] = lambda exchange: exchange.reply(200, jwks())
        site.answers["/.well-known/jwks-archive.json"] = lambda exchange: exchange.reply(200, jwks(**window))
        (trust,) = blocks("yaml")
        (tmp_path / "trust.yaml").write_text(trust.replace('url: "https://issuer.example', f'url: "{site.issuer}'))
        yield tmp_path


def run(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(place / "caches"), "XDG_STATE_HOME": str(place / "states")}
    return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)


def test_every_command_of_the_page_does_what_it_says(place: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 6
    codes = []
    for line in lines:
        name, *arguments = shlex.split(line)
        command = [sys.executable, "-m", "issuer", *arguments] if name == "issuer" else [name, *arguments]
        done = run(place, *command)
        codes.append(done.returncode)
        assert "Traceback" not in done.stderr, line
    assert codes == [0] * 6
    assert len(list((place / "receipts").iterdir())) == 1


def test_the_trust_file_of_the_page_is_read_with_all_that_it_names(place: Path) -> None:
    trust = trust_by_file(place / "trust.yaml", Documents(None, int(time.time())))
    assert trust.absent == ()
    assert trust.receipt_keys
    (one,) = trust.issuers.values()
    assert one.keys
    assert one.archive
    assert one.revocations
    assert one.keys_fetched_at
    assert one.archive_fetched_at


def test_the_python_of_the_page_runs(place: Path) -> None:
    (program,) = blocks("python")
    done = run(place, sys.executable, "-c", program.replace("1795000000", str(int(time.time()))))
    assert done.stdout == "['verified']\n", done.stderr


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"{MAX_CACHE_BYTES // 2**20} MiB" in PAGE
    assert f"{MAX_DOCUMENT_BYTES // 2**20} MiB" in PAGE
    assert LONGEST_AGE_S == 86_400
