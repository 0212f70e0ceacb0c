"""Clients of services with a log, which keep all their answers, and the promises about these at the end.

P1 every token that was returned is in every later tree; P2 no two checkpoints disagree; P3 no token without its leaf:
every repeated request, also after no answer, gets the same token at the same place; P5 a reader
that shares no code with the issuer verifies the exported tree.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from issuer.io import keyfile
from issuer.relying.logs.reader import TimedCheckpoint, export, parse_head
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.public import StoredFiles
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.records import FileRecord
from issuer.service.log.sequencer.setup import log_settings
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.note import NoteSigner, parse_note
from issuer.tlog.proof import parse_proof
from issuer.tlog.watch import Alarm, Announced, Times, Watch
from tests.support.log_readers import Seen, check_with_go, check_with_scales
from tests.support.logged import leaf_of
from tests.support.received import Received
from tests.support.running import Running, numbered
from tests.support.waiting import eventually, within

WAIT_S = 90
# A caller tries again: no worker, a killed worker, a missing dependency, a limit.
AGAIN = {429, 502, 503}


class Request:
    """One request of a client, and all tokens that answered it."""

    def __init__(self, identity: str, bodies: list[Any]) -> None:
        self.identity = identity
        self.bodies = bodies
        self.tokens: set[tuple[str, ...]] = set()


class Promised:
    """All answers to the clients of one log. For any thread."""

    def __init__(self, service: Running) -> None:
        self.origin = service.settings.log.origin
        key = keyfile.read(Path(log_settings(service.settings, "").key_file), None)
        self.vkey = NoteSigner(self.origin, key).verifier.to_text()
        self.received = Received(self.origin, NoteSigner(self.origin, key).verifier)
        self.notes: dict[int, bytes] = {}
        self.requests: list[Request] = []
        self.outcomes: Counter[str] = Counter()

    def request(self, service: Running, *numbers: int) -> Request:
        """Make a request for results of these numbers: one alone, or several as a batch."""
        made = Request(service.token(), [numbered(number) for number in numbers])
        self.requests.append(made)
        return made

    def ask(self, service: Running, request: Request, http: httpx.Client | None = None) -> bool:
        """Send a request once; say whether it was answered. The answer is verified and kept."""
        batch = len(request.bodies) > 1
        sent = {"results": request.bodies} if batch else request.bodies[0]
        try:
            path, bearer = "/tokens/batch" if batch else "/tokens", {"Authorization": f"Bearer {request.identity}"}
            answer = (http or service.http).post(path, json=sent, headers=bearer)
        except httpx.TransportError:
            self.outcomes["no answer"] += 1
            return False
        if answer.status_code in AGAIN:
            assert "verify_token" not in answer.text
            self.outcomes[f"{answer.status_code} {answer.json()['code']}"] += 1
            return False
        assert answer.status_code in {200, 201}, answer.text
        self.outcomes["answered"] += 1
        self._take(request, answer.json()["tokens"] if batch else [answer.json()])
        return True

    def settle(self, service: Running, requests: list[Request] | None = None) -> None:
        """Repeat requests, or all, until each is answered."""
        for request in self.requests if requests is None else requests:
            assert within(WAIT_S, partial(self.ask, service, request)), self.outcomes

    def demand_promises(self, service: Running, folder: Path, *, go: bool = False) -> Seen:
        """Demand P1 to P5 of all answers; the tree is exported to the folder."""
        assert all(len(request.tokens) == 1 for request in self.requests), "a retry got another token, or none"
        with closing(reading_at(log_settings(service.settings, "").database)) as reading:
            self.received.demand_kept(Reader(reading))
            demand_no_alarm(Reader(reading))
        eventually(lambda: self._is_recorded(service))
        export_of(service, folder)
        check = check_with_go if go else check_with_scales
        seen = check(folder, self.vkey, self._some(self.received.indexes.values()), list(self._older()))
        leaves = {index: leaf for leaf, index in self.received.indexes.items()}
        assert all(leaves[index] == entry for index, entry in seen.entries.items())
        return seen

    def _is_recorded(self, service: Running) -> bool:
        """Say whether the service's record has all received checkpoints. A host records another host's when it appends next, or
        when readiness asks it."""
        if record_of(service).checkpoint.size >= max(self.notes, default=0):
            return True
        service.http.get("/health/ready")
        return False

    def _take(self, request: Request, answers: list[dict[str, Any]]) -> None:
        request.tokens.add(tuple(each["verify_token"] for each in answers))
        for each in answers:
            place = each["log"]
            assert place["origin"] == self.origin
            self.received.take(leaf_of(each["verify_token"]), place["index"], place["proof"].encode())
            note = parse_proof(place["proof"].encode()).checkpoint
            self.notes[parse_checkpoint(parse_note(note).text).size] = note

    def _older(self) -> Iterator[bytes]:
        """Return received checkpoints for proofs of consistency: the first, the last, and some between."""
        yield from (self.notes[size] for size in self._some(self.notes))

    def _some(self, numbers: Any) -> list[int]:
        every = sorted(numbers)
        return [*every[:: -(-len(every) // 100) or 1], *every[-1:]]


def demand_no_alarm(reader: Reader) -> None:
    """Demand that the log's leaves cause no alarm of a monitor, without a look at their times."""
    head, watch = reader.head(), Watch(Announced())
    leaves = reader.leaves(0, head.size) if head else ()
    lines = [line for index, leaf in enumerate(leaves) for line in watch.take(index, leaf, Times())]
    assert not [line for line in lines if isinstance(line, Alarm)]


def export_of(service: Running, folder: Path, note: bytes | None = None) -> TimedCheckpoint:
    """Write the tree of a checkpoint, or of the newest one that the service's record has, as files into a folder."""
    head = record_of(service) if note is None else parse_head(note)
    with closing(StoredFiles(log_settings(service.settings, "").database)) as stored:
        export(stored, head, folder)
    return head


def record_of(service: Running) -> TimedCheckpoint:
    log = log_settings(service.settings, "")
    raw = FileRecord(Path(log.records), log.origin).read()
    assert raw is not None
    return parse_head(raw)
