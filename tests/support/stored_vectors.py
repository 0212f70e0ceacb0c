"""Makes `tests/vectors/stored/`: each version of each stored format. `python -m tests.support.stored_vectors`.

A folder there is `FORMAT-VERSION`, with the files of an installation of that version. It is never made again, because
installations have these files. `read` is today's reader of every version; `tests/test_stored.py` has its results.
"""

import asyncio
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from redis.asyncio import Redis

from issuer.audit.chain import Chains
from issuer.audit.reader import read_event, read_lines
from issuer.client.batches import ResumeState
from issuer.errors import IssuerError
from issuer.identity import pat
from issuer.io.common_documents import FolderHome
from issuer.issuance.ports import AdmissionRequest, Admitted, Countable, Counted, Item, Use
from issuer.issuance.steps import Payer, StoreSecret
from issuer.limits.abuse import read_tally
from issuer.limits.rate import Limits, Rate
from issuer.relying.logs.monitor import read_followed, write_followed
from issuer.relying.logs.reader import parse_head
from issuer.relying.trusted import SeenLists
from issuer.results.entry import read_entries
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.service.audit.sink import FileAudit
from issuer.service.authn.pat_records import DAY_S, Order, create, read_records, revoke
from issuer.service.log.database.engines import database_at, reading_at
from issuer.service.log.database.store import Reader
from issuer.service.policies.archive import PolicyArchive, keep_policies
from issuer.service.revocation.ledger import Ledger, Signing
from issuer.service.settings.model import Keys, Settings, Store, values_of
from issuer.service.settings.reader import read_settings
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.inventory import Inventory
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Note, NoteSigner
from issuer.tlog.watch import Announced
from issuer.token.verify_token import read_template
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import file_name, read_receipt, token_digest, write_receipt
from issuer.witness import state as witness
from tests.support import make, policies, stored_values
from tests.support.log_store import announcement, append, created, token
from tests.support.shared import VECTORS

T = TypeVar("T")
FOLDER = VECTORS / "stored"
_AFTER = make.NOW + 5


class Format(NamedTuple):
    """A stored format: its newest version, its writer for an empty folder, and its reader for any version.

    `exact`: the writer makes the same bytes as long as the format is unchanged.
    """

    version: int
    write: Callable[[Path], None]
    read: Callable[[Path], object]
    exact: bool = True


# -- JSON Lines -------------------------------------------------------------------------------------------------------


def _write_key_history(folder: Path) -> None:
    KeyHistory(FolderHome(folder)).record(lambda _: stored_values.KEY_EVENTS)


def _read_key_history(folder: Path) -> object:
    lives = KeyHistory(FolderHome(folder)).read()
    return {kid: (life.what, life.active_from, life.began_until, life.revoked_from) for kid, life in lives.items()}


def _write_audit(folder: Path) -> None:
    audit = FileAudit(folder / "audit.jsonl", now_us=lambda: make.NOW * 1_000_000)
    audit.worker = "0" * 32

    async def record() -> None:
        for event in stored_values.EVENTS:
            await audit.record(event)

    asyncio.run(record())
    audit.close()


def _read_audit(folder: Path) -> object:
    chains, lines = Chains({}), [*read_lines(folder / "audit.jsonl")]
    wrong = [finding.kind for line in lines for finding in chains.read(line)]
    return wrong, [stored_values.unlinked(read_event(line)) for line in lines]


def _write_revocations(folder: Path) -> None:
    ledger = Ledger(FolderHome(folder), make.ISSUER)
    for act in stored_values.ACTS:
        ledger.add(act)
    ledger.renew(Signing(make.REVOCATION_KEY), make.NOW)


def _read_revocations(folder: Path) -> object:
    found = Ledger(FolderHome(folder), make.ISSUER).read()
    return found.error, found.acts, found.published and (found.published.listed.number, found.published.listed.count)


# -- single files ----------------------------------------------------------------------------------------------------


def _write_pats(folder: Path) -> None:
    create(folder, _order(()), now=make.NOW, random=bytes(pat.RANDOM_BYTES))
    _, record = create(folder, _order(("192.0.2.0/24",)), now=make.NOW + 100, random=b"r" * pat.RANDOM_BYTES)
    revoke(folder, record.id, make.NOW + 200)


def _order(networks: tuple[str, ...]) -> Order:
    return Order("ci-bot", ("evals", "evals:submit"), networks, DAY_S)


def _read_pats(folder: Path) -> object:
    good, bad = read_records(folder)
    found = [(record.account, record.state(make.NOW + 300), record.may_come_from("198.51.100.1/32")) for record in good]
    return found, [error.code for error in bad]


def _receipt_token() -> str:
    return make.token_for(make.submission({"notes": "no tools"}))


def _write_receipts(folder: Path) -> None:
    text = make.file_for(make.submission({"notes": "no tools"}))
    trust = make.trust(receipt_keys=make.key_set(make.RECEIPT_KEY), archive=make.archive())
    entries = read_entries(text.encode(), make.PATH)
    (report,) = verify_entries(entries, make.REPO, make.PATH, trust, _AFTER, Context(now=_AFTER, witnessed=True))
    receipt = write_receipt(report, trust, make.RECEIPT_KEY, _AFTER)
    assert receipt is not None
    (folder / file_name(token_digest(_receipt_token()))).write_bytes(receipt)


