"""`issuer verify FILE`: formats, exit codes, receipts, definitions, the cache, and what makes no sense together."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.io import keyfile
from issuer.token.wire import JWKS_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from tests.support.command import issuer
from tests.support.make import (
    AUDIENCE,
    BENCHMARK,
    BENCHMARK_TEXT,
    ISSUER,
    JTI,
    KEY,
    NOW,
    PATH,
    RECEIPT_KEY,
    REPO,
    REVOCATION_KEY,
    STRANGER,
    file_for,
    jwks,
    revocation_list,
    submission,
)
from tests.support.tree import write_trust

YEAR_S = 365 * 86_400


@pytest.fixture
def trust(tmp_path: Path) -> Path:
    (tmp_path / "receipt-keys.json").write_bytes(jwks(RECEIPT_KEY))
    return write_trust(tmp_path, "receipt_keys: {file: receipt-keys.json}\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / ".eval_results" / "gsm8k.yaml"
    path.parent.mkdir()
    path.write_text(file_for(submission()))
    return path


def fresh(path: Path, **members: Any) -> Path:
    """Write the file anew with a token of this very moment."""
    now = int(time.time())
    path.write_text(file_for(submission(**members), iat=now, nbf=now, exp=now + 3600))
    return path


def verify(file: Path, trust: Path, *more: object, at: int | None = NOW) -> subprocess.CompletedProcess[str]:
    stated = () if at is None else ("--at", at)
    return issuer("verify", file, "--repo", REPO, "--trust", trust, *stated, *more)


# -- exit codes -------------------------------------------------------------------------------------------------------

GOOD = file_for(submission())
BARE = "\n".join(line for line in GOOD.splitlines() if "verify_token" not in line) + "\n"
UNNAMED = f'- dataset: {{id: "{BENCHMARK}"}}\n  value: 99.9\n  verify_token: "x.y.z"\n'
FALSE = GOOD.replace("20.9", "21.9")
WITH_VALUE = GOOD.replace("  date:", "  value: 20.9\n  date:") if "  date:" in GOOD else GOOD + "  value: 20.9\n"


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("text", "more", "code"),
    [
        (GOOD, (), 0),
        (GOOD + BARE, (), 1),
        (GOOD + BARE, ("--require-token",), 1),
        (GOOD + BARE, ("--allow-unsigned",), 0),
        (GOOD + UNNAMED, (), 1),
        (GOOD + UNNAMED, ("--allow-unsigned",), 0),
        (BARE, (), 1),
        (BARE, ("--allow-unsigned",), 1),
        ("[]\n", (), 1),
        (FALSE, (), 1),
        (GOOD + FALSE, (), 1),
        (WITH_VALUE, (), 4),
        (GOOD + WITH_VALUE, (), 4),
        (FALSE + WITH_VALUE, (), 1),
        (BARE + WITH_VALUE, (), 1),
        (BARE + WITH_VALUE, ("--allow-unsigned",), 4),
        ("- [", (), 3),
        (None, (), 3),
        (GOOD, ("--trust", "none.yaml"), 3),
        (GOOD, ("--at", "yesterday"), 2),
        (GOOD, ("--receipts", "none"), 6),
    ],
)
def test_the_worst_decides_the_exit_code_in_every_format(
    file: Path, trust: Path, form: tuple[str, ...], text: str | None, more: tuple[str, ...], code: int
) -> None:
    file.unlink() if text is None else file.write_text(text)
    done = verify(file, trust, *form, *more)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_entry_without_a_token_beside_a_verified_one_is_a_no_that_says_so(
    file: Path, trust: Path, form: tuple[str, ...]
) -> None:
    file.write_text(GOOD + BARE.replace("20.9", "99.9"))
    done = verify(file, trust, *form)
    assert (done.returncode, "1 of 2 entries have no token" in done.stderr) == (1, True)
    assert "--allow-unsigned" in done.stderr
    assert verify(file, trust, *form, "--allow-unsigned").stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("{file}",),
        ("{file}", "--repo", REPO),
        ("{file}", "--repo", REPO, "--issuer", ISSUER),
        ("{file}", "--repo", REPO, "--trust", "{trust}", "--audience", AUDIENCE),
        ("{file}", "--repo", REPO, "--trust", "{trust}", "--jobs", "2"),
        ("{file}", "--repo", REPO, "--trust", "{trust}", "--receipt-key", "k.pem"),
        ("{file}", "--repo", REPO, "--trust", "{trust}", "--receipts", "a", "--keep-receipts", "b"),
        ("{file}", "--repo", REPO, "--trust", "{trust}", "--benchmark", "a", "--benchmarks", "b"),
        ("{folder}", "--repo", REPO, "--trust", "{trust}"),
        ("{file}", "--repo", REPO, "--trust", "{trust}", "--at", "5", "--received-now"),
        ("{folder}", "--path", PATH, "--trust", "{trust}"),
        ("{folder}", "--benchmark", "eval.yaml", "--trust", "{trust}"),
        ("{folder}", "--trust", "{trust}", "--jobs", "0"),
    ],
)
def test_what_makes_no_sense_together_is_a_usage_error(file: Path, trust: Path, arguments: tuple[str, ...]) -> None:
    names = {"file": file, "trust": trust, "folder": file.parent}
    done = issuer("verify", *(argument.format(**names) for argument in arguments))
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr


@pytest.mark.parametrize("more", [(), ("--repo", REPO)])
def test_a_path_that_is_not_there_is_said_before_anything_is_asked(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = issuer("verify", tmp_path / "none.yaml", *more)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{tmp_path}/none.yaml: file.unreadable: no such file or folder" in done.stderr


def test_the_schema_fits_what_is_printed(file: Path, trust: Path) -> None:
    schema = json.loads(issuer("verify", "--schema").stdout)
    document = json.loads(verify(file, trust, "--json").stdout)
    assert document["version"] == 1
    named = schema["$defs"]["Report"]["properties"].keys()
    assert all(report.keys() == named for report in document["reports"])


def test_a_file_outside_its_folder_fails_unless_it_is_said_where_the_copy_lies(file: Path, trust: Path) -> None:
    for name in ("docs", "x/.eval_results/y"):
        copy = file.parent.parent / name / file.name
        copy.parent.mkdir(parents=True)
        copy.write_bytes(file.read_bytes())
        done = verify(copy, trust)
        assert (done.returncode, "not verified: check 6 failed" in done.stdout) == (1, True), done.stdout
        assert f"here:  {copy.parent.name}/{file.name}" in done.stdout
        assert verify(copy, trust, "--path", PATH).returncode == 0
    assert verify(file.parent / ".." / ".eval_results" / file.name, trust).returncode == 0
    assert verify(file, trust, "--path", f"docs/{file.name}").returncode == 1


# -- receipts ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "receipt.pem"
    keyfile.write(path, RECEIPT_KEY)
    return path


@pytest.fixture
def receipts(tmp_path: Path) -> Path:
    folder = tmp_path / "receipts"
    folder.mkdir()
    return folder


def test_a_receipt_is_written_for_a_fresh_file_and_serves_it_ever_after(
    file: Path, trust: Path, key: Path, receipts: Path
) -> None:
    fresh(file)
    first = verify(file, trust, "--keep-receipts", receipts, "--receipt-key", key, at=None)
    assert first.returncode == 0, first.stdout + first.stderr
    (receipt,) = receipts.glob("*.jwt")
    late = int(time.time()) + YEAR_S
    assert verify(file, trust, at=late).returncode == 1
    again = verify(file, trust, "--receipts", receipts, at=late)
    assert again.returncode == 0, again.stdout
    assert "by a receipt" in again.stdout
    receipt.write_bytes(receipt.read_bytes()[:-4] + b"AAAA")
    spoilt = verify(file, trust, "--receipts", receipts, at=late)
    assert (spoilt.returncode, "receipt at hand is not usable" in spoilt.stdout) == (1, True)


def test_who_does_not_say_when_it_was_received_is_a_reader(file: Path, trust: Path) -> None:
    said = "good when it was issued; it is not known when this file was received"
    reader = verify(file, trust, at=None)
    assert (reader.returncode, f"  undecided: {said}\n" in reader.stdout) == (4, True), reader.stdout
    assert "for a reader; the time of receipt is unknown" in reader.stdout
    assert "This proves: the file and the token say the same, and the token was good when" in reader.stdout
    (report,) = json.loads(verify(file, trust, "--json", at=None).stdout)["reports"]
    assert (report["verdict"], report["reason"], report["at_from"]) == ("undecided", said, "unknown")
    for more, at in ((("--received-now",), None), ((), NOW + 3601)):
        done = verify(file, trust, *more, at=at)
        assert (done.returncode, "not verified: check 5 failed" in done.stdout) == (1, True)
    fresh(file)
    assert [verify(file, trust, *more, at=None).returncode for more in ((), ("--received-now",))] == [0, 0]


def test_no_receipt_is_written_under_a_stated_time_or_for_what_is_not_verified(
    file: Path, trust: Path, key: Path, receipts: Path
) -> None:
    with_key = ("--keep-receipts", receipts, "--receipt-key", key)
    assert verify(file, trust, *with_key).returncode == 0
    assert verify(file, trust, *with_key, at=None).returncode == 4  # a reader's: it has ended by now
    assert verify(file, trust, *with_key, "--received-now", at=None).returncode == 1
    fresh(file)
    assert verify(file, trust, "--receipts", receipts, at=None).returncode == 0
    file.write_text(file.read_text().replace("20.9", "21.9"))
    assert verify(file, trust, *with_key, at=None).returncode == 1
    assert list(receipts.glob("*.jwt")) == []


@pytest.mark.parametrize(("wrong", "said"), [(STRANGER, "not listed"), (KEY, "signs tokens")])
def test_a_key_whose_receipts_nobody_would_believe_is_refused_at_once(
    tmp_path: Path, file: Path, trust: Path, receipts: Path, wrong: Any, said: str
) -> None:
    keyfile.write(tmp_path / "wrong.pem", wrong)
    done = verify(file, trust, "--keep-receipts", receipts, "--receipt-key", tmp_path / "wrong.pem")
    assert (done.returncode, done.stdout, said in done.stderr) == (6, "", True)
    (tmp_path / "wrong.pem").chmod(0o644)
    assert (
        "key.unsafe" in verify(file, trust, "--keep-receipts", receipts, "--receipt-key", tmp_path / "wrong.pem").stderr
    )


# -- definitions ------------------------------------------------------------------------------------------------------


def test_a_definition_makes_check_10_pass_or_fail_where_it_is_required(tmp_path: Path, file: Path) -> None:
    trust = write_trust(tmp_path, "require: [benchmark]\n")
    definition = tmp_path / "eval.yaml"
    definition.write_text(BENCHMARK_TEXT)
    assert verify(file, trust).returncode == 4
    assert verify(file, trust, "--benchmark", definition).returncode == 0
    definition.write_text(BENCHMARK_TEXT.replace("accuracy", "f1"))
    assert verify(file, trust, "--benchmark", definition).returncode == 1
    definition.write_text("- [")
    assert verify(file, trust, "--benchmark", definition).returncode == 3


def test_a_broken_definition_in_a_folder_is_said_and_exits_3(tmp_path: Path, file: Path) -> None:
    trust = write_trust(tmp_path, "require: [benchmark]\n")
    revision = str(submission().claims.benchmark_revision)
    definition = tmp_path / "benchmarks" / "openai/gsm8k" / revision / "eval.yaml"
    definition.parent.mkdir(parents=True)
    definition.write_text(BENCHMARK_TEXT)
    assert verify(file, trust, "--benchmarks", tmp_path / "benchmarks").returncode == 0
    definition.write_text("- [")
    done = verify(file, trust, "--benchmarks", tmp_path / "benchmarks")
    assert (done.returncode, f"{definition}:1:3" in done.stderr) == (3, True)


# -- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def site() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        headers = {"Cache_Control": "max-age=1000", "ETag": '"a"'}
        provider.answers["/jwks.json"] = lambda exchange: exchange.reply(200, jwks(), **headers)
        yield provider


def test_a_key_set_is_fetched_once_and_its_age_is_said(tmp_path: Path, file: Path, site: LocalProvider) -> None:
    trust = tmp_path / "trust.yaml"
    trust.write_text(
        f'version: 1\naudience: "{AUDIENCE}"\nissuers:\n  - issuer: "{ISSUER}"\n    keys: {{url: "{site.issuer}/jwks.json"}}\n'
    )
    cache = ("--cache", tmp_path / "cache")
    empty = verify(file, trust, *cache, "--offline")
    assert (empty.returncode, site.connections) == (4, 0)
    assert "/issuers/0/keys" in empty.stderr
    for more in ((), (), ("--offline",)):
        done = verify(file, trust, *cache, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "of the key set fetched" in done.stdout
    assert site.connections == 1
    elsewhere = issuer(
        "verify", file, "--repo", REPO, "--trust", trust, "--at", NOW, env={"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    )
    assert elsewhere.returncode == 0
    assert len(list((tmp_path / "xdg" / "eval-token-issuer").iterdir())) == 1


def test_of_several_issuers_one_that_may_speak_for_every_framework_is_a_warning(tmp_path: Path, file: Path) -> None:
    def trusting(*frameworks: str) -> str:
        keys = tmp_path / "keys.json"
        keys.write_bytes(jwks())
        entries = [f'  - {{issuer: "{name}", keys: {{file: keys.json}}{more}}}\n'
                   for name, more in zip((ISSUER, "https://other.example"), frameworks, strict=False)]  # fmt: skip
        trust = tmp_path / "trust.yaml"
        trust.write_text(f'version: 1\naudience: "{AUDIENCE}"\nissuers:\n{"".join(entries)}')
        return verify(file, trust).stderr

    limited = ', frameworks: ["inspect-ai"]'
    assert "may sign for every framework" not in trusting("")
    assert "may sign for every framework" not in trusting(limited, limited)
    said = trusting(limited, "")
    assert said.count("may sign for every framework") == 1
    assert "warning: https://other.example may sign for every framework" in said


def test_one_issuer_is_asked_for_its_list_and_the_newest_is_remembered(
    tmp_path: Path, file: Path, site: LocalProvider
) -> None:
    def lists(**members: Any) -> None:
        raw = revocation_list(iss=site.issuer, iat=now, next_update=now + 60, **members)
        site.answers[REVOCATIONS_PATH] = lambda exchange: exchange.reply(200, raw, Cache_Control="no-cache")

    now = int(time.time())
    file.write_text(file_for(submission(), iss=site.issuer, iat=now, nbf=now, exp=now + 3600))
    site.answers |= {
        JWKS_PATH: lambda exchange: exchange.reply(200, jwks()),
        REVOCATION_KEYS_PATH: lambda exchange: exchange.reply(200, jwks(REVOCATION_KEY)),
    }
    by = ("--repo", REPO, "--issuer", site.issuer, "--audience", AUDIENCE, "--cache", tmp_path / "cache", "--state", tmp_path / "state")  # fmt: skip
    none = issuer("verify", file, *by)
    assert (none.returncode, "revocations not published by the issuer" in none.stdout) == (0, True), none.stdout
    lists(number=5, jti=[JTI])
    assert issuer("verify", file, *by).returncode == 1
    lists(number=4)
    back = issuer("verify", file, *by)
    assert (back.returncode, "the issuer has revoked this jti" in back.stdout) == (1, True)
    assert "refused, and the list that was seen before counts: its number is 4" in back.stderr


def test_a_state_folder_that_others_can_write_to_exits_6(tmp_path: Path, file: Path, trust: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    done = verify(file, trust, "--state", tmp_path / "state")
    assert (done.returncode, "cache.unsafe" in done.stderr, "another --state" in done.stderr) == (6, True, True)


def test_a_cache_that_others_can_write_to_exits_6(tmp_path: Path, file: Path, trust: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    done = verify(file, trust, "--cache", tmp_path / "cache")
    assert (done.returncode, "cache.unsafe" in done.stderr) == (6, True)


def test_a_trust_file_with_a_url_that_is_not_https_is_malformed(tmp_path: Path, file: Path) -> None:
    trust = tmp_path / "trust.yaml"
    trust.write_text(
        f'version: 1\naudience: "{AUDIENCE}"\nissuers:\n  - issuer: "{ISSUER}"\n    keys: {{url: "http://keys.example"}}\n'
    )
    done = verify(file, trust)
    assert (done.returncode, "must be https" in done.stderr) == (3, True)


# -- starting ---------------------------------------------------------------------------------------------------------


def test_judging_a_file_loads_no_http_no_processes_and_no_server() -> None:
    program = "import sys, issuer.cli.verify.command; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {"urllib3", "multiprocessing", "concurrent.futures", "litestar", "asyncio"}
    assert not loaded & heavy
