"""The checks of the service's keys and their schedule, the list of revocations, the policies, the log and the audit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from issuer.audit.chain import BROKEN, Chains, TooMany
from issuer.audit.reader import read_in_order
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats.findings import Line, failed, looked, surviving
from issuer.formats.times import show_span, show_when
from issuer.io.common_documents import Home
from issuer.policy.authoring.load import check_policies
from issuer.policy.authoring.suite import PolicyTestOutcome
from issuer.service.log.bounds import LOG_HOST_CONNECTIONS, LOG_WORKER_CONNECTIONS
from issuer.service.log.database.engines import connections_at, database_at, home_of, reading_at
from issuer.service.log.database.store import Reader, StoreFailed
from issuer.service.log.sequencer.setup import log_settings, read_seal, records_of
from issuer.service.revocation.ledger import Ledger
from issuer.service.settings.model import EMBEDDED, Settings
from issuer.service.signing.bounds import FEW_KEYS_LEFT, HISTORY_TURN_S
from issuer.service.signing.commands import Custody
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.inventory import Inventory
from issuer.service.signing.key_files import KeyFile, in_state, states_of
from issuer.service.signing.lifecycle import Lives, keys_left, steps

DAY_S = 86_400
_Check = Callable[[Settings, Home, int], Iterator[Line]]


def look_at_records(settings: Settings, now: int) -> Iterator[Line]:
    """Yield the lines about keys, revocations, policies and the log, at `now` in Unix seconds."""
    for name, check in (("data", _data), ("keys", _keys), ("revocations", _revocations)):
        yield from surviving(name, _with_home(check, settings, now))
    yield from surviving("policies", _policies(settings, now))
    yield from surviving("log", _log(settings))


def _with_home(check: _Check, settings: Settings, now: int) -> Iterator[Line]:
    with closing(home_of(Path(settings.data), settings.log.origin, settings.log_place)) as home:
        yield from check(settings, home, now)


def _data(settings: Settings, home: Home, _now: int) -> Iterator[Line]:
    yield looked("data", lambda: f"nothing is missing of {len(Inventory(settings, home).demand())} parts")


def _keys(settings: Settings, home: Home, now: int) -> Iterator[Line]:
    custody = Custody(settings.keys_folder, KeyHistory(home, HISTORY_TURN_S), settings.passphrase, now)
    keys, lives = custody.look()
    bad = [file for file in keys if file.why or not file.opened]
    for file in bad:
        why = file.why or f"{file.path} is encrypted: name its passphrase in `keys.passphrase_file`"
        yield failed("keys", SetupError(Code.KEY_UNUSABLE, why))
    if not in_state(keys, "active"):
        step = "Run `issuer keys rotate --compromised`. If there never was a key, run `issuer keys generate`."
        yield failed("keys", SetupError(Code.KEY_UNUSABLE, "no key is active: no token is issued"), step=step)
    elif not bad:
        yield Line("keys", "pass", f"{len(keys)} can be opened, and only this user can read them")
    yield _schedule(keys, lives, now)


def _schedule(keys: list[KeyFile], lives: Lives, now: int) -> Line:
    if (left := keys_left(lives)) < FEW_KEYS_LEFT:
        return Line("key schedule", "warning", f"only {left} more keys may ever sign", "Rotate less often.")
    step = steps(states_of(keys), lives, now)[0]
    if step.do != "generate" and step.due is not None and step.due <= now - DAY_S:
        detail = f"`{step.do}` of {step.kid} was due {show_when(step.due, now)}"
        return Line("key schedule", "warning", detail, "Run `issuer keys rotate`.")
    return Line("key schedule", "pass", "no step is overdue; `issuer keys rotate --plan` shows the next ones")


def _revocations(settings: Settings, home: Home, now: int) -> Iterator[Line]:
    ledger = Ledger(home, settings.url).read()
    if ledger.error is not None:
        yield failed("revocations", ledger.error, detail=f"{ledger.error.place}: {ledger.error.detail}",
                     step="Restore the file from its backup, as deploy/STATE.md says.")  # fmt: skip
    elif ledger.published is not None:
        yield _list_line(ledger.items.count, ledger.published.listed.next_update - now)
    elif ledger.items.count:
        step = "Run `issuer revocations init`, then `issuer revocations renew`."
        yield Line("revocations", "warning", f"{ledger.items.count} revocations, but no published list", step)
    else:
        yield Line("revocations", "pass", "no revocations, and no list")


def _list_line(count: int, left_s: int) -> Line:
    if left_s <= 0:
        detail = f"the list expired {show_span(-left_s)} ago: relying parties cannot check any token against it"
        return failed("revocations", SetupError(Code.MACHINE_FAILED, detail), step="Run `issuer revocations renew`.")
    if left_s < DAY_S:
        step = "Run `issuer revocations renew`, and find out why its timer did not."
        return Line("revocations", "warning", f"the list expires in {show_span(left_s)}", step)
    return Line("revocations", "pass", f"{count} revocations; the list is valid for {show_span(left_s)}")


def _policies(settings: Settings, now: int) -> Iterator[Line]:
    tests: list[PolicyTestOutcome] = []
    folder = settings.policies_folder
    step = f"Run `issuer policy check {folder} --url {settings.url}`: it shows all errors."
    try:
        policies, findings = check_policies(
            folder,
            settings.url,
            now,
            development=settings.development,
            ceilings=settings.ceilings,
            tell=tests.extend,
        )
    except InputError as error:
        yield failed("policies", error, detail=f"{error.place}: {error.detail}", step=step)
        return
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors or policies is None:
        first = errors[0]
        wrong = InputError(first.code, first.detail, first.place)
        yield failed("policies", wrong, detail=f"{first.place}: {first.detail} ({len(errors)} in all)", step=step)
    elif findings:
        yield Line("policies", "warning", f"{findings[0].place}: {findings[0].detail} ({len(findings)} in all)", step)
    else:
        count = len(policies.policies)
        yield Line("policies", "pass", f"{count} load; {len(tests)} of their tests pass; {policies.digest}")


def _log(settings: Settings) -> Iterator[Line]:
    if not settings.log.origin:
        yield Line("log", "pass", "off, because `log.origin` is not set")
        return
    yield looked("log", lambda: _compare(settings), step="See deploy/LOG.md about a refused start of the log.")
    with suppress(StoreFailed, SetupError):  # the line before says so
        if (most := connections_at(settings.log_place)) is not None:
            yield _connections(most)


def _connections(most: int) -> Line:
    """Compare the connections that PostgreSQL accepts with those of a host with a worker for each of its processors."""
    workers, processors = (most - LOG_HOST_CONNECTIONS) // LOG_WORKER_CONNECTIONS, os.cpu_count() or 1
    needs = f"a host needs {LOG_HOST_CONNECTIONS}, and {LOG_WORKER_CONNECTIONS} for each worker"
    detail = f"PostgreSQL accepts {most} connections of this account; {needs}"
    step = "Raise `max_connections`, or the limit of the account or the database, for the workers of all hosts."
    if workers < 1:
        return failed("log connections", SetupError(Code.STATE_UNREACHABLE, detail), step=step)
    if workers < processors:
        return Line("log connections", "warning", detail, step)
    return Line("log connections", "pass", f"{detail}: enough for {workers} workers in all")


def _compare(settings: Settings) -> str:
    """Compare the log's head with its records. Unlike the service at its start, this never updates a record."""
    log = log_settings(settings, "" if settings.store.url == EMBEDDED else settings.store.url)
    place = database_at(log.database).place  # without a password
    try:
        with closing(records_of(log, read_seal(log))) as records, closing(reading_at(log.database)) as reading:
            head, shown = Reader(reading).head(), records.ask()
    except StoreFailed as error:
        raise SetupError(Code.STATE_UNREACHABLE, f"the log at {place}: {error}") from error
    if head is None:
        raise SetupError(Code.LOG_ABSENT, f"{place} has no log")
    for evidence in shown:
        if evidence.checkpoint.size > head.size:
            detail = f"{evidence.name} shows {evidence.checkpoint.size} leaves, but the database has only {head.size}"
            raise SetupError(Code.LOG_ROLLBACK, detail)
    if not shown:
        raise SetupError(Code.LOG_UNRECORDED)
    return f"{head.size} leaves; {len(shown)} records agree"


def look_at_audit(file: Path) -> Iterator[Line]:
    """Yield whether the audit file is intact. The whole file is read."""
    if not file.exists():
        yield Line("audit", "pass", f"{file} will be made at the start")
        return
    step = f"Run `issuer audit verify {file}`, and follow deploy/AUDIT.md."
    yield looked("audit", lambda: _verify(file), step=step)


def _verify(file: Path) -> str:
    chains = Chains({})
    try:
        broken = [finding for line in read_in_order([file]) for finding in chains.read(line) if finding.kind in BROKEN]
    except TooMany:
        raise InputError(Code.FILE_TOO_LARGE, "the file has too many chains for one check", Place(str(file))) from None
    for finding in broken:
        raise InputError(Code.FILE_RULE, f"{finding.kind}: {finding.detail}", Place(str(file), finding.line, 1))
    return f"{chains.linked} events of {len(chains.chains)} workers are unchanged"
