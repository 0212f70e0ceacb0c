"""`issuer config`: the settings in force, their origins, and every fault of a file."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from issuer.service.settings.model import MEMBERS, schema, values_of
from issuer.service.settings.reader import find_settings, read_settings
from issuer.service.signing.keyring import generate
from tests.support.in_process import run
from tests.support.settings import settings_text
from tests.support.shared import ROOT


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with settings that are good, in which the command is run."""
    (tmp_path / "policies").mkdir(0o755)
    generate(tmp_path / "keys", "active")
    text = settings_text(
        url="https://issuer.example", policies="policies", data="data", keys_folder="keys", store_url="embedded"
    )
    (tmp_path / "s.yaml").write_text(text)
    return tmp_path


def add(home: Path, text: str) -> None:
    with (home / "s.yaml").open("a") as file:
        file.write(text)


def test_show_prints_a_settings_file_with_the_same_values_and_check_passes(home: Path) -> None:
    checked = run(["config", "check", "--config", "s.yaml"], home)
    assert (checked.code, checked.err, set(re.findall(r"^\w+", checked.out, re.M))) == (0, "", {"pass"})
    add(home, "listen: {port: 9}\n")
    done = run(["config", "show", "--config", "s.yaml"], home)
    assert (done.code, done.err, done.out[:11]) == (0, "", "version: 1\n")
    (home / "shown.yaml").write_text(done.out)
    assert read_settings(home / "shown.yaml", {}) == read_settings(home / "s.yaml", {})


def test_the_origin_of_each_is_its_line_its_variable_or_the_default(home: Path) -> None:
    env = {"ISSUER_LISTEN_PORT": "7"}
    done = run(["config", "show", "--origin", "--config", "s.yaml"], home, env=env)
    shown = {(line.partition(":")[0], line.partition("  # ")[2]) for line in done.out.splitlines()}
    wanted = {("version", "s.yaml:1"), ("  host", "default"), ("  port", "$ISSUER_LISTEN_PORT"), ("  port", "default")}
    assert wanted <= shown
    rows = json.loads(run(["config", "show", "--json", "--config", "s.yaml"], home, env=env).out)["settings"]
    assert [row["name"] for row in rows] == list(MEMBERS)
    assert {"name": "listen.port", "value": 7, "origin": "$ISSUER_LISTEN_PORT"} in rows


def test_no_password_of_a_url_is_shown(home: Path) -> None:
    for url in (
        "rediss://me:hush@store.example:1/0", "redis://:hu@sh:hush@a", "unix://:hush@/run/s", "redis://a/0?password=hush",
        "redis+sentinel://:hush@a:1,b:2/m", "redis://me:hush\nhush@a",
    ):  # fmt: skip
        env = {"ISSUER_STORE_URL": url, "ISSUER_LOG_DATABASE": "postgresql://me:hush@db/log"}
        for form in ("--origin", "--json"):
            done = run(["config", "show", form, "--config", "s.yaml"], home, env=env)
            assert (done.code, "hush" in done.out + done.err, done.out.count("***")) == (0, False, 2), url


def test_check_reports_all_wrong_modes_and_secrets_at_once(home: Path) -> None:
    (home / "policies").chmod(0o777)
    (home / "keys").chmod(0o770 if (home / "keys").stat().st_gid != (home / "keys").stat().st_uid else 0o702)
    for name, text in (("passphrase", "secret\n"), ("secret", "x\n"), ("trust.yaml", "version: 2\n")):
        (home / name).write_text(text)
        (home / name).chmod(0o644)
    add(home, 'trust: "trust.yaml"\nlog: {witness_policy: "gone.txt"}\n')
    text = (home / "s.yaml").read_text().replace('"url": "embedded"', '"url": "embedded", "secret_file": "secret"')
    (home / "s.yaml").write_text(text.replace('"folder": "keys"', '"folder": "keys", "passphrase_file": "passphrase"'))
    done = run(["config", "check", "--json", "--config", "s.yaml"], home)
    wrong = {one["name"]: one["next"] for one in json.loads(done.out)["lines"] if one["verdict"] == "FAIL"}
    names = ["policies folder", "keys folder", "passphrase", "store secret", "trust file", "witness policy"]
    assert (done.code, list(wrong), all(wrong.values())) == (6, names, True)


def test_a_faulty_file_is_refused_with_the_message_of_serve(home: Path) -> None:
    add(home, "prot: 1\nlog: {orign: x}\n")
    done = run(["config", "check", "--config", "s.yaml"], home)
    assert (done.code, re.findall(r"did you mean `([a-z.]+)`", done.err)) == (3, ["listen.port", "log.origin"])
    assert run(["serve", "--config", "s.yaml"], home).err == done.err


def test_the_schema_describes_every_setting_and_nothing_else(home: Path) -> None:
    printed = json.loads(run(["config", "schema"], home).out)
    assert printed == schema()
    definitions = printed["$defs"]
    named = []
    for name, member in definitions["Settings"]["properties"].items():
        room = definitions[member["$ref"].rpartition("/")[2]]["properties"] if "$ref" in member else {"": None}
        named += [f"{name}.{inner}".rstrip(".") for inner in room]
    assert named == list(MEMBERS)
    assert definitions["Settings"]["required"] == ["version"]
    assert all(not each["additionalProperties"] for each in definitions.values())


def test_the_page_and_the_first_version_s_file_have_each_setting() -> None:
    """A change that removes a name needs another version."""
    section = (ROOT / "deploy" / "README.md").read_text().partition("## Settings")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", section, re.M))
    settings, origins = find_settings(ROOT / "tests" / "data" / "settings-1.yaml", {})
    assert sorted(rows) == sorted(origins) == sorted(MEMBERS)
    without = {"", False, msgspec.NODEFAULT}
    defaults = {name: field.default for name, field in MEMBERS.items() if field.default not in without}
    assert {name for name, default in defaults.items() if str(default).lower() not in rows[name]} == set()
    assert {name for name, value in values_of(settings).items() if value == MEMBERS[name].default} == {"version"}
