"""deploy/Dockerfile, built by buildah on a Debian that debootstrap makes, and the service started in what comes of it.

There is no container engine here: the image is run as its user, in a root that is mounted read-only and has no shell. What
an engine adds (namespaces, capabilities, networks) is not shown.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from tests.support.running import BODY, until_live, write_folder
from tests.support.shared import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.needs_tool("debootstrap", "buildah"),
    pytest.mark.skipif(os.geteuid() != 0, reason="who is not root makes no root of a file system"),
]
# In a mount namespace of its own: the root for reading, and what an engine gives besides.
RUN = """
set -eu
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount --bind "$2" "$1/var/lib/issuer"
mount -o remount,bind,ro "$1"
root=$1
shift 2
exec chroot --userspec=10001:10001 --groups= "$root" "$@"
"""


class Image:
    """What was built: its configuration, and a root that has no shell any more."""

    def __init__(self, folder: Path) -> None:
        self._buildah = [
            "buildah",
            "--storage-driver",
            "vfs",
            "--root",
            str(folder / "s"),
            "--runroot",
            str(folder / "r"),
        ]
        self._base(folder)
        certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"  # those that this machine reaches its registries by
        self._run(
            "bud", "--isolation", "chroot", "--pull=never", "--volume", certificates, "--build-arg", "BASE=localhost/base",
            "--tag", "localhost/issuer", "--file", str(ROOT / "deploy" / "Dockerfile"), str(ROOT),
        )  # fmt: skip
        self.config: dict[str, Any] = json.loads(self._run("inspect", "--type", "image", "localhost/issuer"))["OCIv1"][
            "config"
        ]
        self.root = Path(self._run("mount", self._run("from", "--pull=never", "localhost/issuer")))
        for shell in ("sh", "dash", "bash"):
            (self.root / "usr" / "bin" / shell).unlink()

    def _base(self, folder: Path) -> None:
        """Make Debian, from the mirror that this machine's apt has."""
        sources = "".join(path.read_text() for path in Path("/etc/apt").glob("sources.list.d/debian.sources"))
        mirror = re.findall(r"^URIs: *(\S+)", sources, re.MULTILINE)
        if not mirror:
            pytest.skip("apt has no Debian mirror here")
        made = [
            "debootstrap",
            "--variant=minbase",
            "--include=ca-certificates",
            "bookworm",
            str(folder / "debian"),
            mirror[0],
        ]
        done = subprocess.run(made, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"Debian cannot be had: {done.stdout[-200:]}")
        container = self._run("from", "scratch")
        subprocess.run(["cp", "-a", f"{folder}/debian/.", self._run("mount", container)], check=True)
        self._run("commit", "--quiet", container, "localhost/base")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._buildah, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def command(self, state: Path, *arguments: str) -> list[str]:
        """Return what runs its entry point with a folder for its state."""
        return ["unshare", "--mount", "bash", "-c", RUN, "run", str(self.root), str(state), *arguments]

    def close(self) -> None:
        self._run("rm", "--all")
        self._run("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    made = Image(tmp_path_factory.mktemp("image"))
    yield made
    made.close()


def test_it_has_no_user_0_and_no_tools_to_build(image: Image, tmp_path: Path) -> None:
    assert image.config["User"] == "10001:10001"
    assert image.config["Entrypoint"] == ["/opt/issuer/bin/issuer"]
    for tool in ("pip", "pip3", "gcc", "cc", "make"):
        assert not list(image.root.glob(f"*/bin/{tool}")) + list(image.root.glob(f"opt/issuer/bin/{tool}")), tool
    interpreter = (image.root / "opt/issuer/bin/python3").readlink()
    assert str(interpreter) == "/usr/bin/python3", "Debian's own"
    probe = "import os, psycopg, sys; print(os.getuid(), os.access('/opt', os.W_OK), sys.version_info[:2])"
    done = subprocess.run(
        image.command(tmp_path, "/opt/issuer/bin/python3", "-c", probe), capture_output=True, text=True
    )
    assert done.stdout == "10001 False (3, 11)\n", done.stderr


def test_the_service_serves_from_a_read_only_root_without_a_shell(image: Image, tmp_path: Path) -> None:
    with LocalProvider() as provider:
        write_folder(tmp_path, provider)
        subprocess.run(["chown", "-R", "10001:10001", tmp_path], check=True)
        settings = settings_for(Path("/var/lib/issuer"), free_port())
        with (tmp_path / "service.log").open("wb") as log:
            process = subprocess.Popen(
                image.command(tmp_path, *image.config["Entrypoint"], "serve"),
                stdout=log,
                stderr=log,
                env={**os.environ, **environment(settings)},
            )
        try:
            with httpx.Client(base_url=settings.url, timeout=60) as http:
                until_live(http, process, tmp_path)
                answer = http.post(
                    "/tokens", json=BODY, headers={"Authorization": f"Bearer {provider.token(settings.url)}"}
                )
                assert answer.status_code == 201, answer.text
        finally:
            process.terminate()
            assert process.wait(60) == 0
        assert (tmp_path / "data" / "audit.jsonl").stat().st_uid == 10001
