"""`issuer log` from outside, as people and machines call it: what is printed, what is written, exit codes."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import LOG_POLICY
from issuer.relying.logs.proof import sought_of
from issuer.relying.logs.reader import export, read_unverified_head
from issuer.results.entry import write_entry
from issuer.service.log.database.public import StoredFiles
from issuer.service.log.database.sqlite import SqliteDatabase
from issuer.service.log.database.store import LeafKey, StoredLeaf
from issuer.service.log.sequencer.setup import log_settings
from issuer.tlog.leaf import TokenLeaf, read_leaf, token_digest
from issuer.tlog.merkle import leaf_hash
from issuer.tlog.note import Note
from issuer.tlog.proof import parse_proof
from tests.support import make
from tests.support.command import clean, issuer
from tests.support.log_store import append, created, token
from tests.support.logged import logged_service
from tests.support.public_log import INFO, serving
from tests.support.running import Running
from tests.support.tlog import ANNOUNCED, ORIGIN, WITNESSES, LogSite, Tree, key_leaf, no_leaf, policy_text, token_leaf
from tests.support.tree import write_result, write_trust

NOW = int(time.time())
DRAWN = "\x1b[2Jverified"


def tree_of(*more: bytes, count: int = 300) -> Tree:
    tokens = (token_leaf(number, iat=NOW, exp=NOW + 3600) for number in range(count))
    return Tree([*ANNOUNCED, *tokens, *more], time=NOW)


TREE = tree_of()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.txt"
    path.write_text(policy_text())
    return path


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


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


def test_verify_rebuilds_the_tree_and_counts_leaves_by_kind(tmp_path: Path, policy: Path) -> None:
    with LogSite(TREE.files()) as site:
        for source in (site.url, TREE.write(tmp_path / "log")):
            done = issuer("log", "verify", source, "--policy", policy)
            assert done.returncode == 0, done.stderr
            assert f"{ORIGIN}: 302 leaves, root {TREE.root().hex()}, witnessed " in done.stdout
            assert "300  eval-token-issuer/token/v1" in done.stdout
            assert "good: the entries lead to the signed root" in done.stdout


def test_verify_lists_kinds_that_it_does_not_know_and_says_no_where_a_leaf_is_none(
    tmp_path: Path, policy: Path
) -> None:
    later = tree_of(b"eval-token-issuer/token/v2\niss x\n", b"other/kind\n").write(tmp_path / "later")
    done = issuer("log", "verify", later, "--policy", policy, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["unknown"] == {"eval-token-issuer/token/v2": 1, "other/kind": 1}
    broken = tree_of(f"{DRAWN}\n".encode(), b"eval-token-issuer/key/v1\niss x\n").write(tmp_path / "broken")
    done = issuer("log", "verify", broken, "--policy", policy)
    assert done.returncode == 1
    assert "not good: 2 malformed leaves. The first is leaf 302: " in done.stdout
    assert "\x1b" not in done.stdout


def test_verify_names_the_first_defect_and_exits_1(tmp_path: Path, policy: Path) -> None:
    folder = TREE.write(tmp_path / "log")
    raw = (folder / "tile/entries/000").read_bytes()
    (folder / "tile/entries/000").write_bytes(raw[:-2] + b"x\n")
    done = issuer("log", "verify", folder, "--policy", policy)
    assert (done.returncode, "log.unverified: leaf 255 does not match its hash" in done.stderr) == (1, True)


def test_a_checkpoint_of_a_stranger_is_a_no_and_one_without_its_quorum_is_undecided(
    tmp_path: Path, policy: Path
) -> None:
    stranger = Tree(ANNOUNCED, key=make.STRANGER, time=NOW).write(tmp_path / "stranger")
    done = issuer("log", "verify", stranger, "--policy", policy)
    assert (done.returncode, "log.unverified" in done.stderr) == (1, True)
    alone = TREE.write(tmp_path / "alone")
    (alone / "checkpoint").write_bytes(TREE.note(witnesses=WITNESSES[:1]).to_bytes())
    done = issuer("log", "verify", alone, "--policy", policy)
    assert (done.returncode, "too few witnesses" in done.stderr) == (4, True)


def test_what_is_no_log_and_what_does_not_answer_have_their_own_codes(tmp_path: Path, policy: Path) -> None:
    assert issuer("log", "verify", tmp_path, "--policy", policy).returncode == 3
    assert issuer("log", "verify", tmp_path / "none", "--policy", policy).returncode == 3
    assert issuer("log", "verify", "http://log.example", "--policy", policy).returncode == 6
    with LogSite() as site:
        assert issuer("log", "verify", site.url, "--policy", policy).returncode == 3
    policy.write_text("quorum\n")
    done = issuer("log", "verify", TREE.write(tmp_path / "log"), "--policy", policy)
    assert (done.returncode, f"{policy}:1:1: log.policy" in done.stderr) == (3, True)


# -- a log that is really served ---


def test_what_the_service_serves_out_of_its_database_is_read_by_every_command(tmp_path: Path, policy: Path) -> None:
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
            done = issuer("log", *command)
            assert done.returncode == 0, (command, done)
        absent = issuer("log", "proof", url, *judged, "--iat", NOW, "--token", "f" * 64)
    assert (absent.returncode, "the log has no leaf of this token" in absent.stderr) == (1, True)
    assert (tmp_path / "proof").read_bytes() == tree.proof(102, 200), "under the first checkpoint over it"
    assert files_of(tmp_path / "mirror") == tree.files()


class Shown(StoredFiles):
    """The log of a running service under the checkpoint that came with a token's proof."""

    def __init__(self, service: Running, proof: str) -> None:
        super().__init__(log_settings(service.settings, "").database)
        self.note = parse_proof(proof.encode()).checkpoint

    def read(self, path: str, max_bytes: int) -> bytes | None:
        return self.note if path == "checkpoint" else super().read(path, max_bytes)


