"""`issuer verify FILE`: exit codes, receipts, definitions, the cache, and options that contradict each other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.io import keyfile
from tests.support.in_process import Done, run
from tests.support.make import (
    AUDIENCE,
    BENCHMARK,
    BENCHMARK_TEXT,
    ISSUER,
    KEY,
    NOW,
    PATH,
    RECEIPT_KEY,
    REPO,
    STRANGER,
    file_for,
    jwks,
    submission,
    two_metrics,
)
from tests.support.tree import write_trust


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


def issuer(*arguments: object, env: dict[str, str] | None = None) -> Done:
    return run(list(map(str, arguments)), env=env)


def verify(file: Path, trust: Path, *more: object, at: int | None = NOW, **env: str) -> Done:
    stated = () if at is None else ("--at", at)
    return issuer("verify", file, "--repo", REPO, "--trust", trust, *stated, *more, env=env)


GOOD = file_for(submission())
BARE = "\n".join(line for line in GOOD.splitlines() if "verify_token" not in line) + "\n"
UNNAMED = f'- dataset: {{id: "{BENCHMARK}"}}\n  value: 99.9\n  verify_token: "x.y.z"\n'
FALSE = GOOD.replace("20.9", "21.9")
WITH_VALUE = two_metrics()


def test_the_worst_entry_decides_the_exit_code(file: Path, trust: Path) -> None:
    allowed = ("--allow-unsigned",)
    exits: list[tuple[str | None, tuple[str, ...], int]] = [
        (GOOD, (), 0), (GOOD + BARE, (), 1), (GOOD + BARE, ("--require-token",), 1), (GOOD + BARE, allowed, 0),
        (GOOD + UNNAMED, (), 1), (GOOD + UNNAMED, allowed, 0), (BARE, (), 1), (BARE, allowed, 1), ("[]\n", (), 1),
        (FALSE, (), 1), (GOOD + FALSE, (), 1), (WITH_VALUE, (), 4), (GOOD + WITH_VALUE, (), 4),
        (FALSE + WITH_VALUE, (), 1), (BARE + WITH_VALUE, (), 1), (BARE + WITH_VALUE, allowed, 4), ("- [", (), 3),
        (None, (), 3), (GOOD, ("--trust", "none.yaml"), 3), (GOOD, ("--at", "yesterday"), 2),
        (GOOD, ("--receipts", "none"), 6),
    ]  # fmt: skip
    for text, more, code in exits:
        for form in ((), ("--json",)):
            file.unlink(missing_ok=True) if text is None else file.write_text(text)
            done = verify(file, trust, *form, *more)
            assert done.code == code, (text, more, done)
            if text == GOOD + BARE:
                named = "1 of 2 entries have no token" in done.err and "--allow-unsigned" in done.err
                assert (named, bool(done.err)) == (more != allowed, more != allowed), (more, done)


def test_contradicting_and_missing_options_are_usage_errors(file: Path, trust: Path) -> None:
    judged, trusted = ("--repo", REPO, "--trust", str(trust)), ("--trust", str(trust))
    for arguments in (
        (), (file,), (file, "--repo", REPO), (file, "--repo", REPO, "--issuer", ISSUER),
        (file, *judged, "--audience", AUDIENCE), (file, *judged, "--jobs", "2"),
        (file, *judged, "--receipt-key", "k.pem"), (file, *judged, "--receipts", "a", "--keep-receipts", "b"),
        (file, *judged, "--benchmark", "a", "--benchmarks", "b"), (file, *judged, "--at", "5", "--received-now"),
        (file.parent, *judged), (file.parent, "--path", PATH, *trusted),
        (file.parent, "--benchmark", "eval.yaml", *trusted), (file.parent, *trusted, "--jobs", "0"),
    ):  # fmt: skip
        done = issuer("verify", *arguments)
        assert (done.code, done.out) == (2, ""), (arguments, done)
    done = issuer("verify", file.with_name("none.yaml"))
    assert (done.code, f"{file.parent}/none.yaml: file.unreadable: no such file or folder" in done.err) == (3, True)


def test_the_schema_names_every_member_of_a_report(file: Path, trust: Path) -> None:
    schema = json.loads(issuer("verify", "--schema").out)
    document = json.loads(verify(file, trust, "--json").out)
    assert document["version"] == 1
    named = schema["$defs"]["Report"]["properties"].keys()
    assert all(report.keys() == named for report in document["reports"])


def test_a_file_outside_its_folder_fails_unless_its_path_is_given(file: Path, trust: Path) -> None:
    for name in ("docs", "x/.eval_results/y"):
        copy = file.parent.parent / name / file.name
        copy.parent.mkdir(parents=True)
        copy.write_bytes(file.read_bytes())
        done = verify(copy, trust)
        assert (done.code, "not verified: check 6 failed" in done.out) == (1, True), done.out
        assert f"here:  {copy.parent.name}/{file.name}" in done.out
        assert verify(copy, trust, "--path", PATH).code == 0
    assert verify(file.parent / ".." / ".eval_results" / file.name, trust).code == 0
    assert verify(file, trust, "--path", f"docs/{file.name}").code == 1


def test_a_required_definition_makes_check_10_pass_or_fail(tmp_path: Path, file: Path) -> None:
    trust, revision = write_trust(tmp_path, "require: [benchmark]\n"), str(submission().claims.benchmark_revision)
    kept = tmp_path / "benchmarks" / "openai/gsm8k" / revision / "eval.yaml"
    kept.parent.mkdir(parents=True)
    assert verify(file, trust).code == 4
    for definition, given in (
        (tmp_path / "eval.yaml", ("--benchmark", tmp_path / "eval.yaml")),
        (kept, ("--benchmarks", tmp_path / "benchmarks")),
    ):
        for text, code in ((BENCHMARK_TEXT, 0), (BENCHMARK_TEXT.replace("accuracy", "f1"), 1), ("- [", 3)):
            definition.write_text(text)
            done = verify(file, trust, *given)
            assert (done.code, f"{definition}:1:3" in done.err) == (code, code == 3), done


def test_a_key_set_is_fetched_once_and_its_age_is_shown(tmp_path: Path, file: Path) -> None:
    cache = ("--cache", tmp_path / "cache")
    with LocalProvider() as site:
        headers = {"Cache_Control": "max-age=1000", "ETag": '"a"'}
        site.answers["/jwks.json"] = lambda exchange: exchange.reply(200, jwks(), **headers)
        trust = write_trust_of(tmp_path, f'  - {{issuer: "{ISSUER}", keys: {{url: "{site.issuer}/jwks.json"}}}}\n')
        empty = verify(file, trust, *cache, "--offline")
        assert (empty.code, site.connections, "/issuers/0/keys" in empty.err) == (4, 0, True)
        for more in ((), (), ("--offline",)):
            done = verify(file, trust, *cache, *more)
            assert (done.code, "of the key set fetched" in done.out) == (0, True), done
        assert site.connections == 1
        assert verify(file, trust, XDG_CACHE_HOME=str(tmp_path / "xdg")).code == 0
    assert len(list((tmp_path / "xdg" / "eval-token-issuer").iterdir())) == 1
    plain = write_trust_of(tmp_path, f'  - {{issuer: "{ISSUER}", keys: {{url: "http://keys.example"}}}}\n')
    done = verify(file, plain)
    assert (done.code, "must be https" in done.err) == (3, True)


def write_trust_of(folder: Path, issuers: str) -> Path:
    trust = folder / "trust.yaml"
    trust.write_text(f'version: 1\naudience: "{AUDIENCE}"\nissuers:\n{issuers}')
    return trust


def test_one_of_several_issuers_without_frameworks_is_a_warning(tmp_path: Path, file: Path) -> None:
    (tmp_path / "keys.json").write_bytes(jwks())
    limited, names = ', frameworks: ["inspect-ai"]', (ISSUER, "https://other.example")
    for frameworks, warnings in ((("",), 0), ((limited, limited), 0), ((limited, ""), 1)):
        entries = [
            f'  - {{issuer: "{name}", keys: {{file: keys.json}}{more}}}\n'
            for name, more in zip(names, frameworks, strict=False)
        ]
        warned = verify(file, write_trust_of(tmp_path, "".join(entries))).err
        assert warned.count("may sign for every framework") == warnings
        assert warned.count("warning: https://other.example may sign for every framework") == warnings


def test_a_cache_state_or_receipt_key_that_cannot_be_trusted_exits_6(tmp_path: Path, file: Path, trust: Path) -> None:
    for name in ("state", "cache"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        done = verify(file, trust, f"--{name}", tmp_path / name)
        assert (done.code, "cache.unsafe" in done.err, f"another --{name}" in done.err) == (6, True, True), done.err
    (tmp_path / "receipts").mkdir()
    for name, wrong, text in (("a.pem", STRANGER, "not listed"), ("b.pem", KEY, "signs tokens")):
        keyfile.write(tmp_path / name, wrong)
        with_key = ("--keep-receipts", tmp_path / "receipts", "--receipt-key", tmp_path / name)
        done = verify(file, trust, *with_key)
        assert (done.code, done.out, text in done.err) == (6, "", True)
        (tmp_path / name).chmod(0o644)
        assert "key.unsafe" in verify(file, trust, *with_key).err


def test_verify_loads_no_http_no_processes_and_no_server() -> None:
    program = "import sys, issuer.cli.verify.command; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"urllib3", "multiprocessing", "concurrent.futures", "litestar", "asyncio"}
    assert not set(done.stdout.split()) & heavy
