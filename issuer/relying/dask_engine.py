"""The engine of several machines: an existing Dask cluster that does the work of the local processes.

Only this file uses `distributed`, of the extra `dask`. Messages and answers are those of `bulk.py`. Dask gives the work
of a dead worker to another one, and each answer is used once, in order, so no file is lost or counted twice. Workers
are trusted with the verdict. Dask unpickles their answers, so they are also trusted with the calling machine.
"""

from __future__ import annotations

import io
import logging
import math
import os
import re
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import cloudpickle
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from distributed import Client, Security, WorkerPlugin, get_worker
from distributed.comm import CommClosedError
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats.url import is_loopback
from issuer.io import files
from issuer.relying.bulk import Engine, judge_message, refuse_message, wanted_keys
from issuer.relying.verifier import FileVerifier, Writer

PATIENCE_S = 30  # how long a run waits for a cluster without a worker
COUNTED_S = 5
TOGETHER = 8  # messages in one task: Dask's overhead for a task is a millisecond
AHEAD = 4  # tasks for each thread of a worker, running or waiting
Part = tuple[bytes, ...]
_FORM = "--engine is dask://HOST:PORT, or tls://HOST:PORT with --engine-tls DIR"
_URL = re.compile(r"(dask|tls)://(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4})")
_RELEASE = version("eval-token-issuer")
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_PUBLIC = (ed25519.Ed25519PublicKey, ec.EllipticCurvePublicKey, rsa.RSAPublicKey)


def dask_engine(url: str, certificates: Path | None, root: Path) -> Engine:
    """Return the engine of the cluster at a URL. Its workers must see the folder `root` (absolute) at the same place.
    Off loopback the URL is `tls://`, and the folder `certificates` has `ca.pem`, `cert.pem` and `key.pem`, which only
    its owner may read. Raises SetupError and InputError."""
    address = _address_of(url, secured=certificates is not None)
    security = None if certificates is None else _security(certificates)
    return lambda verifier, writer: DaskPool(address, security, root, verifier, writer)


def _address_of(url: str, *, secured: bool) -> str:
    found = _URL.fullmatch(url)
    if found is None:
        raise SetupError(Code.URL_INVALID, _FORM)
    scheme, place, host = found[1], found[2], found[3].strip("[]")
    if secured != (scheme == "tls"):
        raise SetupError(Code.URL_INVALID, f"tls:// needs certificates, and only tls:// does: {_FORM}")
    if not secured and not is_loopback(host):
        raise SetupError(Code.URL_INVALID, f"off loopback a cluster needs tls://: {_FORM}")
    return f"{'tls' if secured else 'tcp'}://{place}"


def _security(folder: Path) -> Any:
    paths = {name: folder / name for name in ("ca.pem", "cert.pem", "key.pem")}
    for name, path in paths.items():
        with files.open_plain(path, private=name == "key.pem"):
            pass
    ca, cert, key = map(str, paths.values())
    return Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key)


