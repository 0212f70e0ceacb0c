"""deploy/kubernetes: each object by the API's own schemas, all of them by kustomize, and the settings of the service."""

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from issuer.service.settings.reader import read_settings
from tests.support.shared import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
OBJECTS = sorted(
    path.name for path in FOLDER.glob("*.yaml") if path.name not in ("kustomization.yaml", "settings.yaml")
)


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((FOLDER / "statefulset.yaml").read_text("utf-8"))["spec"]["template"]["spec"]
    return spec


@pytest.mark.long
def test_every_object_is_valid_for_the_api() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for name in OBJECTS:
        document = yaml.safe_load((FOLDER / name).read_text("utf-8"))
        try:
            validate(document, "1.31", strict=True)
        except Exception as error:
            error.add_note(name)
            raise
        with pytest.raises(Exception, match="no_such_member"):
            validate({**document, "no_such_member": 1}, "1.31", strict=True)


@pytest.mark.long
@pytest.mark.needs_tool("kubectl")
def test_kustomize_builds_every_object() -> None:
    built = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    objects = {each["kind"]: each for each in yaml.safe_load_all(built.stdout)}
    kinds = {yaml.safe_load((FOLDER / name).read_text("utf-8"))["kind"] for name in OBJECTS}
    assert objects.keys() == kinds | {"ConfigMap"}
    volumes = {each["name"]: each for each in objects["StatefulSet"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]  # it ends with a hash
    selected = objects["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = objects[kind]["spec"]
        selector = spec.get("selector") or spec["podSelector"]
        assert selector.get("matchLabels", selector).items() <= selected.items(), kind


def test_every_container_is_hardened_and_mounts_existing_volumes() -> None:
    spec = pod()
    volumes = {volume["name"] for volume in spec["volumes"]} | {"state"}
    assert spec["enableServiceLinks"] is False, "a Service named issuer would set unknown ISSUER_ variables"
    for container in (*spec["initContainers"], *spec["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_settings_are_valid_with_the_secret() -> None:
    (container,) = pod()["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    env["ISSUER_STORE_URL"] = "rediss://store.example:6379/0"
    env["ISSUER_LOG_DATABASE"] = "postgresql://db.example/issuer"
    settings = read_settings(FOLDER / "settings.yaml", env)
    (mounted,) = (mount for mount in container["volumeMounts"] if mount["name"] == "policies")
    assert settings.policies == mounted["mountPath"]


def test_the_init_container_copies_the_secret_to_private_files(tmp_path: Path) -> None:
    """Its own program, with folders of this test; the secret is laid out as the kubelet does it."""
    (container,) = pod()["initContainers"]
    secrets = tmp_path / "secrets"
    for item in pod()["volumes"][2]["projected"]["sources"][0]["secret"]["items"]:
        real = secrets / "..2026" / item["path"]
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(item["key"])
        real.chmod(0o440)
        (secrets / Path(item["path"]).parent).symlink_to(real.parent)
    (tmp_path / "state").mkdir()
    program = container["command"][-1]
    made = tmp_path / "run"
    for inside, here in (("/secrets", secrets), ("/run/issuer", made), ("/var/lib/issuer", tmp_path / "state")):
        assert inside in program
        program = program.replace(inside, str(here))
    subprocess.run([sys.executable, "-c", program], check=True)
    found = {path.relative_to(made).as_posix(): path for path in made.rglob("*") if path.is_file()}
    assert {name: path.read_text() for name, path in found.items()} == {
        "keys/active/key.pem": "active.pem", "keys/log/log.pem": "log.pem", "store/store-secret": "store-secret",
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in found.values()} == {0o600}
    assert not any(path.is_symlink() for path in found.values())
    assert stat.S_IMODE((tmp_path / "state" / "data").stat().st_mode) == 0o700