@pytest.mark.long
def test_the_log_of_real_workers_raises_no_alarm_and_proves_their_tokens(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    mirror, tokens = tmp_path / "mirror", tmp_path / "tokens"
    tokens.mkdir()
    with LocalProvider() as provider, logged_service(tmp_path / "service", provider) as service:
        judged = ("--policy", service.folder / LOG_POLICY)
        command = ("log", "monitor", mirror, *judged, "--state", tmp_path / "state", "--integration", "inspect-ai")
        answer: dict[str, Any] = {}
        for number in range(3):
            answer = service.post(service.token()).json()
            (tokens / f"{number}.jwt").write_text(answer["verify_token"])
            log = Shown(service, answer["log"]["proof"])
            export(log, read_unverified_head(log), mirror)
            done = issuer(*command, "--tokens", tokens)
            assert done.returncode == 0, done.stdout + done.stderr
            assert [line["seen"] for line in lines(done)].count("token") == 1
        assert issuer("log", "verify", mirror, *judged).returncode == 0
        (tmp_path / "result.yaml").write_text(answer["entry"])
        done = issuer("log", "proof", mirror, *judged, "--for", f"{tmp_path}/result.yaml#0")
        assert (done.returncode, f"leaf {answer['log']['index']} of" in done.stderr) == (0, True), done.stderr


# -- export -------------------------------------------------------------------------------------------------------------


def test_export_copies_a_log_that_every_command_reads_and_goes_on(tmp_path: Path, policy: Path) -> None:
    folder = tmp_path / "copy"
    with LogSite(TREE.files(200)) as site:
        first = issuer("log", "export", folder, "--from", site.url, "--policy", policy)
        site.files = TREE.files()
        second = issuer("log", "export", folder, "--from", site.url)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "without --policy" in second.stderr
    assert "102 new leaves" in second.stdout
    assert issuer("log", "verify", f"file:{folder}", "--policy", policy).returncode == 0
    again = issuer("log", "export", tmp_path / "again", "--from", folder, "--policy", policy)
    assert again.returncode == 0
    fork = tree_of(count=299).write(tmp_path / "fork")
    assert issuer("log", "export", folder, "--from", fork).returncode == 1


def test_export_copies_what_is_in_the_database_of_a_sequencer(tmp_path: Path, policy: Path) -> None:
    """Up to the last checkpoint that reached the quorum, though the tree has grown since."""
    file = write_database(tmp_path / "log.sqlite", TREE.leaves, {302: TREE.note(), 300: TREE.note(300)}, more=7)
    done = issuer("log", "export", tmp_path / "mirror", "--from", file, "--policy", policy)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "mirror") == TREE.files()
    assert issuer("log", "verify", file, "--policy", policy).returncode == 0


def test_a_database_that_has_no_cosigned_checkpoint_or_is_none_is_said(tmp_path: Path, policy: Path) -> None:
    file = write_database(tmp_path / "log.sqlite", TREE.leaves, {})
    assert issuer("log", "verify", file, "--policy", policy).returncode == 3
    (tmp_path / "other").write_bytes(b"x" * 5000)
    done = issuer("log", "verify", tmp_path / "other", "--policy", policy)
    assert (done.returncode, "log.unavailable" in done.stderr) == (4, True)
    done = issuer("log", "verify", "postgresql://me:secret@127.0.0.1:1/log", "--policy", policy)
    assert (done.returncode, "secret" in done.stderr) == (4, False)


