"""CPU of a token beside node's `oidc-provider`: `python -m tests.bench.oidc_provider`, part of `make bench`.

A certified server that does nearly the same: a client signs in by its JWT (private_key_jwt, RFC 7523) and gets an EdDSA
JWT with the requested claims (RFC 9396). Ours has a policy, a store and an audit besides. Both run
at once and are driven in turn; printed is the median of paired ratios. Needs node and npm, which brings the package.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec
from cryptography.hazmat.primitives import serialization

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.formats import jose
from issuer.io import keyfile
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.http_load import drive
from tests.support.processes import cpu_s, listens
from tests.support.running import numbered, running, serve, singles, write_folder
from tests.support.waiting import eventually

PACKAGE = "oidc-provider@9.13.3"
SERVER = Path(__file__).with_name("oidc_provider.mjs")
COUNT, TURNS, CONNECTIONS = 600, 7, 32
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def request(provider: LocalProvider, url: str, algorithm: str, number: int) -> bytes:
    """Make the request for a token of a run's claims, with a new client assertion."""
    asked = [{"type": "result", **numbered(number)}]
    form = urlencode({
        "grant_type": "client_credentials", "client_assertion_type": ASSERTION, "resource": "urn:results",
        "client_assertion": provider.token(url, alg=algorithm, iss="runner", sub="runner"),
        "authorization_details": msgspec.json.encode(asked).decode(),
    }).encode()  # fmt: skip
    head = f"POST /token HTTP/1.1\r\nHost: {url[7:]}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    return f"{head}Content-Length: {len(form)}\r\n\r\n".encode() + form


@contextlib.contextmanager
def other_server(folder: Path, provider: LocalProvider) -> Iterator[tuple[int, str]]:
    """Install and run the other server; yield its process and URL. Raises CalledProcessError where npm cannot."""
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix", str(folder), PACKAGE],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    program, port, own = folder / "server.mjs", free_port(), keyfile.generate()
    program.write_bytes(SERVER.read_bytes())  # where its package is
    raw = own.private_bytes(serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
    keys = {"keys": [{**jose.public_jwk(own.public_key()), "d": jose.base64url_encode(raw)}]}
    clients = msgspec.json.encode(provider.key_set()).decode()
    command = ["node", str(program), str(port), clients, msgspec.json.encode(keys).decode()]
    environment = {**os.environ, "NODE_ENV": "production"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: listens(port))
            assert drive(port, [request(provider, url, "RS256", 0)], 1).statuses == {200: 1}
            yield process.pid, url
        finally:
            process.terminate()


def spent_us(pid: int, port: int, requests: list[bytes], expected: int) -> float:
    """Return the CPU of the server's process for each request, in microseconds."""
    before = cpu_s(pid)
    run = drive(port, requests, CONNECTIONS)
    assert run.statuses[expected] >= 0.98 * len(requests), run.statuses
    return (cpu_s(pid) - before) / len(requests) * 1e6


def main() -> None:
    """Print a row for each algorithm of the client; the first turn warms both."""
    print(f"\nPOST /tokens beside node's {PACKAGE}: CPU of the server's process, {CONNECTIONS} connections")
    if not (shutil.which("node") and shutil.which("npm")):
        print("  skipped: no node, or no npm")
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider, store = stack.enter_context(LocalProvider()), stack.enter_context(EmbeddedValkey())
        try:
            pid, url = stack.enter_context(other_server(folder / "node", provider))
        except (subprocess.SubprocessError, OSError) as error:
            print(f"  skipped: npm or node failed ({type(error).__name__})")
            return
        write_folder(folder / "ours", provider, es256=True)
        live = stack.enter_context(running(folder / "ours", provider, command=serve(1), store_url=store))
        for algorithm in ("RS256", "ES256"):
            both: list[tuple[float, float]] = []
            for turn in range(TURNS + 1):
                theirs = [request(provider, url, algorithm, turn * COUNT + number) for number in range(COUNT)]
                their_us = spent_us(pid, int(url.rpartition(":")[2]), theirs, 200)
                port = live.settings.listen.port
                both.append((spent_us(live.process.pid, port, singles(live, algorithm, COUNT), 201), their_us))
            ratios = [ours / theirs for ours, theirs in both[1:]]
            our_us, their_us = (statistics.median(column) for column in zip(*both[1:], strict=True))
            low, high = min(ratios), max(ratios)
            print(f"  {algorithm}: ours {our_us:.0f} us, theirs {their_us:.0f} us;"
                  f" {statistics.median(ratios):.2f} x ({low:.2f} to {high:.2f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
