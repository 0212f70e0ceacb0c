"""A hub with results of every kind: every tier, every reason to be refuted, and unreadable files. Real claims and
signatures, by two issuers, one of them without a current revocation list.

Repositories take the kinds in turn, so their number gives the number of each kind.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON
from issuer.results.entry import Submission, write_entry
from issuer.verify.check_log import sidecar_name
from issuer.verify.report import Tier
from tests.support import make
from tests.support.tree import write_result
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, policy_text

SILENT = "https://silent.example"  # the issuer with an old list
TASKS = 5
BENCHMARK_REVISION = str(make.claims()["benchmark_revision"])
Place = tuple[str, str, str]  # repository, file name, pointer
Entry = tuple[str, Tier]


def owner(number: str) -> dict[str, JSON]:
    return {"provider": "github", "issuer": "https://ci.example", "repository_owner_id": number}


class WholeHub:
    """Writes repositories below `folder/hub`, judged at `now` (Unix seconds), with a trust file and definitions beside.

    `tiers` has the tier of each readable entry, `unread` the number of unreadable files and folders, `refuted_by` the check
    that refutes an entry, and `doubled` the entries with the jti of another one.
    """

    def __init__(self, folder: Path, repositories: int, now: int) -> None:
        self.folder, self.now = folder, now
        self.tiers: dict[Place, Tier] = {}
        self.refuted_by: dict[Place, int] = {}
        self.doubled: set[Place] = set()
        self.unread = 0
        self.number = 0
        self._logged: list[tuple[Path, str]] = []
        self._revoked: list[JSON] = []
        for number in range(repositories):
            KINDS[number % len(KINDS)](self, f"owner{number % 7}/model{number}")
        self._write_proofs()
        self._write_trust()
        for task in range(TASKS):
            path = folder / "benchmarks" / f"bench/task-{task}" / BENCHMARK_REVISION / "eval.yaml"
            path.parent.mkdir(parents=True)
            path.write_text(make.BENCHMARK_TEXT)

    # -- entries --------------------------------------------------------------------------------------------------------

    @property
    def task(self) -> int:
        """The number of the benchmark whose turn it is."""
        return self.number % TASKS

    def run(self, repo: str, details: Mapping[str, JSON] | None = None, **claims: Any) -> Submission:
        """Return a run of a model with a new value, on the benchmark of its turn."""
        said: dict[str, Any] = {
            "model_repo": repo, "benchmark_repo": f"bench/task-{self.task}",
            "metrics": [{"metric_id": "accuracy", "value": self.number % 97 / 100}],
        }  # fmt: skip
        return make.submission(details, **{**said, **claims})

    def token(self, item: Submission, key: Ed25519PrivateKey = make.KEY, *, ago_s: int = 0, **terms: Any) -> str:
        """Sign a token for a run, now or `ago_s` before, with a new jti."""
        self.number += 1
        iat = self.now - ago_s
        good = {
            "iat": iat, "nbf": iat, "exp": iat + 3600, "caller": owner("1"),
            "jti": jose.base64url_encode(self.number.to_bytes(16, "big")),
        }  # fmt: skip
        header = {**make.HEADER, "kid": str(jose.public_jwk(key.public_key())["kid"])}
        payload = make.payload_of(item, **{**good, **terms})
        signing_input = jose.signing_input(header, jcs.canonical(payload))
        return jose.compact(signing_input, jose.sign(key, signing_input))

    def put(self, repo: str, *entries: Entry, task: int | None = None, refuted_by: int = 0) -> Path:
        """Write the one file of a repository, and note the tiers of its entries."""
        name = f"task_{self.task if task is None else task}.yaml"
        for number, (_, tier) in enumerate(entries):
            self.tiers[repo, name, f"/{number}"] = tier
            if tier == "refuted":
                self.refuted_by[repo, name, f"/{number}"] = refuted_by
        return write_result(self.folder / "hub", repo, name, "".join(text for text, _ in entries))

    def signed(self, repo: str, tier: Tier, *, refuted_by: int = 0, shown: Any = None, **terms: Any) -> Path:
        """Write a repository with one entry and a token with these terms; `shown` makes the entry's form of the run."""
        item, task = self.run(repo), self.task
        token = self.token(item, **terms)
        form = (shown or (lambda run: run.form))(item)
        return self.put(repo, (write_entry(form, token), tier), task=task, refuted_by=refuted_by)

    def log(self, path: Path, token: str) -> None:
        self._logged.append((path, token))

    def revoke(self, jti: str) -> None:
        self._revoked.append(jti)

    def lose(self, repo: str, text: bytes, name: str = "task_0.yaml") -> None:
        write_result(self.folder / "hub", repo, name, text)
        self.unread += 1

    # -- trust ------------------------------------------------------------------------------------------------------------

    def _write_proofs(self) -> None:
        log = TestLog(*(token for _, token in self._logged))
        note = log.note({0: self.now, 1: self.now})
        for path, token in self._logged:
            path.with_name(sidecar_name(path.name, leaf_of(token).token)).write_bytes(log.proof(token, note=note))

    def _write_trust(self) -> None:
        def terms(issuer: str, **more: Any) -> bytes:
            return make.revocation_list(iss=issuer, **{"iat": self.now - 60, "next_update": self.now + 86_400, **more})

        sub = [{"sub": "stolen", "from": 0}]
        (self.folder / "revoked.jwt").write_bytes(terms(make.ISSUER, jti=self._revoked, sub=sub))
        old = {"iat": self.now - 9 * 86_400, "next_update": self.now - 5 * 86_400}
        (self.folder / "old.jwt").write_bytes(terms(SILENT, **old))
        (self.folder / "keys.json").write_bytes(make.jwks())
        (self.folder / "silent.json").write_bytes(make.jwks(make.STRANGER))
        (self.folder / "lists.json").write_bytes(make.jwks(make.REVOCATION_KEY))
        (self.folder / "policy").write_text(policy_text(2))
        own = 'frameworks: ["inspect-ai", "lm-eval"]'
        (self.folder / "trust.yaml").write_text(
            f'version: 1\naudience: "{make.AUDIENCE}"\nrevocation_keys: {{file: lists.json}}\nissuers:\n'
            f'  - {{issuer: "{make.ISSUER}", keys: {{file: keys.json}}, revocations: {{file: revoked.jwt}},'
            f" log: {{policy: {{file: policy}}}}, {own}}}\n"
            f'  - {{issuer: "{SILENT}", keys: {{file: silent.json}}, revocations: {{file: old.jwt}}, {own}}}\n'
        )