def _read_receipts(folder: Path) -> object:
    text = (folder / file_name(token_digest(_receipt_token()))).read_text("ascii")
    receipt = read_receipt(text, make.key_set(make.RECEIPT_KEY))
    return receipt.repo, receipt.path, receipt.jti, receipt.kid, receipt.at, receipt.iat


def _write_seen(folder: Path) -> None:
    raw = make.revocation_list(number=7, jti=[make.JTI])
    at_hand = make.parse_list(raw), raw
    SeenLists(folder).settle(make.ISSUER, make.key_set(make.REVOCATION_KEY), at_hand, _AFTER)


def _read_seen(folder: Path) -> object:
    seen, refused = SeenLists(folder).settle(make.ISSUER, make.key_set(make.REVOCATION_KEY), None, _AFTER)
    return refused, seen and (seen.number, seen.iat, seen.jtis)


def _write_submission(folder: Path) -> None:
    kept = ResumeState(folder)
    kept.begin(stored_values.BEGUN, "n" * 22)
    kept.finish(stored_values.FINISHED, (stored_values.ISSUED,))


def _read_submission(folder: Path) -> object:
    kept = ResumeState(folder)
    return kept.nonce(stored_values.BEGUN), list(kept.tokens())


def _write_settings(folder: Path) -> None:
    (folder / "settings.yaml").write_text(stored_values.SETTINGS, "utf-8")


def _read_settings(folder: Path) -> object:
    values = values_of(read_settings(folder / "settings.yaml", {}))
    return {name: values[name] for name in ("url", "store.url", "store.durable", "listen.port", "log.origin", "data")}


