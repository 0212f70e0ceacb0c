"""The ports of the line that wait for others, each with a clock before it: how long it took, whatever it answered."""

from __future__ import annotations

from time import perf_counter_ns

from issuer.issuance.ports import Admission, AdmissionRequest, Admitted, Counted, Log, Signer
from issuer.service.metrics.counts import Histogram
from issuer.verify_token import Template
from issuer.wire import LogEntry


class TimedAdmission:
    """Implements `issuance.ports.Admission` by another one."""

    def __init__(self, admission: Admission, took: Histogram) -> None:
        self._admission, self._took = admission, took

    async def admit(self, call: AdmissionRequest) -> Admitted:
        """As `Admission.admit`."""
        began = perf_counter_ns()
        try:
            return await self._admission.admit(call)
        finally:
            self._took.observe(perf_counter_ns() - began)

    async def count(self, call: AdmissionRequest) -> Counted:
        """As `Admission.count`."""
        began = perf_counter_ns()
        try:
            return await self._admission.count(call)
        finally:
            self._took.observe(perf_counter_ns() - began)


class TimedLog:
    """Implements `issuance.ports.Log` by another one."""

    def __init__(self, log: Log, took: Histogram) -> None:
        self._log, self._took = log, took
        self.check = log.check

    @property
    def origin(self) -> str | None:
        """As `Log.origin`."""
        return self._log.origin

    async def append(self, template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """As `Log.append`."""
        began = perf_counter_ns()
        try:
            return await self._log.append(template, signing_inputs)
        finally:
            self._took.observe(perf_counter_ns() - began)


class TimedSigner:
    """Implements `issuance.ports.Signer` by another one."""

    def __init__(self, signer: Signer, took: Histogram) -> None:
        self._signer, self._took = signer, took
        self.max_message_bytes = signer.max_message_bytes

    @property
    def active_kid(self) -> str:
        """As `Signer.active_kid`."""
        return self._signer.active_kid

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """As `Signer.usable_kids`."""
        return self._signer.usable_kids

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """As `Signer.sign`."""
        began = perf_counter_ns()
        try:
            return await self._signer.sign(kid, signing_inputs)
        finally:
            self._took.observe(perf_counter_ns() - began)