class DaskPool:
    """The workers of a cluster, for the time of `with DaskPool(...)`. They get a verifier without secrets."""

    def __init__(self, address: str, security: Any, root: Path, verifier: FileVerifier, writer: Writer) -> None:
        if verifier.receipt_key is not None:
            raise ValueError("a receipt key must not leave this machine")
        self._address, self._security, self._root = address, security, root
        self._verifier, self._writer, self._sent = verifier, writer, verifier.trust
        self._name = f"issuer-{uuid.uuid4().hex}"
        self._client: Any = None
        self._threads, self._counted_at = 0, -math.inf

    def __enter__(self) -> DaskPool:
        """Connect, and send verifier and writer to all workers, including those that start later. Raises SetupError."""
        _silence()
        try:
            self._client = Client(self._address, security=self._security, timeout=PATIENCE_S, set_as_default=False)
            self._client.wait_for_workers(1, PATIENCE_S)
            self._client.register_plugin(_Judge(self._task(), str(self._root)), self._name)
        except OSError as error:
            self._close()
            raise self._failed(str(error)) from None
        except Exception as error:  # noqa: BLE001 (any error of a worker)
            self._close()
            rule = f"each needs issuer {_RELEASE} with its extras, and Python {_PYTHON}"
            raise self._failed(f"a worker cannot judge ({error}): {rule}") from None
        return self

    def __exit__(self, *_: object) -> None:
        """Remove verifier and writer from the workers."""
        with suppress(OSError):  # the cluster is gone
            self._client.unregister_worker_plugin(self._name)
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close(timeout=1)

    def _task(self) -> bytes:
        written = io.BytesIO()
        _Pickler(written).dump((replace(self._verifier, renew=None), self._writer))
        return written.getvalue()

    def _failed(self, why: str) -> SetupError:
        return SetupError(Code.DEPENDENCY_SERVER, f"the Dask cluster at {self._address}: {why}")

    def map(self, messages: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each message with its answer, in order; None if all workers that had it died."""
        source, under_way = iter(messages), deque[tuple[Part, Any]]()
        while True:
            while len(under_way) < AHEAD * self._count() and (part := tuple(islice(source, TOGETHER))):
                under_way.append((part, self._submit(part)))
            if not under_way:
                return
            part, future = under_way.popleft()
            for message, answer in zip(part, self._answers(part, future), strict=True):
                yield message, self._renewed(message, answer)

    def _submit(self, part: Part) -> Any:
        return self._client.submit(_judge, self._name, part, pure=False)

    def _answers(self, part: Part, future: Any) -> Sequence[bytes | None]:
        answers = self._wait(future)
        if answers is not None:
            return answers
        # One file killed the worker: judge the other files without it.
        alone = [self._wait(self._submit((message,))) for message in part] if len(part) > 1 else [None]
        return [None if one is None else one[0] for one in alone]

    def _count(self) -> int:
        """Return the number of threads of all workers, at least 1, because for a moment there may be no worker."""
        if time.monotonic() - self._counted_at > COUNTED_S:
            try:
                self._threads = sum(self._client.nthreads().values())
            except OSError as error:
                raise self._failed(str(error)) from None
            self._counted_at = time.monotonic()
        return max(self._threads, 1)

    def _wait(self, future: Any) -> Sequence[bytes] | None:
        while True:
            try:
                answers: Sequence[bytes] = future.result(timeout=PATIENCE_S)
            except TimeoutError:
                if future.done():
                    return None
                self._count()
                if not self._threads:
                    raise self._failed("it has no worker left") from None
            except (CancelledError, CommClosedError) as error:
                raise self._failed(str(error)) from None
            except Exception:  # noqa: BLE001 (an error that killed the workers, or would kill a local process)
                return None
            else:
                return answers

    def _renewed(self, message: bytes, answer: bytes | None) -> bytes | None:
        """Judge a message again here if newer keys could decide it: workers do not ask issuers."""
        if answer is None or not (wanted := wanted_keys(answer)):
            return answer
        if self._verifier.renewed(wanted) or self._verifier.trust is not self._sent:
            return judge_message(self._verifier, self._writer, message)
        return answer


class _Judge(WorkerPlugin):
    """The plugin that each worker gets when it or the run starts."""

    def __init__(self, task: bytes, root: str) -> None:
        self._release, self._python = _RELEASE, _PYTHON
        self._task, self._root = task, root

    def setup(self, worker: Any) -> None:  # noqa: ARG002 (Dask's name)
        if (self._release, self._python) != (_RELEASE, _PYTHON):
            raise RuntimeError(f"it has issuer {_RELEASE} and Python {_PYTHON}")
        self._verifier, self._writer = cloudpickle.loads(self._task)
        self._one = Lock()  # a verifier is for one thread, but a worker may have several

    def judge(self, message: bytes) -> bytes:
        if not os.path.isdir(self._root):
            rule = "give a folder that all workers have at the same place"
            return refuse_message(Code.DEPENDENCY_SERVER, f"a Dask worker does not see the folder {self._root}: {rule}")
        with self._one:
            return judge_message(self._verifier, self._writer, message)


def _judge(name: str, part: Part) -> list[bytes]:
    judge: _Judge = get_worker().plugins[name]
    return [judge.judge(message) for message in part]


def _load_key(der: bytes) -> Any:
    """Load a public key. cryptography's own function has a module name that pickle cannot import."""
    return load_der_public_key(der)


class _Pickler(cloudpickle.Pickler):
    """Also pickles public keys; a private key raises an error."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _PUBLIC):
            return _load_key, (obj.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),)
        return super().reducer_override(obj)


def _silence() -> None:
    """Keep Dask's library from printing errors that this program reports itself."""
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).handlers[:] = [logging.NullHandler()]
