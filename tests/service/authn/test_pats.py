"""The folder of personal access tokens as the service reads it, and the callers of these tokens: real files, a fixed clock."""

import errno
import gc
import hashlib
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Refused, SetupError, Undecided
from issuer.identity import pat
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.io import files
from issuer.limits.sources import Allowance
from issuer.service.authn import bounds
from issuer.service.authn.pat_records import (
    DAY_S,
    MAX_BYTES,
    MAX_LIFE_S,
    Order,
    PatRecord,
    canonical_network,
    create,
    last_used,
    path_of,
    read_record,
    read_records,
    revoke,
)
from issuer.service.authn.pats import Pats, PatVerifier
from tests.support.disk import disk_calls
from tests.support.processes import in_child, take_descriptors

NOW = 1_795_251_600
HERE = "192.0.2.7"
PROVIDER = Provider("pat", "pat", "https://issuer.example", "https://issuer.example", (), 0, 0, 1, "discovery", ())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "pats"


def made(folder: Path, number: int = 0, **members: Any) -> tuple[str, str]:
    """Make a token of one account; return it and its public id."""
    given: dict[str, Any] = {
        "account": "nightly", "scopes": ("tokens:issue",), "networks": (), "life_s": 30 * DAY_S, **members,
    }  # fmt: skip
    now, random = given.pop("now", NOW), hashlib.sha512(str(number).encode()).digest()[: pat.RANDOM_BYTES]
    token, record = create(folder, Order(**given), now=now, random=random)
    return token, record.id


def rewrite(path: Path, **members: Any) -> None:
    """Change a record in place, as an editor does; a member that is `...` goes."""
    found = {**json.loads(path.read_bytes()), **members}
    path.write_text(json.dumps({name: value for name, value in found.items() if value is not ...}))


def verified(verifier: PatVerifier, token: str, now: int = NOW, source: str = HERE, retry_after_s: int = 0) -> Caller:
    """Drive the verifier, which never waits, to its end."""
    coroutine = verifier.verify(token, PROVIDER, now, Allowance(source, retry_after_s))
    try:
        coroutine.send(None)
    except StopIteration as done:
        found: Caller = done.value
        return found
    raise AssertionError("it waited")


def much_later_ns() -> int:
    """Return a time at which a folder that was changed now is no longer young."""
    return time.time_ns() + 10 * bounds.RACY_NS


def refused(verifier: PatVerifier, token: str, now: int = NOW, source: str = HERE) -> Code:
    with pytest.raises(Refused) as caught:
        verified(verifier, token, now, source)
    assert not caught.value.faults
    return caught.value.code


def other_secret(token: str) -> str:
    """Return a well-formed token with the id of another, and not its secret."""
    number = 0
    body = f"{token[:21]}{number:043}"
    return body + pat._checksum(body)


# -- a good token ------------------------------------------------------------------------------------------------------


def test_a_token_is_its_account_with_its_scopes_until_it_expires(folder: Path) -> None:
    token, public_id = made(folder, scopes=("tokens:issue", "other"))
    claims = {"account": "nightly", "token_id": public_id, "scope": "tokens:issue other"}
    caller = Caller(PROVIDER, claims, ("nonce", "pat", public_id), NOW, NOW + 30 * DAY_S)
    assert verified(PatVerifier(Pats(folder)), token) == caller
    assert verified(PatVerifier(Pats(folder)), token, retry_after_s=60) == caller, "its source is over its limit"


def test_two_tokens_of_one_account_have_separate_nonces(folder: Path) -> None:
    verifier = PatVerifier(Pats(folder))
    callers = [verified(verifier, made(folder, number)[0]) for number in range(2)]
    assert callers[0].claims["account"] == callers[1].claims["account"]
    assert callers[0].use_record("n" * 22) != callers[1].use_record("n" * 22)


# -- what is refused, and how --------------------------------------------------------------------------------------------


def test_a_mistyped_token_is_malformed_and_an_unregistered_one_unknown(folder: Path) -> None:
    token, public_id = made(folder)
    verifier = PatVerifier(Pats(folder))
    assert refused(verifier, token[:-1] + ("0" if token[-1] != "0" else "1")) is Code.IDENTITY_MALFORMED
    for guess in (pat.make(b"\x07" * pat.RANDOM_BYTES), other_secret(token)):
        assert refused(verifier, guess) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    verified(verifier, token)
    revoke(folder, public_id, NOW)
    assert refused(verifier, other_secret(token)) is Code.IDENTITY_CREDENTIAL_UNKNOWN, "a stranger learns nothing"


