"""`issuer log` from outside, as people and machines call it: output, files, exit codes."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from issuer.relying.logs.proof import sought_of
from issuer.results.entry import write_entry
from issuer.service.log.database.sqlite import SqliteDatabase
from issuer.service.log.database.store import LeafKey, StoredLeaf
from issuer.tlog.leaf import TokenLeaf, read_leaf, token_digest
from issuer.tlog.merkle import leaf_hash
from issuer.tlog.note import Note
from issuer.tlog.proof import parse_proof
from tests.support import make
from tests.support.command import clean
from tests.support.in_process import Done, run
from tests.support.log_store import append, created, token
from tests.support.public_log import INFO, serving
from tests.support.tlog import ANNOUNCED, ORIGIN, WITNESSES, LogSite, Tree, key_leaf, no_leaf, policy_text, token_leaf

NOW = int(time.time())
DRAWN = "\x1b[2Jverified"


def log_command(*arguments: object) -> Done:
    return run(["log", *map(str, arguments)])


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "issuer", "log", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean())


def tree_of(*more: bytes, count: int = 300) -> Tree:
    tokens = (token_leaf(number, iat=NOW, exp=NOW + 3600) for number in range(count))
    return Tree([*ANNOUNCED, *tokens, *more], time=NOW)


TREE = tree_of()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.txt"
    path.write_text(policy_text())
    return path


def lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def write_database(path: Path, leaves: Sequence[bytes], cosigned: dict[int, Note], more: int = 0) -> Path:
    """Write the database of a log with these leaves and checkpoints, and some more leaves."""
    database = SqliteDatabase(path)
    store = created(database)
    append(store, list(map(entry_of, leaves)))
    database.begin()
    for size, note in cosigned.items():
        store.keep_cosigned(size, note.to_bytes())
    database.commit()
    append(store, [token(number) for number in range(more)])
    database.close()
    return path


def entry_of(raw: bytes) -> StoredLeaf:
    leaf = read_leaf(raw)
    if isinstance(leaf, TokenLeaf):
        key = LeafKey("token", leaf.iat, leaf.token)
    else:
        key = LeafKey("key", name=hashlib.sha256(raw).digest())
    return StoredLeaf(key, raw, leaf_hash(raw))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- verify -------------------------------------------------------------------------------------------------------------


def test_verify_rebuilds_the_tree_counts_leaves_by_kind_and_refuses_malformed_ones(
    tmp_path: Path, policy: Path
) -> None:
    with LogSite(TREE.files()) as site:
        for source in (site.url, TREE.write(tmp_path / "log")):
            done = log_command("verify", source, "--policy", policy)
            assert done.code == 0, done.err
            assert f"{ORIGIN}: 302 leaves, root {TREE.root().hex()}, witnessed " in done.out
            assert "300  eval-token-issuer/token/v1" in done.out
            assert "good: the leaves lead to the signed root" in done.out
    later = tree_of(b"eval-token-issuer/token/v2\niss x\n", b"other/kind\n").write(tmp_path / "later")
    done = log_command("verify", later, "--policy", policy, "--json")
    assert (done.code, json.loads(done.out)["unknown"]) == (0, {"eval-token-issuer/token/v2": 1, "other/kind": 1})
    broken = tree_of(f"{DRAWN}\n".encode(), b"eval-token-issuer/key/v1\niss x\n").write(tmp_path / "broken")
    done = log_command("verify", broken, "--policy", policy)
    assert (done.code, "not good: 2 malformed leaves. The first is leaf 302: " in done.out) == (1, True)
    assert "\x1b" not in done.out


def test_verify_exits_by_the_kind_of_defect(tmp_path: Path, policy: Path) -> None:
    changed = TREE.write(tmp_path / "changed")
    raw = (changed / "tile/entries/000").read_bytes()
    (changed / "tile/entries/000").write_bytes(raw[:-2] + b"x\n")
    stranger = Tree(ANNOUNCED, key=make.STRANGER, time=NOW).write(tmp_path / "stranger")
    alone = TREE.write(tmp_path / "alone")
    (alone / "checkpoint").write_bytes(TREE.note(witnesses=WITNESSES[:1]).to_bytes())
    (tmp_path / "other").write_bytes(b"x" * 5000)
    with LogSite() as site:
        for source, code, text in (
            (changed, 1, "log.unverified: leaf 255 does not match its hash"),
            (stranger, 1, "log.unverified"),
            (alone, 4, "too few witnesses"),
            (tmp_path, 3, ""),
            (tmp_path / "none", 3, ""),
            ("http://log.example", 6, ""),
            (site.url, 3, ""),
            (write_database(tmp_path / "log.sqlite", TREE.leaves, {}), 3, ""),  # no cosigned checkpoint
            (tmp_path / "other", 4, "log.unavailable"),
            ("postgresql://me:secret@127.0.0.1:1/log", 4, ""),
        ):
            done = log_command("verify", source, "--policy", policy)
            assert (done.code, text in done.err, "secret" in done.err) == (code, True, False), (source, done)
    policy.write_text("quorum\n")
    done = log_command("verify", TREE.write(tmp_path / "log"), "--policy", policy)
    assert (done.code, f"{policy}:1:1: log.policy" in done.err) == (3, True)


# -- a log that is served -----------------------------------------------------------------------------------------------


def test_every_command_reads_a_log_that_a_service_serves(tmp_path: Path, policy: Path) -> None:
    tree = Tree(TREE.leaves, origin=INFO.origin, time=NOW)
    policy.write_text(policy_text(logs=[tree.signer]))
    file = write_database(tmp_path / "log.sqlite", tree.leaves, {200: tree.note(200), 302: tree.note()}, more=9)
    judged = ("--policy", policy)
    with serving(str(file)) as live:
        url = f"http://127.0.0.1:{live.port}/log"
        for command in (
            ("verify", url, *judged),
            ("monitor", url, *judged, "--state", tmp_path / "state"),
            ("export", tmp_path / "mirror", "--from", url, *judged),
            ("proof", url, *judged, "--iat", NOW, "--token", (100).to_bytes(32).hex(), "--out", tmp_path / "proof"),
            ("verify", tmp_path / "mirror", *judged),
        ):
            done = log_command(*command)
            assert done.code == 0, (command, done)
        absent = log_command("proof", url, *judged, "--iat", NOW, "--token", "f" * 64)
    assert (absent.code, "the log has no leaf of this token" in absent.err) == (1, True)
    assert (tmp_path / "proof").read_bytes() == tree.proof(102, 200), "under the first checkpoint over it"
    assert files_of(tmp_path / "mirror") == tree.files()


# -- export -------------------------------------------------------------------------------------------------------------


def test_export_continues_a_copy_or_copies_a_database_and_refuses_a_fork(tmp_path: Path, policy: Path) -> None:
    folder = tmp_path / "copy"
    with LogSite(TREE.files(200)) as site:
        first = log_command("export", folder, "--from", site.url, "--policy", policy)
        site.files = TREE.files()
        second = log_command("export", folder, "--from", site.url)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert ("without --policy" in second.err, "102 new leaves" in second.out) == (True, True)
    assert log_command("verify", f"file:{folder}", "--policy", policy).code == 0
    assert log_command("export", tmp_path / "again", "--from", folder, "--policy", policy).code == 0
    fork = tree_of(count=299).write(tmp_path / "fork")
    assert log_command("export", folder, "--from", fork).code == 1
    # A sequencer's database: its tree has grown since the last checkpoint that reached the quorum.
    file = write_database(tmp_path / "log.sqlite", TREE.leaves, {302: TREE.note(), 300: TREE.note(300)}, more=7)
    done = log_command("export", tmp_path / "mirror", "--from", file, "--policy", policy)
    assert (done.code, files_of(tmp_path / "mirror") == TREE.files()) == (0, True), done.err
    assert log_command("verify", file, "--policy", policy).code == 0


# -- monitor ------------------------------------------------------------------------------------------------------------


def test_monitor_prints_the_leaves_of_an_integration(tmp_path: Path, policy: Path) -> None:
    with LogSite(TREE.files(3)) as site:
        kept = ("--policy", policy, "--state", tmp_path / "state")
        command = ("monitor", site.url, *kept, "--integration", "inspect-ai")
        first = log_command(*command, "--once")
        site.files = TREE.files()
        second = log_command(*command)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert [line["seen"] for line in lines(first)] == ["key", "policy", "token", "checkpoint"]
    assert lines(first)[2]["leaf"] == {
        "iss": make.ISSUER, "sub": "inspect-ai", "kid": make.KID, "iat": NOW, "exp": NOW + 3600,
        "policy": "sha256:" + "0" * 64, "token": "0" * 64,
    }  # fmt: skip
    *leaves, last = lines(second)
    assert [line["index"] for line in leaves] == list(range(3, 302))
    head = {"origin": ORIGIN, "size": 302, "root": TREE.root().hex(), "witnessed": NOW}
    assert last == {"seen": "checkpoint", **head, "alarms": 0}


def test_an_alarm_is_a_line_of_json_and_exit_code_1(tmp_path: Path, policy: Path) -> None:
    stolen = tree_of(key_leaf(state="revoked"), token_leaf(999, iat=NOW, exp=NOW + 9), f"x{DRAWN}\n".encode())
    state = tmp_path / "state"
    done = log_command("monitor", stolen.write(tmp_path / "log"), "--policy", policy, "--state", state)
    alarms = [(line["alarm"], line["index"]) for line in lines(done) if "alarm" in line]
    assert (done.code, alarms) == (1, [("token.kid_revoked", 303), ("leaf.malformed", 304)])
    assert ("\x1b" in done.out, state.stat().st_mode & 0o777) == (False, 0o600)
    forked = log_command("monitor", TREE.write(tmp_path / "fork"), "--policy", policy, "--state", state)
    (line,) = lines(forked)
    assert (forked.code, line["alarm"], len(line["notes"])) == (1, "checkpoint.shrinks", 2)


def test_monitor_counts_leaves_whose_tokens_the_integration_lacks(tmp_path: Path, policy: Path) -> None:
    tokens, token = tmp_path / "tokens", make.token_for(make.submission())
    tokens.mkdir()
    (tokens / "a.jwt").write_text(token)
    leaf = token_leaf(token=token_digest(token.rpartition(".")[0].encode()))
    log = tree_of(leaf, count=2).write(tmp_path / "log")
    command = ("monitor", log, "--policy", policy, "--integration", "inspect-ai", "--tokens", tokens)
    done = log_command(*command, "--max-unmatched", 1, "--state", tmp_path / "1")
    (alarm,) = (line for line in lines(done) if "alarm" in line)
    assert (done.code, alarm["alarm"], "2 tokens of inspect-ai" in alarm["detail"]) == (1, "tokens.unmatched", True)
    assert log_command(*command, "--max-unmatched", 2, "--state", tmp_path / "2").code == 0


@pytest.mark.long
def test_monitor_follows_a_log_until_an_alarm(tmp_path: Path, policy: Path) -> None:
    """It waits while the log lacks its quorum."""
    folder = TREE.write(tmp_path / "log")
    (folder / "checkpoint").write_bytes(TREE.note(witnesses=()).to_bytes())
    with started("monitor", folder, "--policy", policy, "--state", tmp_path / "state", "--every", 1) as child:
        assert child.stdout is not None
        assert "too few witnesses" in json.loads(child.stdout.readline())["undecided"]
        (folder / "checkpoint").write_bytes(TREE.files()["checkpoint"])
        while "size" not in (line := json.loads(child.stdout.readline())):
            assert "undecided" in line or "seen" in line
        assert line["size"] == 302
        tree_of(key_leaf(state="archived"), token_leaf(1000, iat=NOW, exp=NOW + 9)).write(folder)
        left = child.stdout.read().splitlines()
        assert child.wait(30) == 1
    assert "token.kid_archived" in [json.loads(line).get("alarm") for line in left]


# -- proof --------------------------------------------------------------------------------------------------------------


def test_proof_writes_a_verified_proof_beside_the_file(tmp_path: Path, policy: Path) -> None:
    item, file = make.submission(), tmp_path / "gsm8k.yaml"
    token = make.token_for(item, log=ORIGIN)
    sought = sought_of(token)
    assert sought.leaf is not None
    tree = tree_of(sought.leaf.to_bytes(), token_leaf(1000))
    file.write_text(write_entry(item.form, token))
    path = f"proof?iat={sought.iat}&token={sought.token.hex()}"
    by_digest = ("--policy", policy, "--iat", sought.iat, "--token", sought.token.hex())
    by_file = ("--policy", policy, "--for", f"{file}#0")
    with LogSite(tree.files(303) | tree.files(), {path: tree.proof(302, 303)}) as site:
        done = log_command("proof", site.url, *by_file)
        printed = log_command("proof", site.url, *by_digest)
        site.answers[path] = tree.proof(303)
        other = log_command("proof", site.url, *by_digest, "--out", tmp_path / "other")
        site.answers[path] = no_leaf
        absent = log_command("proof", site.url, *by_file)
    assert (done.code, printed.code, other.code, absent.code) == (0, 0, 1, 1), done.err
    sidecar = tmp_path / f"gsm8k.yaml.{sought.token.hex()[:16]}.tlog-proof"
    assert sidecar.read_bytes() == tree.proof(302, 303) == printed.out.encode()
    assert (f"leaf 302 of {ORIGIN}: 303 leaves" in done.err, (tmp_path / "other").exists()) == (True, False)
    built = log_command("proof", tree.write(tmp_path / "log"), *by_digest, "--out", tmp_path / "built")
    assert built.code == 0, built.err
    assert parse_proof((tmp_path / "built").read_bytes()).index == 302


def test_incomplete_and_contradicting_options_are_refused(tmp_path: Path, policy: Path) -> None:
    for more in (("--tokens", tmp_path), ("--once", "--every", "5"), ("--max-unmatched", "10001"), ("--every", "0")):
        assert log_command("monitor", tmp_path, "--policy", policy, "--state", tmp_path / "s", *more).code == 2, more
    file, log = tmp_path / "a.yaml", TREE.write(tmp_path / "log")
    file.write_text(make.file_for(make.submission()))
    digest = ("--iat", "1", "--token", "0" * 64)
    rows: list[tuple[tuple[str, ...], int]] = [
        *((wrong, 2) for wrong in ((), ("--iat", "1"), ("--iat", "1", "--token", "x"), (*digest, "--for", "x#0"))),
        *((("--for", place), 2) for place in ("x", "x#-1")),
        *((("--for", place), 3) for place in ("none.yaml#0", f"{file}#1")),
        (digest, 1),
    ]
    for words, code in rows:
        assert log_command("proof", log, "--policy", policy, *words).code == code, words
