"""deploy/Dockerfile, built by buildah on a Debian that debootstrap makes, and the service in this image.

Without a container engine: the image runs as its user, in a root that is mounted read-only and has no shell. This does not
test an engine's namespaces, capabilities and networks.
"""

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
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a root file system"),
]
# In a separate mount namespace: the root for reading, and the mounts that an engine adds.
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
    """The built image: its configuration, and its root, without a shell."""

    def __init__(self, folder: Path) -> None:
        places = ["--root", str(folder / "s"), "--runroot", str(folder / "r")]
        self._buildah = ["buildah", "--storage-driver", "vfs", *places]
        self._base(folder)
        certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"  # those that this machine reaches its registries by
        self._run(
            "bud", "--isolation", "chroot", "--pull=never", "--volume", certificates, "--build-arg", "BASE=localhost/base",
            "--tag", "localhost/issuer", "--file", str(ROOT / "deploy" / "Dockerfile"), str(ROOT),
        )  # fmt: skip
        inspected = json.loads(self._run("inspect", "--type", "image", "localhost/issuer"))
        self.config: dict[str, Any] = inspected["OCIv1"]["config"]
        self.root = Path(self._run("mount", self._run("from", "--pull=never", "localhost/issuer")))
        for shell in ("sh", "dash", "bash"):
            (self.root / "usr" / "bin" / shell).unlink()

    def _base(self, folder: Path) -> None:
        """Make Debian, from the mirror that this machine's apt has."""
        sources = "".join(path.read_text() for path in Path("/etc/apt").glob("sources.list.d/debian.sources"))
        mirror = re.findall(r"^URIs: *(\S+)", sources, re.MULTILINE)
        if not mirror:
            pytest.skip("apt has no Debian mirror here")
        options = ["--variant=minbase", "--include=ca-certificates"]
        command = ["debootstrap", *options, "bookworm", str(folder / "debian"), mirror[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"Debian is unavailable: {done.stdout[-200:]}")
        container = self._run("from", "scratch")
        subprocess.run(["cp", "-a", f"{folder}/debian/.", self._run("mount", container)], check=True)
        self._run("commit", "--quiet", container, "localhost/base")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._buildah, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def command(self, state: Path, *arguments: str) -> list[str]:
        """Return the command that runs its entry point with a folder for its state."""
        return ["unshare", "--mount", "bash", "-c", RUN, "run", str(self.root), str(state), *arguments]

    def close(self) -> None:
        self._run("rm", "--all")
        self._run("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    made = Image(tmp_path_factory.mktemp("image"))
    yield made
    made.close()


def test_the_image_has_no_user_0_and_no_build_tools(image: Image, tmp_path: Path) -> None:
    assert image.config["User"] == "10001:10001"
    assert image.config["Entrypoint"] == ["/opt/issuer/bin/issuer"]
    for tool in ("pip", "pip3", "gcc", "cc", "make"):
        assert not list(image.root.glob(f"*/bin/{tool}")) + list(image.root.glob(f"opt/issuer/bin/{tool}")), tool
    assert str((image.root / "opt/issuer/bin/python3").readlink()) == "/usr/bin/python3", "Debian's interpreter"
    probe = "import os, psycopg, sys; print(os.getuid(), os.access('/opt', os.W_OK), sys.version_info[:2])"
    command = image.command(tmp_path, "/opt/issuer/bin/python3", "-c", probe)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "10001 False (3, 11)\n", done.stderr


def test_the_service_serves_from_a_read_only_root_without_a_shell(image: Image, tmp_path: Path) -> None:
    with LocalProvider() as provider:
        write_folder(tmp_path, provider)
        subprocess.run(["chown", "-R", "10001:10001", tmp_path], check=True)
        settings = settings_for(Path("/var/lib/issuer"), free_port())
        command, env = image.command(tmp_path, *image.config["Entrypoint"], "serve"), environment(settings)
        with (tmp_path / "service.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
        try:
            with httpx.Client(base_url=settings.url, timeout=60) as http:
                until_live(http, process, tmp_path)
                identity = {"Authorization": f"Bearer {provider.token(settings.url)}"}
                answer = http.post("/tokens", json=BODY, headers=identity)
                assert answer.status_code == 201, answer.text
        finally:
            process.terminate()
            assert process.wait(60) == 0
        assert (tmp_path / "data" / "audit.jsonl").stat().st_uid == 10001