def test_a_revoked_token_is_inactive_at_once_for_every_worker(folder: Path) -> None:
    """The folder's time is set back after it: a worker that trusted it alone would accept the token for ever."""
    token, public_id = made(folder)
    workers = [PatVerifier(Pats(folder, much_later_ns)) for _ in range(3)]
    for worker in workers:
        verified(worker, token)
    before = folder.stat()
    revoke(folder, public_id, NOW + 1)
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    for worker in workers:
        assert refused(worker, token, NOW + 1) is Code.IDENTITY_INACTIVE


def test_the_log_has_the_id_of_a_refused_token_only_if_its_secret_was_right(folder: Path) -> None:
    """A leaked token that is still tried is in the log by its id; a guess is not."""
    cases: list[tuple[dict[str, Any], int, Code]] = [
        ({}, NOW + 30 * DAY_S, Code.IDENTITY_EXPIRED),
        ({}, NOW - 31, Code.IDENTITY_NOT_YET_VALID),
        ({"networks": ("198.51.100.0/24",)}, NOW, Code.IDENTITY_NETWORK_FORBIDDEN),
        ({}, NOW, Code.IDENTITY_INACTIVE),
    ]
    for number, (members, now, code) in enumerate(cases):
        token, public_id = made(folder, number, **members)
        if code is Code.IDENTITY_INACTIVE:
            revoke(folder, public_id, NOW)
        verifier = PatVerifier(Pats(folder))
        with capture_logs() as logs:
            assert refused(verifier, token, now) is code
            for guess in (other_secret(token), pat.make(b"\x07" * pat.RANDOM_BYTES), token[:-1]):
                refused(verifier, guess, now)
        assert logs == [
            {"event": "personal access token refused", "log_level": "warning", "token_id": public_id, "code": str(code)}
        ]


def test_a_token_is_valid_from_its_creation_until_the_second_of_its_end(folder: Path) -> None:
    token, _ = made(folder, life_s=DAY_S)
    verifier = PatVerifier(Pats(folder))
    verified(verifier, token, NOW + DAY_S - 1)
    assert refused(verifier, token, NOW + DAY_S) is Code.IDENTITY_EXPIRED
    verified(verifier, token, NOW - 30)
    assert refused(verifier, token, NOW - 31) is Code.IDENTITY_NOT_YET_VALID


def test_a_token_with_networks_is_refused_from_elsewhere(folder: Path) -> None:
    cases: list[tuple[tuple[str, ...], list[str], list[str]]] = [
        (("192.0.2.0/24",), ["192.0.2.0", "192.0.2.255"], ["192.0.3.0", "2001:db8::/64", "unknown", ""]),
        (("192.0.2.7/32",), ["192.0.2.7"], ["192.0.2.6"]),
        (("2001:db8::/32", "198.51.100.0/24"), ["2001:db8:1:2::/64", "198.51.100.1"], ["2001:db9::/64", "192.0.2.7"]),
        (("2001:db8::/64",), ["2001:db8::/64"], ["2001:db8:0:1::/64", "::/64"]),
        (("0.0.0.0/0",), ["192.0.2.7"], ["2001:db8::/64", "unknown"]),
        ((), ["unknown"], []),
    ]
    for number, (networks, good, bad) in enumerate(cases):
        token, _ = made(folder, number, networks=networks)
        verifier = PatVerifier(Pats(folder))
        for source in good:
            verified(verifier, token, source=source)
        for source in bad:
            assert refused(verifier, token, source=source) is Code.IDENTITY_NETWORK_FORBIDDEN, (networks, source)


def test_a_network_has_one_spelling() -> None:
    spellings = {
        "192.0.2.1": "192.0.2.1/32", "10.0.0.0/255.0.0.0": "10.0.0.0/8", "2001:DB8::/48": "2001:db8::/48",
        "192.0.2.1/24": None, "2001:db8::/65": None, "2001:db8::1": None, "::ffff:192.0.2.0/120": None,
        "192.0.2.0/33": None, "localhost": None, "": None, "192.0.2.0/24 ": None, "١٩٢.0.2.0/24": None,
    }  # fmt: skip
    assert {text: canonical_network(text) for text in spellings} == spellings


