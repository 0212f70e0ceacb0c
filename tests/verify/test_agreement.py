"""Issuer and verifier agree: on generated results, and on every change of one character.

Relying parties verify everything that the issuer signs, through JSON, YAML and both digests. They refuse everything
that it would refuse, even if it has been signed.
"""

import json
import math
import multiprocessing
import random
import struct
import unicodedata
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from issuer.errors import InputError, Refused
from issuer.formats import jcs
from issuer.issuance.judge import read_request
from issuer.results.entry import Entry, read_entries, result_file_name, write_entry
from issuer.verify.report import Report, Status
from tests.support import make
from tests.support.reports import judge_all
from tests.support.shared import examples

TRUST = make.trust()

PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
TEXT = PRINTABLE + " \n\t" + "éß漢字😀\u00a0\u2028\ufeff\u0301\x7f" + "\"'\\:#-?{}[]&*!|>%@`~"
WORDS = [
    "no", "on", "null", "~", "true", "1e3", "017", "12:30", "1_000", "0x1f", ".inf", "2026-11-21", "", " x ", "=", "<<", "- a", "a: b", "#",
]  # fmt: skip

SPECIAL_NUMBERS: list[float] = [
    0, 0.0, -0.0, 1, 100, 0.625, 20.9, 1e-7, 1e-6, 1e-5, 9.999e-6, 5e-324, 4503599627370495.5, 0.1 + 0.2, 2**53 - 1,
]  # fmt: skip


