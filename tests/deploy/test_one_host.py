"""The files of one host, each checked by the program that reads it: the compose file, nginx's, the units."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import check_jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from issuer.service.http.bounds import MAX_CONNECTIONS
from issuer.service.settings.bounds import KEEP_ALIVE_S
from issuer.service.settings.reader import read_settings
from tests.support.fronted import nginx_folder
from tests.support.shared import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
SCHEMA = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"


def test_the_compose_file_is_valid() -> None:
    judge = Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes()))
    assert [error.message for error in judge.iter_errors(COMPOSE)] == []
    assert list(judge.iter_errors({**COMPOSE, "services": {"issuer": {"no_such_member": 1}}})), "the schema refuses"


def test_every_container_is_hardened_and_names_existing_parts() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert set(service["networks"]) <= COMPOSE["networks"].keys(), name
        secrets = {each if isinstance(each, str) else each["source"] for each in service.get("secrets", [])}
        assert secrets <= COMPOSE["secrets"].keys()
        named = {mount.split(":")[0] for mount in service.get("volumes", []) if not mount.startswith("./")}
        assert named <= COMPOSE["volumes"].keys(), name
    mounts = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    ours = {mount for mount in mounts if mount.startswith(("./nginx", "./prometheus", "./grafana"))}
    assert (len(ours), [name for name in ours if not (DEPLOY / name).exists()]) == (4, [])


def test_nginx_reaches_the_service_alone_and_the_service_alone_reaches_the_store() -> None:
    """The store has no password: any client could delete the records of uses."""
    issuer, nginx = SERVICES["issuer"], SERVICES["nginx"]
    assert issuer["environment"]["ISSUER_LISTEN_TRUSTED_PROXIES"] == nginx["networks"]["edge"]["ipv4_address"]
    assert issuer["networks"].keys() & nginx["networks"].keys() == {"edge"}
    assert [name for name, service in SERVICES.items() if "edge" in service["networks"]] == ["issuer", "nginx"]
    ports = [port for name, service in SERVICES.items() for port in service.get("ports", []) if name != "nginx"]
    assert {port.split(":")[0] for port in ports} <= {"127.0.0.1"}
    stores = {name for name, service in SERVICES.items() if "inside" in service["networks"]}
    assert stores == {"issuer", "valkey", "postgresql"}
    assert all(set(SERVICES[name]["networks"]) == {"inside"} for name in stores - {"issuer"})
    watching = SERVICES["issuer"]["networks"].keys() & SERVICES["prometheus"]["networks"].keys()
    assert watching == {"watch"}
    assert SERVICES["grafana"]["networks"].keys() & SERVICES["prometheus"]["networks"].keys() == {"watch"}


def test_the_compose_file_s_head_names_every_file_beside_it() -> None:
    """A missing path ends `docker compose up`."""
    head = (DEPLOY / "compose.yaml").read_text("utf-8").partition("name: issuer")[0]
    mounts = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    files = {each["file"] for each in COMPOSE["secrets"].values()}
    for name in files | {mount for mount in mounts if mount.startswith("./")}:
        _, place, *inner = name.split("/")
        assert place in head, name
        assert place != "secrets" or inner[0] in head, name
    (given,) = (line for line in head.splitlines() if "chown -R" in line)
    assert given.split()[4:] == ["settings.yaml", "keys", "data"], "their modes are 0600 and 0700"
    assert SERVICES["issuer"]["user"] in given


def test_the_variables_of_the_containers_are_settings() -> None:
    env = SERVICES["issuer"]["environment"]
    settings = read_settings(environ={"ISSUER_URL": "https://issuer.example", **env})
    assert (settings.listen.host, settings.store.url) == ("0.0.0.0", "redis://valkey:6379/0")
    assert f"issuer:{settings.metrics.port}" in (DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")
    options = dict(zip(SERVICES["valkey"]["command"][1::2], SERVICES["valkey"]["command"][2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--appendonly"], options["--appendfsync"]) == ("yes", "always")
    assert env["ISSUER_STORE_DURABLE"] == "true"
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    (entry,) = re.findall(r'^ENTRYPOINT \["(\S+)/issuer"\]$', text, re.MULTILINE)
    (path,) = re.findall(r"^ENV PATH=(\S+)", text, re.MULTILINE)
    assert path.split(":")[0] == entry, "the container's path begins with the issuer"


@pytest.mark.needs_tool("nginx")
def test_nginx_accepts_its_file_without_a_warning(tmp_path: Path) -> None:
    folder = nginx_folder(tmp_path, 8443, 8000)
    command: list[str | Path] = ["nginx", "-t", "-c", folder / "nginx.conf", "-p", folder, "-e", "stderr"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "warn" in done.stderr) == (0, False), done.stderr


def test_nginx_closes_idle_connections_before_the_service_does() -> None:
    text = (DEPLOY / "nginx" / "nginx.conf").read_text("utf-8")
    (ours,) = re.findall(r"upstream .*?keepalive_timeout (\d+)s;", text, re.DOTALL)
    assert int(ours) < KEEP_ALIVE_S
    (held,) = re.findall(r"limit_conn sources (\d+);", text)
    assert int(held) < MAX_CONNECTIONS / 2


def test_the_unit_of_revocations_has_its_own_folder_for_the_passphrase() -> None:
    """At its end systemd deletes the folder; the service still reads its keys by its own passphrase."""
    service, signs = (
        (DEPLOY / "systemd" / f"{unit}.service.d" / "passphrase.conf").read_text("utf-8").partition("[Service]")[2]
        for unit in ("issuer", "issuer-revocations")
    )
    moved = service.replace("/run/issuer/", "/run/issuer-revocations/")
    assert signs == moved.replace("RuntimeDirectory=issuer\n", "RuntimeDirectory=issuer-revocations\n")


def test_the_page_makes_every_program_and_folder_of_the_units() -> None:
    """A missing folder of ReadWritePaths ends a unit before it begins, for backups without notice."""
    page = (DEPLOY / "HOST.md").read_text("utf-8")
    for file in (DEPLOY / "systemd").glob("*.service"):
        text = file.read_text("utf-8")
        for found in re.findall(r"^(?:ReadWritePaths|ExecStart)=(/\S+)", text, re.MULTILINE):
            assert re.search(rf" {re.escape(found)}(?: |$)", page, re.MULTILINE), f"{file.name}: {found}"


@pytest.mark.needs_tool("systemd-analyze")
def test_every_unit_is_hardened_and_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    """Its verification demands existing programs, such as `true`."""
    score = ["systemd-analyze", "security", "--offline=true", "--threshold=20"]
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        done = subprocess.run([*score, str(unit)], capture_output=True, text=True)
        assert done.returncode == 0, (unit.name, done.stdout.splitlines()[-1:])
    units = sorted(path for path in (DEPLOY / "systemd").iterdir() if path.is_file())
    for more in ("issuer.service.d", "issuer-revocations.service.d"):
        shutil.copytree(DEPLOY / "systemd" / more, tmp_path / more)
    for unit in units:
        text = re.sub(r"^(Exec\w+=)(\S+)", r"\1/bin/true", unit.read_text("utf-8"), flags=re.M)
        (tmp_path / unit.name).write_text(text)
    copies = [tmp_path / unit.name for unit in units]
    command: list[str | Path] = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *copies]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