# -- the folder changes --------------------------------------------------------------------------------------------------


def test_a_token_is_known_as_soon_as_it_is_made(folder: Path) -> None:
    made(folder)
    verifiers = [PatVerifier(Pats(folder)), PatVerifier(Pats(folder, much_later_ns))]
    for number in range(1, 10):
        token, _ = made(folder, number)
        os.utime(folder, (number, number))  # as if the folder's clock had ticked
        for verifier in verifiers:
            verified(verifier, token)


def test_a_young_folder_is_read_again_because_its_clock_may_not_have_ticked(folder: Path) -> None:
    """Of two changes within a tick the second one does not show; two seconds are the coarsest tick that there is."""
    token, _ = made(folder)
    changed_ns = folder.stat().st_ctime_ns
    now_ns = changed_ns
    pats = Pats(folder, lambda: now_ns)

    def is_read() -> bool:
        return "listdir" in calls_of(lambda: pats.find("a" * 12, pat.digest(token)))

    again_ns = bounds.RACY_AGAIN_NS
    for moment_ns in (changed_ns - bounds.RACY_NS, changed_ns + bounds.RACY_NS - again_ns):
        now_ns = moment_ns
        assert (is_read(), is_read()) == (True, False)
        now_ns = moment_ns + again_ns - 1
        assert not is_read()
        now_ns = moment_ns + again_ns
        assert is_read()
    now_ns = changed_ns + 2 * bounds.RACY_NS
    assert (is_read(), is_read()) == (True, False)
    assert again_ns == 10**8


def test_guesses_cause_ten_readings_of_the_folder_a_second_at_most(folder: Path) -> None:
    """Also if the folder's time is ahead of this clock, as a file server's or after a correction."""
    for number, ahead_s in enumerate([3600, -3600, 1, 0]):
        token, _ = made(folder, number)
        now_ns = folder.stat().st_ctime_ns - ahead_s * 10**9
        pats = Pats(folder, lambda: now_ns)  # noqa: B023 (it is used in this turn)
        read = 0
        for _ in range(100):
            now_ns += 10**7
            read += "listdir" in calls_of(lambda: pats.find("a" * 12, pat.digest(token)))  # noqa: B023
        assert read <= (10 if abs(ahead_s) < 2 else 0)
        later, _ = made(folder, 10 + number)
        now_ns += bounds.RACY_AGAIN_NS
        verified(PatVerifier(pats), later)


def test_a_folder_or_record_that_comes_or_goes_is_noticed(folder: Path) -> None:
    verifier = PatVerifier(Pats(folder))
    assert refused(verifier, pat.make(bytes(pat.RANDOM_BYTES))) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    assert not folder.exists(), "none is made"
    token, public_id = made(folder)
    verified(verifier, token)
    folder.rename(folder.with_name("away"))
    assert refused(verifier, token) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    folder.with_name("away").rename(folder)
    verified(verifier, token)
    path_of(folder, public_id).unlink()
    assert refused(verifier, token) is Code.IDENTITY_CREDENTIAL_UNKNOWN


def test_a_record_repaired_in_place_is_known_again_after_a_second(folder: Path) -> None:
    """Not at once: a guess costs no more because some record is bad."""
    token, public_id = made(folder)
    path = path_of(folder, public_id)
    path.chmod(0o644)
    now_ns = much_later_ns()
    verifier = PatVerifier(Pats(folder, lambda: now_ns))
    assert refused(verifier, token) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    path.chmod(0o600)
    now_ns += bounds.BAD_AGAIN_NS - 1
    assert "listdir" not in calls_of(lambda: refused(verifier, token))
    now_ns += 1
    verified(verifier, token)


def test_a_guess_opens_no_record_of_an_unchanged_folder(folder: Path) -> None:
    for number in range(30):
        made(folder, number)
    later = much_later_ns()
    pats = Pats(folder, lambda: later)
    guess = pat.make(b"\x07" * pat.RANDOM_BYTES)
    steps = calls_of(lambda: pats.find(str(pat.token_id(guess)), pat.digest(guess)))
    assert steps.count("stat") == 1
    assert not {"open", "listdir"} & set(steps)