@pytest.mark.long
def test_export_is_killed_anywhere_and_what_is_there_is_always_a_whole_tree(tmp_path: Path, policy: Path) -> None:
    source, folder, mirror = tree_of(count=3000), tmp_path / "log", tmp_path / "mirror"
    source.write(folder, 1000)
    assert issuer("log", "export", mirror, "--from", folder).returncode == 0
    source.write(folder)
    command = [
        sys.executable,
        "-m",
        "issuer",
        "log",
        "export",
        str(mirror),
        "--from",
        str(folder),
        "--policy",
        str(policy),
    ]
    sizes, delays = [1000], itertools.count()
    while sizes[-1] == 1000:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean()) as child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(next(delays) * 0.02)
            child.kill()
        done = issuer("log", "verify", mirror, "--policy", policy, "--json")
        assert done.returncode == 0, done.stderr
        sizes.append(json.loads(done.stdout)["size"])
    assert set(sizes) == {1000, 3002}
    assert len(sizes) > 2, "it was killed at least once before it was done"
    assert files_of(mirror).items() >= source.files().items()


# -- monitor ------------------------------------------------------------------------------------------------------------


def test_monitor_tells_an_integration_what_the_log_has_of_it(tmp_path: Path, policy: Path) -> None:
    with LogSite(TREE.files(3)) as site:
        command = (
            "log",
            "monitor",
            site.url,
            "--policy",
            policy,
            "--state",
            tmp_path / "state",
            "--integration",
            "inspect-ai",
        )
        first = issuer(*command, "--once")
        site.files = TREE.files()
        second = issuer(*command)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert [line["seen"] for line in lines(first)] == ["key", "policy", "token", "checkpoint"]
    assert lines(first)[2]["leaf"] == {
        "iss": make.ISSUER, "sub": "inspect-ai", "kid": make.KID, "iat": NOW, "exp": NOW + 3600,
        "policy": "sha256:" + "0" * 64, "token": "0" * 64,
    }  # fmt: skip
    assert [line["index"] for line in lines(second)[:-1]] == list(range(3, 302))
    last = {
        "seen": "checkpoint",
        "origin": ORIGIN,
        "size": 302,
        "root": TREE.root().hex(),
        "witnessed": NOW,
        "alarms": 0,
    }
    assert lines(second)[-1] == last


def test_an_alarm_is_a_line_of_json_and_exit_code_1(tmp_path: Path, policy: Path) -> None:
    stolen = tree_of(key_leaf(state="revoked"), token_leaf(999, iat=NOW, exp=NOW + 9), f"x{DRAWN}\n".encode())
    state = tmp_path / "state"
    done = issuer("log", "monitor", stolen.write(tmp_path / "log"), "--policy", policy, "--state", state)
    assert done.returncode == 1
    told = [line for line in lines(done) if "alarm" in line]
    assert [(line["alarm"], line["index"]) for line in told] == [("token.kid_revoked", 303), ("leaf.malformed", 304)]
    assert "\x1b" not in done.stdout
    assert state.stat().st_mode & 0o777 == 0o600
    forked = issuer("log", "monitor", TREE.write(tmp_path / "fork"), "--policy", policy, "--state", state)
    assert forked.returncode == 1
    (line,) = lines(forked)
    assert (line["alarm"], len(line["notes"])) == ("checkpoint.shrinks", 2)