class Maker:
    """Makes bodies of `/tokens` by a seed: mostly good ones, and some that break one rule of the claims."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def body(self) -> dict[str, Any]:
        claims = {
            "model_repo": self.repo(), "model_revision": self.hex(), "benchmark_repo": self.repo(), "benchmark_revision": self.hex(),
            "task_id": self.printable(128), "metrics": self.metrics(),
            "framework": {"name": self.printable(64), "version": self.printable(64), **self.maybe("command", self.command)},
        }  # fmt: skip
        if self.random.random() < 0.15:
            self.break_one(claims)
        details = {
            **self.maybe("date", lambda: self.random.choice(["2026-11-21", "2026-11-21T09:00:00Z"])),
            **self.maybe("source", lambda: {"url": "https://a.example/x?y=%20#z", **self.maybe("name", self.text)}),
            **self.maybe("notes", self.text), **self.maybe("run", self.members), **self.maybe("benchmark_subset", self.text),
            **self.maybe("artifacts", lambda: [self.value(2) for _ in range(3)]), **self.maybe("runtime_context", self.members),
            **self.maybe("normalization", self.members),
        }  # fmt: skip
        return {"claims": claims, "details": details}

    def maybe(self, name: str, make_value: Any) -> dict[str, Any]:
        return {name: make_value()} if self.random.random() < 0.4 else {}

    def repo(self) -> str:
        parts = (self.random.choice("aZ9_") + self.random.choice(["", "b", "b-c.d_e", "Q" * 90]) for _ in range(2))
        return "/".join(parts)

    def hex(self) -> str:
        return f"{self.random.getrandbits(256):064x}"[: self.random.choice([40, 64])]

    def printable(self, longest: int) -> str:
        if self.random.random() < 0.1:
            return self.random.choice([word for word in WORDS if word.strip() == word != "" and " " not in word])
        return "".join(self.random.choices(PRINTABLE, k=self.random.choice([1, 2, 5, 12, longest])))

    def text(self) -> str:
        if self.random.random() < 0.3:
            return self.random.choice(WORDS)
        return "".join(self.random.choices(TEXT, k=self.random.randrange(1, 40)))

    def command(self) -> str:
        made = "".join(char for char in self.text() if unicodedata.category(char) != "Cc")
        return "run " + unicodedata.normalize("NFC", made)

    def number(self) -> float:
        kind = self.random.randrange(6)
        if kind == 0:
            return self.random.randrange(-(2**53) + 1, 2**53)
        if kind == 1:
            return self.random.choice(SPECIAL_NUMBERS)
        if kind == 2:
            value = float(struct.unpack(">d", self.random.getrandbits(64).to_bytes(8, "big"))[0])
            return value if math.isfinite(value) and not (value.is_integer() and abs(value) > 2**53 - 1) else 0.5
        return round(self.random.random() * 10.0 ** self.random.randrange(4), self.random.randrange(12))

    def metrics(self) -> list[dict[str, Any]]:
        made = {}
        for _ in range(self.random.choice([1, 1, 2, 3, 8])):
            metric: dict[str, Any] = {"metric_id": self.printable(20), "value": self.number()}
            metric |= self.maybe("slice", lambda: self.printable(9))
            if self.random.random() < 0.2:
                kind = self.random.choice(["float", "percentage"])
                metric |= {"value_type": kind, "sample_size": self.random.randrange(1, 2**53)}
            made[metric["metric_id"], metric.get("slice")] = metric
        return list(made.values())

    def value(self, depth: int) -> Any:
        kind = self.random.randrange(7 if depth else 5)
        if kind == 5:
            return [self.value(depth - 1) for _ in range(self.random.randrange(3))]
        if kind == 6:
            return {self.text() or "k": self.value(depth - 1) for _ in range(self.random.randrange(3))}
        return [True, False, self.number(), self.text(), self.number()][kind]

    def members(self) -> dict[str, Any]:
        return {
            self.text() or "k": self.random.choice([None, self.value(2), self.value(1)])
            for _ in range(self.random.randrange(4))
        }

    def break_one(self, claims: dict[str, Any]) -> None:
        metric = self.random.choice(claims["metrics"])
        change = self.random.choice([
            (claims, "model_repo", "a/b/c"), (claims, "model_revision", "main"), (claims, "benchmark_revision", "A" * 40),
            (claims, "task_id", "a b"), (claims, "task_id", ""), (claims, "metrics", []), (claims, "metrics", [metric, metric]),
            (claims, "extra", 1), (metric, "value", 1e16), (metric, "value", True), (metric, "value", "20.9"), (metric, "slice", ""),
            (metric, "unit", "percent"), (metric, "sample_size", 0), (claims["framework"], "name", "x" * 65),
            (claims["framework"], "command", "a\nb"), (claims["framework"], "url", "x"),
        ])  # fmt: skip
        target, name, value = change
        target[name] = value


def check_agreement(seed: int, count: int) -> tuple[int, int]:
    """Return how many of the bodies both sides accept, and how many both refuse."""
    maker, accepted, refused = Maker(seed), 0, 0
    for _ in range(count):
        body = maker.body()
        try:
            (item,) = read_request("single", json.dumps(body).encode()).submissions
        except Refused as error:
            if not all(fault.pointer.startswith("/claims") for fault in error.faults):
                raise
            assert not accepts_forced(body["claims"]), body
            refused += 1
            continue
        (token,) = make.issued((item,))
        claims, path = item.claims, result_file_name(item.claims.benchmark_repo)
        (report,) = judge(write_entry(item.form, token), claims.model_repo, path)
        assert report.verdict == "verified", (body, report)
        assert report.content_digest == item.content_digest
        accepted += 1
    return accepted, refused


def judge(text: str, repo: str = make.REPO, path: str = make.PATH) -> tuple[Report, ...]:
    return judge_all(text, TRUST, repo=repo, path=path)


def accepts_forced(claims: dict[str, Any]) -> bool:
    """Sign claims that the issuer refused, with honest digests where there are any, and say whether that verifies."""
    item = make.submission()
    try:
        payload = jcs.canonical({**make.payload_of(item), **claims, "claims_digest": jcs.digest(claims)})
    except ValueError:  # no canonical form: not even a forger could sign it as it is
        return False
    form = {**item.form, **{name: claims[name] for name in ("model_revision", "metrics", "framework")}}
    try:
        reports = judge(write_entry(form, make.signed(make.HEADER, payload)), claims["model_repo"])
    except (InputError, ValueError):
        return False
    return any(report.verdict == "verified" or report.checks[0].status is Status.PASS for report in reports)


def test_verifiers_accept_what_the_issuer_signs_and_refuse_what_it_refuses() -> None:
    accepted, refused = check_agreement(1, 400)
    assert accepted > 300
    assert refused > 30


@pytest.mark.long
def test_issuer_and_verifier_agree_on_a_hundred_thousand_results() -> None:
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as workers:
        found = list(workers.map(check_agreement, range(10, 50), [2_500] * 40))
    assert sum(accepted + refused for accepted, refused in found) == 100_000
    assert sum(refused for _, refused in found) > 5_000


ITEM = make.submission({"date": "2026-11-21", "notes": "no tools", "run": {"seed": 1}})
TOKEN = make.token_for(ITEM)
FILE = write_entry(ITEM.form, TOKEN)
(BEFORE,) = read_entries(FILE.encode(), make.PATH)


def owed(entry: Entry) -> set[int]:
    """Return the numbers under which contract section 6 has a changed entry fail: none where the change is immaterial."""
    if entry.token != BEFORE.token:
        return {1, 2, 3}  # one of them
    numbers = {9} if entry.form != BEFORE.form else set()
    if result_file_name(entry.dataset.id) != make.PATH:
        numbers.add(6)
    if any(getattr(entry, name) != getattr(BEFORE, name) for name in ("dataset", "model_revision", "framework")):
        numbers.add(7)
    if scores(entry) != scores(BEFORE):
        numbers.add(8)
    return numbers


def scores(entry: Entry) -> set[tuple[object, ...]]:
    return {(metric.metric_id, metric.slice or "", metric.value) for metric in entry.metrics or ()}


CHARACTERS = st.sampled_from(sorted({*FILE, *"\t\r#&*!|>%@`~?<=-_é\0\ufeff\u2028\ud7ff😀"}))
EDITS = st.sampled_from(["replace", "insert", "delete"])


def edited(text: str, place: int, char: str, how: str) -> str:
    return text[:place] + ("" if how == "delete" else char) + text[place + (how != "insert") :]


def assert_owed(text: str) -> None:
    try:
        entries = read_entries(text.encode(), make.PATH)
    except InputError:
        return
    for entry, report in zip(entries, judge(text), strict=True):
        if entry.token is None or entry.metrics is None:
            assert report.verdict == "unverified"
        elif entry.token != BEFORE.token:
            assert (set(report.failed) <= owed(entry), len(report.failed)) == (True, 1)
        else:
            assert set(report.failed) == owed(entry)
            assert report.verdict == ("failed" if report.failed else "verified")


@examples(600)
@given(st.integers(0, len(FILE) - 1), CHARACTERS, EDITS)
@example(FILE.index("- dataset"), "?", "replace")
@example(FILE.index("20.9"), "3", "replace")
@example(FILE.index('"openai/gsm8k"') + 8, "h", "replace")
@example(FILE.index("no tools"), "", "delete")
@example(FILE.index("accuracy"), "x", "insert")
def test_a_changed_character_of_a_file_is_immaterial_or_fails_under_the_right_number(
    place: int, char: str, how: str
) -> None:
    assert_owed(edited(FILE, place, char, how))


@examples(300)
@given(st.integers(0, len(TOKEN) - 1), st.sampled_from("ABab09-_.=+/ é"), EDITS)
def test_a_changed_character_of_a_token_fails_under_1_2_or_3_and_skips_the_rest(
    place: int, char: str, how: str
) -> None:
    token = edited(TOKEN, place, char, how)
    if token == TOKEN:
        return
    (report,) = judge(write_entry(ITEM.form, token))
    (number,) = report.failed
    assert number in {1, 2, 3}
    assert [check.number for check in report.checks if check.status is Status.SKIP] == [*range(number + 1, 12)]


@pytest.mark.long
def test_every_character_of_the_file_replaced_inserted_and_deleted() -> None:
    for place in range(len(FILE)):
        for how, char in (("replace", "0"), ("replace", "x"), ("insert", " "), ("insert", "0"), ("insert", "\n"), ("delete", "")):  # fmt: skip
            assert_owed(edited(FILE, place, char, how))