Kind = Callable[[WholeHub, str], object]


def one(tier: Tier, **how: Any) -> Kind:
    """Return the kind of one entry, `signed` so."""
    return lambda hub, repo: hub.signed(repo, tier, **how)


def twice(first: Tier, **terms: Any) -> Kind:
    """Return the kind of two entries: the second, with these terms, says that it reproduces the first."""

    def kind(hub: WholeHub, repo: str) -> None:
        item, task, other = hub.run(repo), hub.task, {"name": "lm-eval", "version": "0.4"}
        again = hub.run(repo, {"run": {"reproduces": item.content_digest}}, framework=other)
        entries = write_entry(item.form, hub.token(item)), write_entry(again.form, hub.token(again, ago_s=-1, **terms))
        hub.put(repo, (entries[0], first), (entries[1], "verified"), task=task)

    return kind


def logged(hub: WholeHub, repo: str) -> None:
    item, task = hub.run(repo), hub.task
    token = hub.token(item, log=ORIGIN)
    hub.log(hub.put(repo, (write_entry(item.form, token), "logged"), task=task), token)


def without_a_token(hub: WholeHub, repo: str) -> None:
    hub.put(repo, (write_entry(hub.run(repo).form), "self-reported"))


def in_the_hub_s_own_form(hub: WholeHub, repo: str) -> None:
    hub.put(repo, ('- {dataset: {id: "bench/task-1", task_id: "gsm8k"}, value: 20.9}\n', "self-reported"), task=1)


def beside_one_without_a_token(hub: WholeHub, repo: str) -> None:
    item, task = hub.run(repo), hub.task
    form = write_entry(item.form, hub.token(item))
    hub.put(repo, (write_entry(item.form), "self-reported"), (form, "verified"), task=task)


def in_a_file_of_another_name(hub: WholeHub, repo: str) -> None:
    item, task = hub.run(repo), hub.task
    hub.put(repo, (write_entry(item.form, hub.token(item)), "undecided"), task=(task + 1) % TASKS)


def with_a_bad_signature(hub: WholeHub, repo: str) -> None:
    item, task = hub.run(repo), hub.task
    head, body, _ = hub.token(item).split(".")
    forged = ".".join((head, body, jose.base64url_encode(bytes(64))))
    hub.put(repo, (write_entry(item.form, forged), "refuted"), task=task, refuted_by=3)


