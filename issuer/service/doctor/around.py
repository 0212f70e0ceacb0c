"""What is around the service: its providers, this machine's clock, the address where it listens, the proxy in front."""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
from collections.abc import Iterator
from functools import partial

from msgspec import UNSET

from issuer.codes import Code
from issuer.diagnosis import Line, failed, looked, surviving
from issuer.errors import InputError, SetupError, Undecided
from issuer.http_client import HttpRequest, NoAnswer, send
from issuer.identity.provider import KeySource, Provider
from issuer.policy.authoring.load import load_policies
from issuer.service.authn.fetch import FAILURES, Fetcher, reason
from issuer.service.authn.introspection import demand_secret
from issuer.service.bounds import DOCTOR_ANSWER_S
from issuer.service.settings import Settings
from issuer.service.workers import listen_addresses

_UNSET = 5  # TIME_ERROR of adjtimex(2): nobody sets this clock


def look_around(settings: Settings) -> Iterator[Line]:
    """Yield the providers, the clock, the address and the proxy."""
    yield from surviving("providers", _providers(settings))
    for name, look in (("time", _time), ("address", _address), ("proxy", _proxy)):
        yield from surviving(name, map(look, (settings,)))


# -- providers --------------------------------------------------------------------------------------------------------


def _providers(settings: Settings) -> Iterator[Line]:
    try:
        found = load_policies(settings.policies_folder, settings.url, development=settings.development).providers
    except InputError:  # the line of the policies says why
        return
    for provider in found.values():
        if provider.introspection is not None:
            yield looked(f"secret of {provider.id}", partial(_secret_of, provider))
    keyed = [provider for provider in found.values() if provider.algorithms and not _has_keys(provider)]
    yield from asyncio.run(_fetch_all(keyed, development=settings.development))


def _has_keys(provider: Provider) -> bool:
    return isinstance(provider.keys, KeySource) and provider.keys.static is not UNSET


def _secret_of(provider: Provider) -> str:
    demand_secret(provider)
    return "can be read, and by nobody else"


async def _fetch_all(providers: list[Provider], *, development: bool) -> list[Line]:
    fetcher = Fetcher(development=development)
    return await asyncio.gather(*(_fetch(fetcher, provider) for provider in providers))


async def _fetch(fetcher: Fetcher, provider: Provider) -> Line:
    name = f"provider {provider.id}"
    try:
        keys = await fetcher.fetch(provider, lambda: None)
    except FAILURES as failure:
        error = Undecided(Code.DEPENDENCY_ISSUER_KEYS, f"{provider.issuer}: {reason(failure)}")
        step = "Let this machine reach it by https, and look whether its `issuer` in providers.yaml is right."
        return failed(name, error, step=step)
    return Line(name, "pass", f"{provider.issuer} publishes {len(keys.keys)} usable keys")


# -- this machine -----------------------------------------------------------------------------------------------------


def _time(_: Settings) -> Line:
    """Ask the kernel whether somebody sets its clock; nothing is set by asking."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):  # not Linux
        state = -1
    if state == _UNSET:
        return Line(
            "time", "warning", "nobody sets this machine's clock", "Run an NTP client: `systemctl status chrony`."
        )
    if state < 0:
        return Line("time", "warning", "this machine does not say who sets its clock", "Make sure that NTP does.")
    return Line("time", "pass", "this machine's clock is kept right")


def _address(settings: Settings) -> Line:
    listen = settings.listen
    try:
        listen_addresses(listen.host, listen.port)
    except SetupError as error:
        return _answering(settings, error)
    return Line("address", "pass", f"{listen.host} port {listen.port} is free: `issuer serve` can listen there")


def _answering(settings: Settings, error: SetupError) -> Line:
    """Say what answers at an address that is taken: this service itself, most likely."""
    listen = settings.listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 (to ask, not to listen)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listen.port}/health/ready"
    try:
        answer = send(HttpRequest("GET", url, max_bytes=65_536), deadline_s=DOCTOR_ANSWER_S)
    except (NoAnswer, Undecided):
        return failed("address", error)
    if b'"status"' not in answer.body or answer.status not in {200, 503}:
        return failed("address", error)
    if answer.status == 503:
        detail = f"a service runs at {listen.host} port {listen.port}, and is not ready"
        return failed("address", SetupError(Code.SERVICE_ADDRESS, detail), step=f"Ask it why: `curl {url}`.")
    return Line("address", "pass", f"a service runs at {listen.host} port {listen.port}, and is ready")


def _proxy(settings: Settings) -> Line:
    if settings.development or settings.listen.trusted_proxies:
        believed = settings.listen.trusted_proxies or "none, in development"
        return Line("proxy", "pass", f"believed about the source of a request: {believed}")
    near = _is_loopback(settings.listen.host)
    detail = "no proxy is believed: behind one that has the certificate of url, all callers are one source"
    step = f"Name it as `listen.trusted_proxies`{': 127.0.0.1, where it is on this machine' if near else ''}."
    return Line("proxy", "warning", detail, step)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
