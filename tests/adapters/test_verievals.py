"""verievals records: checked under a configured key and a pinned root, where its own verifier believes the record."""

import json
import math
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.adapters import verievals
from issuer.codes import Code
from issuer.errors import InputError
from issuer.results.claims import Metric
from tests.support.runs import ALL, refusal, refusal_or_none
from tests.support.verievals import (
    KEY,
    REAL,
    anchors_for,
    body,
    hex_of,
    ledger_of,
    raw_of,
    real_anchors,
    root_of,
    signed,
)

OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
# Points of small order: under such a key one signature fits every message (RFC 8032; see issuer.formats.jose).
SMALL_ORDER = ["01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32]
SMALL_ORDER += ["26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"]
SUPPLIED = replace(ALL, framework_version=None)


def check(record: dict[str, Any], **other: Any) -> InputError:
    return refusal(verievals.read, raw_of(record), "record.json", anchors=anchors_for(record, **other))


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """A record whose signer signed something else: hash, signature and ledger are right."""
    content = body()
    change(content)
    return signed(content)


def test_a_good_record_gives_its_claims_and_nothing_of_its_unsigned_envelope() -> None:
    record = signed(body())
    run = verievals.read(raw_of(record), f"{record['content_hash']}.json", anchors=anchors_for(record))
    built = run.claims(SUPPLIED)
    assert built.claims.metrics == (Metric("accuracy", 0.75, sample_size=4), Metric("passed", 3, sample_size=4))
    assert (built.claims.framework.name, built.claims.framework.version) == ("verievals", "0.1.0")
    assert "date" not in built.details
    assert (run.model_repo, run.model_revision, run.benchmark_repo) == (None, None, None)
    turned = json.dumps(dict(reversed(record.items()))).encode()  # in another order it is the same record
    assert verievals.read(turned, anchors=anchors_for(record)).scores


def test_an_altered_body_or_a_file_with_the_name_of_another_record_is_refused() -> None:
    forgeries: tuple[Callable[[dict[str, Any]], object], ...] = (
        lambda r: r["body"]["aggregate"]["metrics"].update(accuracy=1.0),
        lambda r: r["body"]["results"][0].update(passed=True),
        lambda r: r["body"]["results"].reverse(),
        lambda r: r["body"]["model"].update(name="gemma3:27b"),
        lambda r: r.update(content_hash="ab" * 32),
    )
    for forge in forgeries:
        record = signed(body())
        anchors = anchors_for(record)
        forge(record)
        assert refusal(verievals.read, raw_of(record), anchors=anchors).pointer == "/content_hash"
    record = signed(body())
    error = refusal(verievals.read, raw_of(record), f"{'0' * 64}.json", anchors=anchors_for(record))
    assert "name of another record" in error.detail


def test_a_member_that_is_unknown_or_named_twice_is_refused() -> None:
    """verievals drops an unknown member before it hashes."""
    for place in ("", "body", "envelope", "signature"):
        record = signed(body())
        (record[place] if place else record)["note"] = "0.99"
        assert check(record).code is Code.FILE_UNKNOWN_MEMBER
    record = signed(body())
    raw = raw_of(record)
    for member in ("accuracy", "content_hash", "public_key", "passed"):
        at = raw.index(f'"{member}":'.encode())
        twice = raw[:at] + f'"{member}": 1.0, '.encode() + raw[at:]
        assert refusal(verievals.read, twice, anchors=anchors_for(record)).code is Code.FILE_DUPLICATE_KEY


def test_the_key_in_the_record_is_not_trusted_and_a_wrong_signature_is_refused() -> None:
    assert check(signed(body(), OTHER)).pointer == "/signature/public_key"
    for member, value in (
        ("signature", "00" * 64), ("signature", "ff" * 64), ("algorithm", "none"), ("algorithm", "Ed25519"), ("public_key", "AB" * 32),
        ("signature", "ab" * 63),
    ):  # fmt: skip
        record = signed(body())
        record["signature"][member] = value
        error = check(record)
        if len(value) == 128:
            assert error.pointer == "/signature/signature"
        else:
            assert error.code is Code.FILE_SCHEMA


def test_an_unusable_configured_key_is_refused() -> None:
    for key in SMALL_ORDER:
        record = signed(body())
        # R the identity and S zero: it verifies for every message under a key of order 1 in most implementations.
        record["signature"] |= {"public_key": key, "signature": "01" + "00" * 63}
        assert check(record, public_key=key).code is Code.KEY_UNUSABLE
    for key in ("", "ab", hex_of(KEY).upper(), hex_of(KEY) + "\n", "zz" * 32, "ff" * 32):
        assert check(signed(body()), public_key=key).code is Code.KEY_UNUSABLE


def test_a_signed_aggregate_that_the_results_do_not_give_is_refused() -> None:
    lies: tuple[tuple[Callable[[dict[str, Any]], object], Code], ...] = (
        (lambda b: b["aggregate"]["metrics"].update(accuracy=1.0), Code.FILE_RULE),
        (lambda b: b["aggregate"]["metrics"].update(accuracy=math.nextafter(0.75, 1)), Code.FILE_RULE),
        (lambda b: b["aggregate"]["metrics"].update(passed=4.0), Code.FILE_RULE),
        (lambda b: b["aggregate"].update(num_tasks=5), Code.FILE_RULE),
        (lambda b: b["results"][1].update(task_id="t0"), Code.FILE_RULE),
        (lambda b: b["runner"].update(sample_limit=3), Code.FILE_RULE),
        (lambda b: b["aggregate"]["metrics"].update(f1=0.9), Code.FILE_UNKNOWN_MEMBER),
        (lambda b: b.update(results=[]), Code.FILE_SCHEMA),
    )
    for number, (lie, code) in enumerate(lies):
        assert check(changed(lie)).code is code, number


def test_a_run_is_full_only_below_its_limit_and_a_mock_is_a_mock() -> None:
    limited = changed(lambda b: b["runner"].update(sample_limit=4))
    run = verievals.read(raw_of(limited), anchors=anchors_for(limited))
    assert refusal(run.claims, SUPPLIED).pointer == "/body/runner/sample_limit"
    entry: Any = run.claims(SUPPLIED, allow_partial=True).details["run"]
    assert entry["completeness"] == "not known"
    wide = changed(lambda b: b["runner"].update(sample_limit=5, seed=7))
    entry = verievals.read(raw_of(wide), anchors=anchors_for(wide)).claims(SUPPLIED).details["run"]
    counted = {name: entry[name] for name in ("completeness", "num_samples", "seed", "selection", "arguments")}
    assert counted == {
        "completeness": "full", "num_samples": 4, "seed": 7, "arguments": {"generation.temperature": 0},
        "selection": {"accuracy": "exact/accuracy", "passed": "exact/passed"},
    }  # fmt: skip
    mock = changed(lambda b: b["model"].update(provider="mock"))
    run = verievals.read(raw_of(mock), anchors=anchors_for(mock))
    assert "'mock:gemma3:1b'" in refusal(run.claims, SUPPLIED).detail
    run.claims(SUPPLIED, allow_mock={"mock:gemma3:1b"})


def test_a_ledger_may_have_grown_and_a_record_that_is_not_under_the_root_is_refused() -> None:
    record = signed(body())
    grown = replace(anchors_for(record), root=root_of("11" * 32, record["content_hash"]))
    assert verievals.read(raw_of(record), anchors=grown).scores
    for digests in (("11" * 32, "22" * 32), ("11" * 32,)):
        for ledger in (ledger_of(*digests, record["content_hash"]), ledger_of(*digests)):
            assert "not in the ledger" in check(record, root=root_of(*digests), ledger=ledger).detail


def test_a_ledger_that_was_altered_cut_or_reordered_or_has_an_entry_twice_is_refused() -> None:
    record = signed(body())
    whole = ("11" * 32, record["content_hash"], "22" * 32)
    for other in (whole[:2], whole[::-1], ("33" * 32, *whole[1:]), ()):
        error = check(record, root=root_of(*whole), ledger=ledger_of(*other))
        assert "never had the pinned root" in error.detail
    digest = record["content_hash"]
    twice = check(record, ledger=ledger_of(digest, digest), root=root_of(digest, digest))
    moved = check(record, ledger=ledger_of(digest).replace(b'"index": 0', b'"index": 1'), root=root_of(digest))
    for error in (twice, moved):
        assert "entries must be in order, each record once" in error.detail


def test_a_malformed_ledger_or_root_is_refused() -> None:
    good = ledger_of("11" * 32)
    for ledger in (
        b"{}\n", b"not json\n", good.replace(b'"index": 0', b'"index": 0, "index": 0'), good.replace(b'"leaf": "1', b'"leaf": "2'), b" " * 5000,
    ):  # fmt: skip
        assert check(signed(body()), ledger=ledger).code.value.startswith("file."), ledger[:99]
    assert check(signed(body()), ledger=b"{}\n" * 50_001).code is Code.FILE_TOO_LARGE
    for root in ("", "ab", "AB" * 32, "ab" * 32 + "\n"):
        assert check(signed(body()), root=root).code is Code.FILE_RULE


@given(data=st.data())
def test_a_real_record_with_any_byte_changed_is_refused_or_the_same(data: st.DataObject) -> None:
    name, raw = "record.json", (REAL / "record.json").read_bytes()
    assert verievals.read(raw, name, anchors=real_anchors()).mock is not None
    at = data.draw(st.integers(0, len(raw) - 1))
    forged = raw[:at] + data.draw(st.binary(max_size=4)) + raw[at + data.draw(st.integers(0, 9)) :]
    if refusal_or_none(lambda: verievals.read(forged, name, anchors=real_anchors())) is None:
        before, after = json.loads(raw), json.loads(forged)
        before.pop("envelope"), after.pop("envelope")  # which is not signed, and not used
        assert before == after
