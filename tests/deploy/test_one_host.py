"""The files of one host, each judged by what reads it: the compose file, nginx's, the units."""

from __future__ import annotations

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


def test_the_compose_file_is_one() -> None:
    judge = Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes()))
    assert [error.message for error in judge.iter_errors(COMPOSE)] == []
    assert list(judge.iter_errors({**COMPOSE, "services": {"issuer": {"no_such_member": 1}}})), "the schema refuses"


def test_every_container_is_hardened_and_names_what_is_there() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert set(service["networks"]) <= COMPOSE["networks"].keys(), name
        assert {each if isinstance(each, str) else each["source"] for each in service.get("secrets", [])} <= COMPOSE[
            "secrets"
        ].keys()
        named = {mount.split(":")[0] for mount in service.get("volumes", []) if not mount.startswith("./")}
        assert named <= COMPOSE["volumes"].keys(), name


def test_the_service_believes_nginx_and_shares_one_network_with_it() -> None:
    issuer, nginx = SERVICES["issuer"], SERVICES["nginx"]
    assert issuer["environment"]["ISSUER_LISTEN_TRUSTED_PROXIES"] == nginx["networks"]["edge"]["ipv4_address"]
    assert issuer["networks"].keys() & nginx["networks"].keys() == {"edge"}, "by another one it would be a stranger"
    assert [name for name, service in SERVICES.items() if "edge" in service["networks"]] == ["issuer", "nginx"]
    assert {
        port.split(":")[0] for name, service in SERVICES.items() for port in service.get("ports", []) if name != "nginx"
    } <= {"127.0.0.1"}


def test_who_watches_does_not_meet_the_store() -> None:
    """It has no password: whoever meets it can have it forget who has used what."""
    stores = {name for name, service in SERVICES.items() if "inside" in service["networks"]}
    assert stores == {"issuer", "valkey", "postgresql"}
    assert all(set(SERVICES[name]["networks"]) == {"inside"} for name in stores - {"issuer"})
    watching = SERVICES["issuer"]["networks"].keys() & SERVICES["prometheus"]["networks"].keys()
    assert watching == {"watch"}
    assert SERVICES["grafana"]["networks"].keys() & SERVICES["prometheus"]["networks"].keys() == {"watch"}


def test_what_has_to_be_beside_it_is_said_at_its_top() -> None:
    """A path that is not there ends `docker compose up`; what `issuer init` makes, and the service's user, is said, too."""
    head = (DEPLOY / "compose.yaml").read_text("utf-8").partition("name: issuer")[0]
    mounts = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    files = {mount for mount in mounts if mount.startswith("./")} | {
        each["file"] for each in COMPOSE["secrets"].values()
    }
    for name in files:
        _, place, *inner = name.split("/")
        assert place in head, name
        assert place != "secrets" or inner[0] in head, name
    (given,) = (line for line in head.splitlines() if "chown -R" in line)
    assert given.split()[4:] == ["settings.yaml", "keys", "data"], "they are 0600 and 0700"
    assert SERVICES["issuer"]["user"] in given


def test_the_variables_of_the_container_are_settings() -> None:
    said = SERVICES["issuer"]["environment"]
    settings = read_settings(environ={"ISSUER_URL": "https://issuer.example", **said})
    assert settings.listen.host == "0.0.0.0"
    assert settings.store.url == "redis://valkey:6379/0"
    scraped = (DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")
    assert f"issuer:{settings.metrics.port}" in scraped


def test_what_is_mounted_from_this_folder_is_there() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", []) if mount.startswith("./")]
    ours = {mount.split(":")[0] for mount in mounts if mount.startswith(("./nginx", "./prometheus", "./grafana"))}
    assert len(ours) == 4
    assert all((DEPLOY / name).exists() for name in ours)


def test_the_runbook_s_commands_are_found_in_the_container() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    (entry,) = re.findall(r'^ENTRYPOINT \["(\S+)/issuer"\]$', text, re.MULTILINE)
    (path,) = re.findall(r"^ENV PATH=(\S+)", text, re.MULTILINE)
    assert path.split(":")[0] == entry


def test_the_backup_script_is_plain_sh() -> None:
    assert subprocess.run(["sh", "-n", DEPLOY / "backup.sh"], check=False).returncode == 0


def test_the_store_evicts_nothing_and_keeps_what_the_service_is_told_that_it_keeps() -> None:
    said = dict(zip(SERVICES["valkey"]["command"][1::2], SERVICES["valkey"]["command"][2::2], strict=True))
    assert said["--maxmemory-policy"] == "noeviction"
    assert (said["--appendonly"], said["--appendfsync"]) == ("yes", "always")
    assert SERVICES["issuer"]["environment"]["ISSUER_STORE_DURABLE"] == "true"


@pytest.mark.needs_tool("nginx")
def test_nginx_takes_the_very_file(tmp_path: Path) -> None:
    folder = nginx_folder(tmp_path, 8443, 8000)
    done = subprocess.run(
        ["nginx", "-t", "-c", folder / "nginx.conf", "-p", folder, "-e", "stderr"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


def test_nginx_closes_idle_connections_before_the_service_does() -> None:
    text = (DEPLOY / "nginx" / "nginx.conf").read_text("utf-8")
    (ours,) = re.findall(r"upstream .*?keepalive_timeout (\d+)s;", text, re.DOTALL)
    assert int(ours) < KEEP_ALIVE_S
    (held,) = re.findall(r"limit_conn sources (\d+);", text)
    assert int(held) < MAX_CONNECTIONS / 2


def test_who_signs_the_list_has_the_passphrase_in_a_folder_of_its_own() -> None:
    """The service's would go with the end of this unit, while the service still reads its keys by it."""
    service, signs = (
        (DEPLOY / "systemd" / f"{unit}.service.d" / "passphrase.conf").read_text("utf-8").partition("[Service]")[2]
        for unit in ("issuer", "issuer-revocations")
    )
    moved = service.replace("/run/issuer/", "/run/issuer-revocations/")
    assert signs == moved.replace("RuntimeDirectory=issuer\n", "RuntimeDirectory=issuer-revocations\n")


def test_what_the_units_run_and_write_is_made_by_the_page() -> None:
    """A folder of ReadWritePaths that is not there ends a unit before it begins: of backups nobody would notice."""
    page = (DEPLOY / "HOST.md").read_text("utf-8")
    for file in (DEPLOY / "systemd").glob("*.service"):
        text = file.read_text("utf-8")
        for found in re.findall(r"^(?:ReadWritePaths|ExecStart)=(/\S+)", text, re.MULTILINE):
            assert re.search(rf" {re.escape(found)}(?: |$)", page, re.MULTILINE), f"{file.name}: {found}"


@pytest.mark.needs_tool("systemd-analyze")
@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").glob("*.service")))
def test_a_unit_is_hardened(unit: str) -> None:
    score = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(DEPLOY / "systemd" / unit)]
    done = subprocess.run(score, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


@pytest.mark.needs_tool("systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    """Its verification wants the programs to be there: `true` is."""
    units = sorted(path for path in (DEPLOY / "systemd").iterdir() if path.is_file())
    for more in ("issuer.service.d", "issuer-revocations.service.d"):
        shutil.copytree(DEPLOY / "systemd" / more, tmp_path / more)
    for unit in units:
        text = re.sub(r"^(Exec\w+=)(\S+)", r"\1/bin/true", unit.read_text("utf-8"), flags=re.M)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *(tmp_path / unit.name for unit in units)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
