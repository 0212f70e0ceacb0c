"""Where a log is served, by its origin line and the issuer's URL."""

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.errors import InputError
from issuer.policy.match import PolicySet
from issuer.service.http.public_documents import LogInfo, log_urls, metadata, prefixes
from issuer.tlog.note import NoteSigner

URL = "https://issuer.example/evals"
NAMED = "issuer.example/evals/log/2026-11-22-7f3a"


def test_a_log_has_its_own_prefix_and_that_of_the_current_log() -> None:
    assert prefixes(URL, NAMED) == ("/log/2026-11-22-7f3a", "/log")
    assert log_urls(URL, NAMED) == (f"https://{NAMED}", f"{URL}/log")


OTHER_ORIGINS = (
    "issuer.example/log/2026", "other.example/evals/log/2026", "https://issuer.example/evals/log/2026", "2026",
    *(f"issuer.example/evals/log{rest}" for rest in ("", "/", "/a/b", "/..", "/{path:path}", "/a%20b")),
    *(f"issuer.example/evals/log/{name}" for name in ("checkpoint", "tile", "proof", "log.json")),
)  # fmt: skip


def test_an_origin_that_is_not_a_path_of_this_issuer_has_no_own_prefix() -> None:
    assert [origin for origin in OTHER_ORIGINS if prefixes(URL, origin) != ("/log",)] == []


def test_log_json_has_the_origin_keys_urls_and_policy() -> None:
    info = LogInfo(URL, NAMED, ("a+1+b",), "quorum none\n")
    info_json = {"origin": NAMED, "vkeys": ["a+1+b"], "urls": [f"https://{NAMED}", f"{URL}/log"]}
    assert msgspec.json.decode(info.to_json()) == {**info_json, "witness_policy": "quorum none\n"}
    assert msgspec.json.decode(msgspec.structs.replace(info, witness_policy="").to_json()) == info_json


def test_a_log_has_the_keys_that_its_witness_policy_names_for_it() -> None:
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([each]) * 32) for each in range(3)]
    names = (NAMED, NAMED, "b.example")
    own, next_one, other = (NoteSigner(*each).verifier.to_text() for each in zip(names, keys, strict=True))
    policy = f"# ours\nlog {own}\nlog {other}\nlog {next_one}\nquorum none\n".encode()
    info = LogInfo.of(URL, NAMED, policy, "policy.txt")
    assert (info.vkeys, info.witness_policy.encode()) == ((own, next_one), policy)
    with pytest.raises(InputError, match=r"policy\.txt:1:1"):
        LogInfo.of(URL, NAMED, b"log nothing\nquorum none\n", "policy.txt")


def test_the_metadata_of_an_issuer_with_a_log_names_it() -> None:
    policies = PolicySet({}, {}, {}, {}, "sha256:0")
    log_url = log_urls(URL, NAMED)[0]
    published = msgspec.json.decode(metadata(URL, policies, verifies=False, log_origin=NAMED, log_url=log_url))
    assert (published["log_origin"], published["log_url"]) == (NAMED, f"https://{NAMED}")
    assert not {"log_origin", "log_url"} & msgspec.json.decode(metadata(URL, policies, verifies=False)).keys()