def test_monitor_compares_the_tokens_of_a_folder(tmp_path: Path, policy: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    token = make.token_for(make.submission())
    (tokens / "a.jwt").write_text(token)
    leaf = token_leaf(token=token_digest(token.rpartition(".")[0].encode()))
    log = tree_of(leaf, count=2).write(tmp_path / "log")
    command = ("log", "monitor", log, "--policy", policy, "--integration", "inspect-ai", "--tokens", tokens)
    done = issuer(*command, "--max-unmatched", 1, "--state", tmp_path / "1")
    assert (done.returncode, lines(done)[-2]["alarm"]) == (1, "tokens.unmatched")
    assert "2 tokens of inspect-ai" in lines(done)[-2]["detail"]
    assert issuer(*command, "--max-unmatched", 2, "--state", tmp_path / "2").returncode == 0


@pytest.mark.long
def test_monitor_follows_until_an_alarm_and_waits_where_nothing_is_to_be_had(tmp_path: Path, policy: Path) -> None:
    folder = TREE.write(tmp_path / "log")
    (folder / "checkpoint").write_bytes(TREE.note(witnesses=()).to_bytes())
    command = [sys.executable, "-m", "issuer", "log", "monitor", str(folder), "--policy", str(policy), "--state",
               str(tmp_path / "state"), "--every", "1"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean()) as child:
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


def test_monitor_is_killed_and_tells_nothing_less(tmp_path: Path, policy: Path) -> None:
    """Before its state is written: the next look tells all of it once more."""
    folder, state = tree_of(count=2000).write(tmp_path / "log"), tmp_path / "state"
    command = [
        "log",
        "monitor",
        str(folder),
        "--policy",
        str(policy),
        "--state",
        str(state),
        "--integration",
        "inspect-ai",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "issuer", *command], stdout=subprocess.PIPE, text=True, env=clean()
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
    assert not state.exists()
    assert len(lines(issuer(*command))) == 2003


@pytest.mark.parametrize(
    "more",
    [("--tokens", "{folder}"), ("--once", "--every", "5"), ("--max-unmatched", "10001"), ("--every", "0")],
)
def test_monitor_says_what_does_not_go_together(tmp_path: Path, policy: Path, more: tuple[str, ...]) -> None:
    given = [word.replace("{folder}", str(tmp_path)) for word in more]
    assert issuer("log", "monitor", tmp_path, "--policy", policy, "--state", tmp_path / "s", *given).returncode == 2


# -- proof --------------------------------------------------------------------------------------------------------------


def test_proof_puts_a_verified_proof_beside_the_file(tmp_path: Path, policy: Path) -> None:
    item = make.submission()
    token = make.token_for(item, log=ORIGIN)
    sought = sought_of(token)
    assert sought.leaf is not None
    tree = tree_of(sought.leaf.to_bytes(), token_leaf(1000))
    file = tmp_path / "gsm8k.yaml"
    file.write_text(write_entry(item.form, token))
    path = f"proof?iat={sought.iat}&token={sought.token.hex()}"
    with LogSite(tree.files(303) | tree.files(), {path: tree.proof(302, 303)}) as site:
        done = issuer("log", "proof", site.url, "--policy", policy, "--for", f"{file}#0")
        by_digest = ("--iat", sought.iat, "--token", sought.token.hex())
        printed = issuer("log", "proof", site.url, "--policy", policy, *by_digest)
        site.answers[path] = tree.proof(303)
        other = issuer("log", "proof", site.url, "--policy", policy, *by_digest, "--out", tmp_path / "other")
        site.answers[path] = no_leaf
        absent = issuer("log", "proof", site.url, "--policy", policy, "--for", f"{file}#0")
    assert (done.returncode, printed.returncode, other.returncode, absent.returncode) == (0, 0, 1, 1), done.stderr
    sidecar = tmp_path / f"gsm8k.yaml.{sought.token.hex()[:16]}.tlog-proof"
    assert sidecar.read_bytes() == tree.proof(302, 303) == printed.stdout.encode()
    assert f"leaf 302 of {ORIGIN}: 303 leaves" in done.stderr
    assert not (tmp_path / "other").exists()
    folder = tree.write(tmp_path / "log")
    built = issuer("log", "proof", folder, "--policy", policy, *by_digest, "--out", tmp_path / "built")
    assert built.returncode == 0, built.stderr
    assert parse_proof((tmp_path / "built").read_bytes()).index == 302


def test_a_proof_that_was_written_so_is_what_check_11_asks_for(tmp_path: Path, policy: Path) -> None:
    token = make.token_for(make.submission(), iat=NOW, nbf=NOW, exp=NOW + 3600, log=ORIGIN)
    leaf = sought_of(token).leaf
    assert leaf is not None
    log = tree_of(leaf.to_bytes()).write(tmp_path / "log")
    file = write_result(tmp_path, make.REPO, "gsm8k.yaml", write_entry(make.submission().form, token))
    named = f"log: {{policy: {{file: {policy.name}}}}}"
    trust = write_trust(tmp_path, f"    {named}\nrequire: [log]\n")
    judge = ("verify", file, "--repo", make.REPO, "--trust", trust)
    assert issuer(*judge).returncode == 4, "no proof was found"
    assert issuer("log", "proof", log, "--policy", policy, "--for", f"{file}#0").returncode == 0
    done = issuer(*judge)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leaf 302 of the 303" in done.stdout


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ((), 2),
        (("--iat", "1"), 2),
        (("--iat", "1", "--token", "x"), 2),
        (("--iat", "1", "--token", "0" * 64, "--for", "x#0"), 2),
        (("--for", "x"), 2),
        (("--for", "x#-1"), 2),
        (("--for", "none.yaml#0"), 3),
        (("--for", "{file}#1"), 3),
        (("--iat", "1", "--token", "0" * 64), 1),
    ],
)
def test_proof_says_what_it_needs(tmp_path: Path, policy: Path, more: tuple[str, ...], code: int) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(make.file_for(make.submission()))
    given = [word.replace("{file}", str(file)) for word in more]
    done = issuer("log", "proof", TREE.write(tmp_path / "log"), "--policy", policy, *given)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