def _write_policies(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as written:
        keep_policies(policies.load(Path(written), inspect_ai=policies.POLICY), folder)


def _read_policies(folder: Path) -> object:
    kept = PolicyArchive(folder)
    return [kept.integration_of(f"sha256:{path.stem}") for path in folder.glob("*.json")]


def _write_monitor(folder: Path) -> None:
    text = Checkpoint("log.example/1", 3, bytes(32)).to_text()
    head = parse_head(Note(text, (NoteSigner("log.example/1", make.KEY).sign(text),)).to_bytes())
    announced = Announced({b"k" * 32: "active"}, {b"p" * 32}, {b"u" * 32})
    write_followed(folder / "state.json", head, "inspect-ai", announced)


def _read_monitor(folder: Path) -> object:
    followed = read_followed(folder / "state.json")
    assert followed is not None
    head, announced = followed.head, followed.announced
    known = announced.keys, announced.policies, announced.unmatched
    return head and (head.checkpoint.origin, head.checkpoint.size), followed.compared, *known


# -- databases --------------------------------------------------------------------------------------------------------


def _write_log(folder: Path) -> None:
    with closing(database_at(str(folder / "log.sqlite"))) as database:
        store = created(database)
        append(store, [announcement(1), token(2), token(3)])
        database.begin()
        store.keep_cosigned(2, b"a note\n")
        database.commit()


def _read_log(folder: Path) -> object:
    key = token(3).key
    assert key.iat is not None
    assert key.token is not None
    with closing(reading_at(str(folder / "log.sqlite"))) as reading:
        reader = Reader(reading)
        head = reader.head()
        found = reader.leaves(0, 3), reader.index_of_token(key.iat, key.token), reader.last_cosigned()
        return head and (head.origin, head.size, head.root.hex()), *found


def _write_witness(folder: Path) -> None:
    witness.create(folder / "witness.sqlite", "witness.example/w")
    with closing(witness.WitnessState(folder / "witness.sqlite")) as state, state.turn():
        state.keep("log.example/1", witness.Latest(3, bytes(32), b"a note\n"))
        state.keep_fork("log.example/1", witness.Latest(3, b"f" * 32, b"a fork\n"))


def _read_witness(folder: Path) -> object:
    with closing(witness.WitnessState(folder / "witness.sqlite")) as state:
        return state.name, state.latest("log.example/1"), state.forks("log.example/1")


# -- the store of limits, key by key ---------------------------------------------------------------------------------

_SECRET = StoreSecret(b"k" * 32)
_LIMITS = Limits(refusals=Rate(count=1, per_s=86_400, burst=1), quarantine_s=86_400)
_RECORD, _SAME, _OTHER = "a" * 64, "b" * 64, "c" * 64
_ITEM = Item(b"run0", b"twin", b"v" * 16, b"r" * 8, b"o" * 8, (b"f" * 8,))
_SEALED = _SECRET.seal(_RECORD, _SAME, make.template().to_bytes())


def _request(digest: str, candidate: bytes) -> AdmissionRequest:
    use = Use(_RECORD, 1, digest, make.NOW + 3600, make.KID, (make.KID,), make.NOW + 60, make.NOW + 7200)
    return AdmissionRequest(
        Payer("inspect-ai", "main"), _LIMITS, 1, use, candidate, countable=Countable((_ITEM,), b"c" * 8)
    )


_REFUSED = AdmissionRequest(Payer("inspect-ai", "probing"), _LIMITS, 1, refused=True)


def _write_store(folder: Path) -> None:
    """Have a use, its counts and a quarantine kept, and write what the store then holds to `keys.json`."""

    async def work(client: Any, admission: RedisAdmission) -> dict[str, Any]:
        await admission.start()
        await admission.admit(_request(_SAME, _SEALED))
        for _ in range(2):
            await admission.count(_REFUSED)
        return {key.decode(): await _value(client, key) for key in sorted(await client.keys("{evi*"))}

    kept = asyncio.run(_with_store(make.NOW - 60, work))
    (folder / "keys.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "ascii")


def _read_store(folder: Path) -> object:
    """Put the keys into a store, and return the outcomes of the same request, another one, and that of a quarantined
    identity."""
    kept = json.loads((folder / "keys.json").read_bytes())

    async def work(client: Any, admission: RedisAdmission) -> list[object]:
        for key, value in kept.items():
            await _put(client, key, value)
        await admission.start()
        asked = (_request(_SAME, b"another"), _request(_OTHER, b"another"), _REFUSED)
        return [await _outcome(admission, each) for each in asked]

    return asyncio.run(_with_store(make.NOW + 120, work))


async def _with_store(start_s: int, work: Callable[[Any, RedisAdmission], Awaitable[T]]) -> T:
    with EmbeddedValkey() as url:
        async with Redis.from_url(url) as client:
            admission = RedisAdmission(url, leeway_s=30, durable_store=True, now_us=lambda: start_s * 1_000_000)
            try:
                return await work(client, admission)
            finally:
                await admission.aclose()


async def _outcome(admission: RedisAdmission, asked: AdmissionRequest) -> object:
    try:
        found: Admitted | Counted = await (admission.admit(asked) if asked.use else admission.count(asked))
    except IssuerError as refused:
        return str(refused.code)
    if isinstance(found, Counted) or not found.repeat:
        return "new"
    raw = _SECRET.unseal(_RECORD, _SAME, found.template)
    return None if raw is None else (read_template(raw), read_tally(found.tally))


async def _value(client: Any, key: bytes) -> dict[str, Any]:
    if await client.type(key) == b"hash":
        return {"hash": {name.hex(): value.hex() for name, value in (await client.hgetall(key)).items()}}
    return {"string": (await client.get(key)).hex()}


async def _put(client: Any, key: str, value: dict[str, Any]) -> None:
    if "hash" in value:
        fields = {bytes.fromhex(name): bytes.fromhex(each) for name, each in value["hash"].items()}
        await client.hset(key, mapping=fields)
    else:
        await client.set(key, bytes.fromhex(value["string"]))


def _inventory(place: Path) -> Inventory:
    settings = Settings(make.ISSUER, "policies", str(place), Keys(str(place)), Store("embedded"))
    return Inventory(settings, FolderHome(place))


def _write_inventory(place: Path) -> None:
    _inventory(place).add(("policies", "key-history"))


FORMATS = {
    "audit": Format(1, _write_audit, _read_audit),
    "inventory": Format(1, _write_inventory, lambda place: _inventory(place).read()),
    "key-history": Format(1, _write_key_history, _read_key_history),
    "log": Format(1, _write_log, _read_log),
    "monitor": Format(1, _write_monitor, _read_monitor),
    "pats": Format(1, _write_pats, _read_pats),
    "policies": Format(1, _write_policies, _read_policies, exact=False),  # a new member with a default is in them, too
    "receipts": Format(1, _write_receipts, _read_receipts),
    "revocations": Format(1, _write_revocations, _read_revocations),
    "seen": Format(1, _write_seen, _read_seen),
    "settings": Format(1, _write_settings, _read_settings),
    "store": Format(1, _write_store, _read_store),
    "submission": Format(1, _write_submission, _read_submission),
    "witness": Format(1, _write_witness, _read_witness),
}


def newest(name: str) -> Path:
    return FOLDER / f"{name}-{FORMATS[name].version}"


def laid(stored: Path, place: Path) -> Path:
    """Copy a stored folder as an installation has it, for its owner alone: git keeps no such modes."""
    shutil.copytree(stored, place)
    for path in (place, *place.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return place


def written(name: str, place: Path) -> Path:
    """Write a format with today's code, without its lock files."""
    place.mkdir(mode=0o700, parents=True)
    FORMATS[name].write(place)
    for path in place.rglob("*"):
        if path.name.endswith(".lock"):
            path.unlink()
    return place


def contents(folder: Path) -> dict[str, object]:
    """Return the files of a folder, by name: bytes, and the statements of a database, because its bytes are SQLite's."""
    return {
        path.name: _statements(path) if path.suffix == ".sqlite" else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def _statements(path: Path) -> object:
    with closing(sqlite3.connect(path)) as database:
        marks = [database.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
        return marks, list(database.iterdump())


if __name__ == "__main__":
    for name in FORMATS:
        if not newest(name).exists():
            written(name, newest(name))
            print(newest(name).relative_to(FOLDER))