def of_another_model(hub: WholeHub, repo: str) -> None:
    item, task = hub.run("acme/other"), hub.task
    hub.put(repo, (write_entry(item.form, hub.token(item)), "undecided"), task=task)


def taken_back(hub: WholeHub, repo: str) -> None:
    jti = jose.base64url_encode(b"revoked." + hub.number.to_bytes(8, "big"))
    hub.revoke(jti)
    hub.signed(repo, "refuted", refuted_by=5, jti=jti)


def with_a_jti_that_another_repository_has(hub: WholeHub, repo: str) -> None:
    jti = jose.base64url_encode(b"doubled." + hub.number.to_bytes(8, "big"))
    for each in (repo, f"{repo}-too"):
        path = hub.signed(each, "refuted", refuted_by=5, jti=jti)
        hub.doubled.add((each, path.name, "/0"))


def with_one_jti_twice(hub: WholeHub, repo: str) -> None:
    jti = jose.base64url_encode(b"onefile." + hub.number.to_bytes(8, "big"))
    first, second, task = hub.run(repo), hub.run(repo, {"notes": "again"}), hub.task
    each: list[Entry] = [(write_entry(item.form, hub.token(item, jti=jti)), "refuted") for item in (first, second)]
    path = hub.put(repo, *each, task=task, refuted_by=5)
    hub.doubled |= {(repo, path.name, pointer) for pointer in ("/0", "/1")}


def that_stands_there_twice(hub: WholeHub, repo: str) -> None:
    item, task = hub.run(repo), hub.task
    text = write_entry(item.form, hub.token(item))
    hub.put(repo, (text, "verified"), (text, "verified"), task=task)


def that_cannot_be_read(hub: WholeHub, repo: str) -> None:
    hub.lose(repo, b"- [")
    hub.lose(repo, b"\xff\xfe", "a<b>|`x`.yaml")
    hub.lose(repo, b"", "empty.yaml")
    hub.lose(repo, b"[" * 100_000, "deep.yaml")
    hub.lose(repo, b"- {}\n", "nothing.yaml")
    hub.lose(repo, b"- {}\n" * 1001, "many.yaml")
    hub.lose(repo, b"- {dataset: {id: a/b}, value: 1, value: 2}\n", "twice.yaml")
    hub.lose(repo, b"- &a {value: 1}\n- *a\n", "alias.yaml")
    with open(os.fsencode(hub.folder / "hub" / repo / ".eval_results") + b"/\xff\x1b[2J.yaml", "wb"):
        hub.unread += 1


def that_is_huge(hub: WholeHub, repo: str) -> None:
    hub.lose(repo, b"x" * 1_100_000)


def that_leads_out(hub: WholeHub, repo: str) -> None:
    place = hub.folder / "hub" / repo
    (place / ".eval_results").mkdir(parents=True)
    (place / ".eval_results" / "link.yaml").symlink_to("/etc/passwd")
    (hub.folder / "hub" / f"{repo}-too").mkdir()
    (hub.folder / "hub" / f"{repo}-too" / ".eval_results").symlink_to("/etc")
    hub.unread += 2


KINDS: tuple[Kind, ...] = (
    one("verified"),
    logged,
    one("verified", log=ORIGIN),  # in no log
    twice("reproduced", sub="lm-eval", caller=owner("2")),
    twice("verified", caller=owner("2")),  # by the same framework
    twice("verified", sub="lm-eval"),  # for the same owner
    one("signed", key=make.STRANGER, iss=SILENT),  # by an issuer that says nothing of revocations
    without_a_token,
    in_the_hub_s_own_form,
    beside_one_without_a_token,
    one("undecided", iss="https://other.example"),
    one("undecided", aud="https://other.example"),
    one("undecided", ago_s=7200),  # received too late
    in_a_file_of_another_name,
    with_a_bad_signature,
    one("refuted", refuted_by=7, shown=lambda run: {**run.form, "model_revision": "a" * 40}),
    one("refuted", refuted_by=8, shown=lambda run: {**run.form, "metrics": [{"metric_id": "accuracy", "value": 0.99}]}),
    one("refuted", refuted_by=9, shown=lambda run: {**run.form, "notes": "no tools"}),  # the note is not signed
    of_another_model,
    taken_back,
    one("refuted", refuted_by=5, sub="stolen"),
    with_a_jti_that_another_repository_has,
    with_one_jti_twice,
    that_stands_there_twice,
    that_cannot_be_read,
    that_is_huge,
    that_leads_out,
    lambda hub, repo: write_result(hub.folder / "hub", repo, "README.md", "# Nothing"),
)