def test_half_a_record_is_never_seen_while_records_are_written(folder: Path) -> None:
    """A writer revokes and makes as fast as it can: each token is good or revoked, never unknown."""
    tokens = [made(folder, number) for number in range(20)]
    verifier = PatVerifier(Pats(folder))
    child = os.fork()
    if child == 0:
        try:
            for number, (_, public_id) in enumerate(tokens):
                revoke(folder, public_id, NOW)
                made(folder, 100 + number)
        finally:
            os._exit(0)
    codes: set[Code] = set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        for token, _ in tokens:
            with suppress(Refused):
                verified(verifier, token)
                continue
            codes.add(refused(verifier, token))
    assert codes <= {Code.IDENTITY_INACTIVE}
    assert {refused(verifier, token) for token, _ in tokens} == {Code.IDENTITY_INACTIVE}


# -- bad records ---------------------------------------------------------------------------------------------------------

Spoil = Callable[[Path], object]


def edited(**members: Any) -> Spoil:
    return lambda path: rewrite(path, **members)


def made_as(make: Spoil) -> Spoil:
    """Return a change that makes something in place of a record, which goes to `.real` beside it."""

    def spoil(path: Path) -> None:
        path.rename(path.with_name(".real"))
        make(path)

    return spoil


def twice(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"version"', b'"account": "admin", "version"'))


TEN_YEARS = 3650 * DAY_S
SPOILT: dict[str, tuple[Spoil, Code, str]] = {
    "empty": (lambda path: path.write_bytes(b""), Code.FILE_SYNTAX, ""),
    "half of it": (lambda path: path.write_bytes(path.read_bytes()[:80]), Code.FILE_SYNTAX, ""),
    "no JSON": (lambda path: path.write_bytes(b"\xff\xfe"), Code.FILE_ENCODING, ""),
    "a list": (lambda path: path.write_bytes(b"[]"), Code.FILE_SCHEMA, ""),
    "huge": (lambda path: path.write_bytes(path.read_bytes() + b" " * MAX_BYTES), Code.FILE_TOO_LARGE, ""),
    "deep": (edited(scopes=[["tokens:issue"]]), Code.FILE_TOO_LARGE, "/scopes/0"),
    "a member twice": (twice, Code.FILE_DUPLICATE_KEY, "/account"),
    "another version": (edited(version=2), Code.FILE_SCHEMA, "/version"),
    "no version": (edited(version=...), Code.FILE_SCHEMA, ""),
    "an unknown member": (edited(admin=True), Code.FILE_UNKNOWN_MEMBER, "/admin"),
    "a missing member": (edited(expires=...), Code.FILE_SCHEMA, ""),
    "another id": (edited(id="a" * 12), Code.FILE_RULE, "/id"),
    "an account with a line break": (edited(account="nightly\n"), Code.FILE_RULE, "/account"),
    "an account of nothing": (edited(account=""), Code.FILE_RULE, "/account"),
    "no scope": (edited(scopes=[]), Code.FILE_SCHEMA, "/scopes"),
    "two scopes in one": (edited(scopes=["a tokens:issue"]), Code.FILE_RULE, "/scopes/0"),
    "a network with host bits": (edited(networks=["192.0.2.1/24"]), Code.FILE_RULE, "/networks/0"),
    "a bad second network": (edited(networks=["192.0.2.0/24", "all"]), Code.FILE_RULE, "/networks/1"),
    "a network of one IPv6 address": (edited(networks=["2001:db8::1/128"]), Code.FILE_RULE, "/networks/0"),
    "ten years": (edited(expires=NOW + TEN_YEARS), Code.FILE_RULE, "/expires"),
    "a second over 90 days": (edited(expires=NOW + MAX_LIFE_S + 1), Code.FILE_RULE, "/expires"),
    "no life at all": (edited(expires=NOW), Code.FILE_RULE, "/expires"),
    "milliseconds": (edited(created=NOW * 1000, expires=NOW * 1000 + DAY_S), Code.FILE_SCHEMA, "/created"),
    "a time as text": (edited(expires=str(NOW + DAY_S)), Code.FILE_SCHEMA, "/expires"),
    "not a number": (edited(expires=float("nan")), Code.FILE_NUMBER, "/expires"),
    "revoked as a word": (edited(revoked=True), Code.FILE_SCHEMA, "/revoked"),
    "revoked and not said when": (edited(revoked=None), Code.FILE_SCHEMA, "/revoked"),
    "a digest in capitals": (lambda p: rewrite(p, sha256=json.loads(p.read_bytes())["sha256"].upper()), Code.FILE_RULE, "/sha256"),
    "no digest": (edited(sha256=""), Code.FILE_RULE, "/sha256"),
    "mode 0640": (lambda path: path.chmod(0o640), Code.FILE_UNREADABLE, ""),
    "mode 0602": (lambda path: path.chmod(0o602), Code.FILE_UNREADABLE, ""),
    "a link": (made_as(lambda path: path.symlink_to(path.with_name(".real"))), Code.FILE_UNREADABLE, ""),
    "a folder": (made_as(partial(Path.mkdir, mode=0o700)), Code.FILE_UNREADABLE, ""),
    "a pipe": (made_as(partial(os.mkfifo, mode=0o600)), Code.FILE_UNREADABLE, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_bad_record_is_unknown_and_logged_with_its_place_and_no_other_matters(folder: Path, name: str) -> None:
    spoil, code, pointer = SPOILT[name]
    token, public_id = made(folder)
    good, good_id = made(folder, 1)
    path = path_of(folder, public_id)
    # A change in place does not show in the folder: its second reader still knows the digest, and reads the record.
    much_later = much_later_ns()
    known, idle = PatVerifier(Pats(folder)), PatVerifier(Pats(folder, lambda: much_later))
    verified(known, token)
    before = folder.stat()
    spoil(path)
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert refused(idle, token) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    with pytest.raises(InputError) as caught:
        read_record(path)
    assert (caught.value.code, caught.value.place.file, caught.value.pointer) == (code, str(path), pointer)
    with capture_logs() as logs:
        started = PatVerifier(Pats(folder))
        for verifier in (known, started, started):
            assert refused(verifier, token) is Code.IDENTITY_CREDENTIAL_UNKNOWN
            verified(verifier, good)
    logged = [entry for entry in logs if entry["file"] == path.name]
    assert len(logged) == 2, "once by each, not at every request"
    assert all(entry["problem"].startswith(str(code)) for entry in logged)
    assert pat.digest(token).hex() not in str(logs) + str(caught.value)
    assert [record.id for record in read_records(folder)[0]] == [good_id]
    assert [error.place.file for error in read_records(folder)[1]] == [str(path)]


def test_foreign_names_are_logged_and_drafts_and_last_uses_are_no_records(folder: Path) -> None:
    token, public_id = made(folder)
    raw = path_of(folder, public_id).read_bytes()
    (folder / f".{public_id}.4711").write_bytes(b"{")
    verifier = PatVerifier(Pats(folder))
    with capture_logs() as logs:
        verified(verifier, token)
        verified(verifier, token)
    assert (logs, read_records(folder)[1]) == ([], [])
    names = [
        "README", "aaaaaaaaaaaa.json.bak", "aaaaaaaaaaa.json", "aaaaaaaaaaaaa.json", "aaaaaaaaaaaa.JSON",
        "aaaaaa aaaaa.json", "aaaaaaaaaaaa.json\n", os.fsdecode(b"\xff\xfe.json"), "ａaaaaaaaaaaa.json",
    ]  # fmt: skip
    for name in names:
        files.create(folder / name, raw)
    with capture_logs() as logs:
        verified(PatVerifier(Pats(folder)), token)
    assert [entry["problem"] for entry in logs] == ["file.rule"] * len(names)
    assert len(read_records(folder)[1]) == len(names)


def test_a_copied_record_opens_nothing_under_another_id(folder: Path) -> None:
    """A neighbour's digest under my id, or mine under a neighbour's: the digest is over the id, too."""
    token, public_id = made(folder)
    other, other_id = made(folder, 1, account="somebody")
    digest = json.loads(path_of(folder, other_id).read_bytes())["sha256"]
    rewrite(path_of(folder, public_id), sha256=digest)
    verifier = PatVerifier(Pats(folder))
    for guess in (token, other[:8] + public_id + other[20:], token[:21] + other[21:]):
        body = guess[:-6]
        assert refused(verifier, body + pat._checksum(body)) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    assert (verified(verifier, other)).claims["account"] == "somebody"


# -- a bad folder --------------------------------------------------------------------------------------------------------


def test_a_folder_that_others_may_enter_is_not_used(folder: Path) -> None:
    token, public_id = made(folder)
    verifier = PatVerifier(Pats(folder))
    for mode in (0o750, 0o701, 0o707, 0o720, 0o702):
        folder.chmod(mode)
        for refuse in (lambda: Pats(folder), lambda: read_records(folder), lambda: made(folder, 1)):
            with pytest.raises(SetupError, match=f"chmod 700 {folder}"):
                refuse()
        with pytest.raises(SetupError):
            revoke(folder, public_id, NOW)
        with capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(Undecided) as caught:
                    verified(verifier, token)
                assert caught.value.code is Code.DEPENDENCY_CREDENTIALS
        assert ["chmod 700" in entry["problem"] for entry in logs] == [True]
        folder.chmod(0o700)
        verified(verifier, token)
    with pytest.raises(SetupError, match="not a folder"):
        Pats(path_of(folder, public_id))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_record_or_folder_of_another_user_is_not_believed(folder: Path) -> None:
    token, public_id = made(folder)
    os.chown(path_of(folder, public_id), 12345, -1)
    assert refused(PatVerifier(Pats(folder)), token) is Code.IDENTITY_CREDENTIAL_UNKNOWN
    os.chown(folder, 12345, -1)
    with pytest.raises(SetupError, match="another user"):
        Pats(folder)


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_service_without_free_descriptors_decides_nothing(folder: Path, is_idle: bool) -> None:
    """A 401 would make an honest job give up its token."""
    token, public_id = made(folder)
    later = much_later_ns() if is_idle else time.time_ns()
    verifier = PatVerifier(Pats(folder, lambda: later))

    def decided() -> str:
        take_descriptors()
        with pytest.raises(IssuerError) as error:
            verified(verifier, token)
        with pytest.raises(OSError) as private:
            files.read(path_of(folder, public_id), MAX_BYTES, private=True)
        return f"{error.value.code} {private.value.errno}"

    assert in_child(decided) == f"{Code.DEPENDENCY_CREDENTIALS} {errno.EMFILE}"
    verified(verifier, token)


# -- last use ------------------------------------------------------------------------------------------------------------


def test_the_last_use_is_recorded_to_the_minute(folder: Path) -> None:
    token, public_id = made(folder)
    verifier = PatVerifier(Pats(folder))
    assert last_used(folder, public_id) is None
    for now, noted in ((NOW, NOW), (NOW + 59, NOW), (NOW + 60, NOW + 60), (NOW + 61, NOW + 60)):
        verified(verifier, token, now)
        assert last_used(folder, public_id) == noted
    path = folder / "used" / public_id
    os.utime(path, (NOW + TEN_YEARS,) * 2)
    verified(verifier, token, NOW + 62)
    assert last_used(folder, public_id) == NOW + 62, "a clock was wrong: or it would be used for years"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert path.read_bytes() == b""
    before = folder.stat().st_mtime_ns
    verified(verifier, token, NOW + 122)
    assert folder.stat().st_mtime_ns == before, "no reader lists it again"


def test_a_refused_token_has_not_been_used(folder: Path) -> None:
    token, public_id = made(folder, networks=("198.51.100.0/24",))
    verifier = PatVerifier(Pats(folder))
    for bad, now in ((token, NOW), (other_secret(token), NOW), (token, NOW + MAX_LIFE_S)):
        refused(verifier, bad, now)
    assert last_used(folder, public_id) is None


def pipe_of_long_ago(path: Path) -> None:
    os.mkfifo(path)
    os.utime(path, (0, 0))


def test_a_use_that_cannot_be_recorded_refuses_no_caller_and_is_logged_once(folder: Path, tmp_path: Path) -> None:
    token, public_id = made(folder)
    used = folder / "used"
    obstacles: list[tuple[Path, Callable[[Path], None]]] = [
        (used, Path.touch),
        (used / public_id, lambda path: path.symlink_to(tmp_path / "elsewhere")),
        (used / public_id, pipe_of_long_ago),
    ]
    for path, obstruct in obstacles:
        path.parent.mkdir(exist_ok=True)
        obstruct(path)
        verifier = PatVerifier(Pats(folder))
        with capture_logs() as logs:
            for minute in range(3):
                verified(verifier, token, NOW + 60 * minute)
        assert [entry["file"] for entry in logs] == ["used"], path
        path.unlink()
    assert not (tmp_path / "elsewhere").exists()


# -- the same work for every guess ---------------------------------------------------------------------------------------


def calls_of(work: Callable[[], object]) -> list[str]:
    """Return the names of all functions that the work calls, C functions too, in order."""
    found: list[str] = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)
        elif event == "c_call":
            found.append(function.__name__)

    gc.disable()  # a collection calls functions, too
    sys.setprofile(note)
    try:
        with suppress(Refused):
            work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def test_an_unknown_id_and_a_wrong_secret_take_the_same_steps(folder: Path) -> None:
    """Timing does not reveal which ids exist; `python -m tests.bench` measures it."""
    token, _ = made(folder)
    later = time.time_ns() + 10 * bounds.RACY_NS
    verifier = PatVerifier(Pats(folder, lambda: later))

    def guessed(guess: str) -> Callable[[], object]:
        return lambda: verified(verifier, guess)

    unknown, wrong = pat.make(b"\x07" * pat.RANDOM_BYTES), other_secret(token)
    for guess in (unknown, wrong):  # for imports and caches
        with suppress(Refused):
            guessed(guess)()
    steps = calls_of(guessed(unknown))
    assert steps == calls_of(guessed(wrong))
    assert steps.count("compare_digest") == 1
    assert "openssl_sha256" in steps


# -- what is written -----------------------------------------------------------------------------------------------------


def test_records_and_their_folders_are_readable_by_their_owner_alone(folder: Path) -> None:
    for number, umask in enumerate((0o000, 0o022, 0o277)):
        before = os.umask(umask & 0o077)
        try:
            _, public_id = made(folder, number)
            os.umask(umask)
            revoke(folder, public_id, NOW)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path_of(folder, public_id).stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        shutil.rmtree(folder.parent)


def test_a_record_holds_the_digest_and_no_part_of_the_secret(folder: Path) -> None:
    token, public_id = made(folder, 12345)
    text = path_of(folder, public_id).read_text()
    assert pat.digest(token).hex() in text
    assert token not in text
    assert all(token[at : at + 8] not in text for at in range(21, len(token) - 8))
    assert list(folder.iterdir()) == [path_of(folder, public_id)], "no draft is left"


def test_a_draft_of_a_crash_is_replaced_and_never_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    for number in range(2):
        _, public_id = made(folder, number)
        draft = folder / f".{public_id}.{os.getpid()}"
        draft.write_bytes(b"half of") if number else draft.symlink_to(tmp_path / "elsewhere")
        assert revoke(folder, public_id, NOW).revoked == NOW
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"


def test_a_record_that_would_not_be_read_is_not_written(folder: Path) -> None:
    many_networks = ("192.0.2.0/24",) * 257
    orders: list[dict[str, Any]] = [
        {"account": "No"}, {"account": ""}, {"scopes": ("a",) * 33}, {"networks": many_networks}, {"scopes": ()},
        {"scopes": ("a b",)}, {"networks": ("192.0.2.1/24",)}, {"life_s": MAX_LIFE_S + 1}, {"life_s": 0},
    ]  # fmt: skip
    for members in orders:
        with pytest.raises(InputError):
            made(folder, **members)
    assert list(folder.iterdir()) == []


def test_a_token_and_its_revocation_are_synced_and_a_second_one_changes_nothing(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    assert disk_calls(lambda: made(folder)) == ["file", "rename", "folder"]
    (record,), _ = read_records(folder)
    assert disk_calls(lambda: revoke(folder, record.id, NOW + 1)) == ["file", "rename", "folder"]
    before = path_of(folder, record.id).read_bytes()
    assert revoke(folder, record.id, NOW + 2).revoked == NOW + 1
    assert path_of(folder, record.id).read_bytes() == before


def test_records_are_listed_oldest_first(folder: Path) -> None:
    ids = [made(folder, number, now=NOW - number)[1] for number in range(3)]
    good, bad = read_records(folder)
    assert ([record.id for record in good], bad) == (ids[::-1], [])
    assert all(isinstance(record, PatRecord) for record in good)
