"""Where a log is served, by its origin line and the issuer's URL."""

from __future__ import annotations

import msgspec
import pytest

from issuer.service.http.log_info import LogInfo, log_urls, prefixes

URL = "https://issuer.example/evals"
NAMED = "issuer.example/evals/log/2026-11-22-7f3a"


def test_a_log_has_a_prefix_that_is_always_its_own_and_one_that_is_that_of_the_log_of_today() -> None:
    assert prefixes(URL, NAMED) == ("/log/2026-11-22-7f3a", "/log")
    assert log_urls(URL, NAMED) == (f"https://{NAMED}", f"{URL}/log")


@pytest.mark.parametrize(
    "origin",
    [
        "issuer.example/log/2026",  # another path
        "other.example/evals/log/2026",
        "issuer.example/evals/log",
        "issuer.example/evals/log/",
        "issuer.example/evals/log/a/b",
        "issuer.example/evals/log/..",
        "issuer.example/evals/log/{path:path}",
        "issuer.example/evals/log/a%20b",
        *(f"issuer.example/evals/log/{name}" for name in ("checkpoint", "tile", "proof", "log.json")),
        "https://issuer.example/evals/log/2026",
        "2026",
    ],
)
def test_an_origin_that_names_no_path_of_this_issuer_has_no_prefix_of_its_own(origin: str) -> None:
    assert prefixes(URL, origin) == ("/log",)


def test_a_log_says_its_origin_keys_urls_and_policy_and_no_policy_where_there_is_none() -> None:
    info = LogInfo(URL, NAMED, ("a+1+b",), "quorum none\n")
    told = {"origin": NAMED, "vkeys": ["a+1+b"], "urls": [f"https://{NAMED}", f"{URL}/log"]}
    assert msgspec.json.decode(info.to_json()) == {**told, "witness_policy": "quorum none\n"}
    assert msgspec.json.decode(msgspec.structs.replace(info, witness_policy="").to_json()) == told
