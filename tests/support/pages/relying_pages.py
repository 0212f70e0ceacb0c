"""The pages of issuer/relying/: a relying party's folder, an issuer's documents and a log over HTTP. And issuer/CONTRACT.md,
whose examples are read as the formats that they show."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from issuer.dev.provider import LocalProvider
from issuer.io import keyfile
from issuer.relying.logs.proof import sought_of
from issuer.results.entry import read_entries, write_entry
from issuer.tlog.note import Kind, Verifier
from issuer.verify.trust import read_trust_file, sources
from tests.support import make, tlog
from tests.support.make import jwks
from tests.support.pages.blocks import Block
from tests.support.pages.story import DONE, Story, World
from tests.support.samples import SAMPLES
from tests.support.tree import write_result, write_trust
from tests.support.witnessing import policy_text

ISSUER = "https://issuer.example"
LOG_KEY = Verifier(
    "issuer.example/log/2026-11-22-7f3a", Kind.ED25519, make.RECEIPT_KEY.public_key().public_bytes_raw()
).to_text()
CALLER = {"provider": "github-actions", "issuer": SAMPLES[0].issuer, **SAMPLES[0].public}
# The token that LOG.md looks for by its digest.
TOKEN = bytes.fromhex("5b0e4ffe8d9bf45b7e4ba2f3f5e3b52ad3ce0f0b9a8c7d6e5f4a3b2c1d0e9f80")


@contextmanager
def reader(folder: Path) -> Iterator[World]:
    """Give a relying party's files; the issuer's URL leads to a server here."""
    now = int(time.time())
    window = {"active_from": now - 86_400, "last_token_exp": now + 30 * 86_400}
    item = make.submission({"run": {"selection": {"accuracy": "match/accuracy"}}})
    attempt = {"number": 3, "since": now - 25 * 86_400}
    file = make.file_for(item, iat=now, nbf=now, exp=now + 3600, caller=CALLER, attempt=attempt).encode()
    files: dict[str, bytes] = {
        ".eval_results/gsm8k.yaml": file,
        "hub/acme/open-model/.eval_results/gsm8k.yaml": file,
        "revocations.jwt": make.revocation_list(iat=now, next_update=now + 86_400),
        "log-policy.txt": policy_text([LOG_KEY], [], "quorum none").encode(),
        "receipt-keys.json": jwks(make.RECEIPT_KEY),
        "revocation-keys.json": jwks(make.REVOCATION_KEY),
        f"benchmarks/openai/gsm8k/{item.claims.benchmark_revision}/eval.yaml": make.BENCHMARK_TEXT.encode(),
    }
    for name, raw in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    keyfile.write(folder / "receipt.pem", make.RECEIPT_KEY)
    with LocalProvider() as site:
        site.answers["/.well-known/jwks.json"] = lambda exchange: exchange.reply(200, jwks())
        site.answers["/.well-known/jwks-archive.json"] = lambda exchange: exchange.reply(200, jwks(**window))
        yield World(folder, here={f"{ISSUER}/.well-known": f"{site.issuer}/.well-known", "1795000000": str(now)})


@contextmanager
def watcher(folder: Path) -> Iterator[World]:
    """Give a result file and a witness policy; the log's URL leads to a log here, which has its token and another."""
    now = int(time.time())
    item = make.submission()
    token = make.token_for(item, iat=now, nbf=now, exp=now + 3600, log=tlog.ORIGIN)
    sought = sought_of(token)
    assert sought.leaf is not None
    leaves = [*tlog.ANNOUNCED, sought.leaf.to_bytes(), tlog.token_leaf(token=TOKEN)]
    tree = tlog.Tree(leaves, time=now)
    (folder / "results").mkdir()
    (folder / "results/gsm8k.yaml").write_text(write_entry(item.form, token))
    (folder / "witness-policy.txt").write_text(tlog.policy_text())
    path = f"proof?iat={sought.iat}&token={sought.token.hex()}"
    with tlog.LogSite(tree.files(), {path: tree.proof(2)}) as site:
        yield World(folder, here={f"{ISSUER}/log": site.url})


@contextmanager
def ranker(folder: Path) -> Iterator[World]:
    """Give repositories with a verified, an unsigned and a forged result, the definition of their benchmark, and a trust
    file."""
    now = int(time.time())
    times = {"iat": now, "nbf": now, "exp": now + 3600}
    item = make.submission()
    good = make.file_for(item, **times)
    write_result(folder / "hub", "acme/open-model", "gsm8k.yaml", good)
    write_result(
        folder / "hub", "acme/unsigned", "gsm8k.yaml", write_entry(make.submission(model_repo="acme/unsigned").form)
    )
    other = make.submission(model_repo="acme/forged")
    forged = make.file_for(other, **times, jti="forged" + make.JTI[6:]).replace("20.9", "99.9")
    write_result(folder / "hub", "acme/forged", "gsm8k.yaml", forged)
    definition = folder / "benchmarks" / make.BENCHMARK / item.claims.benchmark_revision / "eval.yaml"
    definition.parent.mkdir(parents=True)
    definition.write_text(make.BENCHMARK_TEXT)
    write_trust(folder)
    yield World(folder)


@contextmanager
def hub(folder: Path) -> Iterator[World]:
    """Give a hub with a good result, a forged, an unsigned and a broken one, and DuckDB for it."""
    with reader(folder) as world:
        write_trust(folder)
        good = (folder / "hub/acme/open-model/.eval_results/gsm8k.yaml").read_text()
        bare = "".join(line for line in good.splitlines(True) if "verify_token" not in line)
        for name, text in {"forged": good.replace("20.9", "29.9"), "bare": bare, "broken": "- ["}.items():
            write_result(folder / "hub", f"acme/{name}", "gsm8k.yaml", text)
        yield world


def ask(world: World, block: Block) -> object:
    """Run a block of SQL in DuckDB; the rows are in comments below."""
    import duckdb

    asked = block.text.replace("results.parquet", str(world.folder / "results.parquet"))
    try:
        rows = duckdb.connect().execute(asked).fetchall()
    except duckdb.Error as error:
        raise AssertionError(f"{block.place}: {error}") from None
    shown = [line.removeprefix("-- ") for line in block.text.splitlines() if line.startswith("-- ")]
    assert [str(row) for row in rows] == shown, f"{block.place}: {rows}"
    return DONE


@contextmanager
def nothing(folder: Path) -> Iterator[World]:
    yield World(folder)


def an_entry(world: World, block: Block) -> None:
    """Read a result file of one entry, in its target form."""
    (entry,) = read_entries(
        block.text.replace("<commit>", "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321").encode(), "x.yaml"
    )
    assert entry.token == "eyJ..."


def a_trust_file(world: World, block: Block) -> None:
    """Read a trust file, with every source that there can be."""
    file = read_trust_file(block.text.encode(), "trust.yaml")
    assert {pointer.rpartition("/")[2] for pointer in sources(file)} == {
        "keys", "archive", "revocations", "receipt_keys", "revocation_keys",
    }  # fmt: skip


STORIES = (
    Story("issuer/CONTRACT.md", nothing, {"an entry": an_entry, "a trust file": a_trust_file}),
    Story("issuer/relying/README.md", reader, files_first=True),
    Story("issuer/relying/LOG.md", watcher),
    Story("issuer/relying/LEADERBOARD.md", ranker, long=True),
    Story("issuer/relying/TABLE.md", hub, {"duckdb": ask}, but=("Beyond one machine",), long=True),
)
