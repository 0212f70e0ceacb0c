"""The settings: a file, the environment over it, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats.times import LEEWAY_S
from issuer.service.settings.model import MEMBERS, VARIABLES, Keys, Settings, changed
from issuer.service.settings.reader import OF_RUNS, OTHERS, find_settings, read_settings
from tests.support.rooms import PACKAGE

FILE = """\
version: 1
url: "https://issuer.example"
policies: "policies"
data: "data"
keys: {folder: "keys"}
store: {url: "redis://localhost:6379/0"}
"""
ENVIRONMENT = {
    "ISSUER_URL": "https://issuer.example",
    "ISSUER_POLICIES": "policies",
    "ISSUER_KEYS_FOLDER": "keys",
    "ISSUER_DATA": "data",
    "ISSUER_STORE_URL": "embedded",
}


def from_file(folder: Path, text: str = FILE, **environ: str) -> Settings:
    (folder / "settings.yaml").write_text(text, encoding="utf-8")
    return read_settings(folder / "settings.yaml", environ)


def refused(folder: Path, text: str) -> InputError:
    with pytest.raises(InputError) as error:
        from_file(folder, text)
    return error.value


def refused_environment(**changes: str) -> SetupError:
    with pytest.raises(SetupError) as error:
        read_settings(None, {**ENVIRONMENT, **changes})
    assert error.value.code is Code.SETTINGS_INVALID
    return error.value


@pytest.mark.parametrize("mode", [0o646, 0o664])
def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """It names the folders of keys and of policies: who writes to it decides what is signed, after the next start."""
    from_file(tmp_path)
    if mode == 0o664:
        if os.geteuid():
            pytest.skip("a user's own group has nobody else in it")
        os.chown(tmp_path / "settings.yaml", -1, 4712)  # a group with others in it
    (tmp_path / "settings.yaml").chmod(mode)
    with pytest.raises(InputError, match=r"chmod g?o-w") as error:
        read_settings(tmp_path / "settings.yaml", {})
    assert error.value.code is Code.FILE_UNSAFE


def test_a_file_is_enough_and_the_rest_has_safe_defaults(tmp_path: Path) -> None:
    settings = from_file(tmp_path)
    assert (settings.url, settings.store.url) == ("https://issuer.example", "redis://localhost:6379/0")
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 8000)
    assert settings.store.epoch_leeway_s == LEEWAY_S == 30
    assert (settings.development, settings.store.durable, settings.store.noeviction_stated) == (False, False, False)
    assert settings.audit_file == Path("data/audit.jsonl")
    assert settings.pats_folder == Path("data/pats")
    assert settings.passphrase() is None


def test_personal_access_tokens_may_lie_apart_from_the_data(tmp_path: Path) -> None:
    assert from_file(tmp_path, FILE + 'pats: "/srv/pats"\n').pats_folder == Path("/srv/pats")
    assert from_file(tmp_path, ISSUER_PATS="elsewhere").pats_folder == Path("elsewhere")


def test_the_environment_is_enough() -> None:
    settings = read_settings(None, {**ENVIRONMENT, "ISSUER_LISTEN_PORT": "0", "ISSUER_STORE_DURABLE": "true"})
    assert (settings.store.url, settings.listen.port, settings.store.durable) == ("embedded", 0, True)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = from_file(tmp_path, FILE + "listen: {port: 1}\n", ISSUER_LISTEN_PORT="2", ISSUER_KEYS_FOLDER="/run/keys")
    assert (settings.listen.port, settings.keys.folder, settings.data) == (2, "/run/keys", "data")


def test_variables_of_other_commands_and_of_others_are_left_alone() -> None:
    others = dict.fromkeys([*OTHERS, "ISSUER_RUN_MODEL_REPO", "URL", "MYISSUER_URL", "issuer_prot"], "x")
    read_settings(None, {**ENVIRONMENT, **others})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ISSUER_PROT", "ISSUER_LISTEN_PORT"), ("ISSUER_LISTEN_PROT", "ISSUER_LISTEN_PORT"),
        ("ISSUER_STORE_DURABEL", "ISSUER_STORE_DURABLE"), ("ISSUER_KEYS", "ISSUER_KEYS_FOLDER"),
        ("ISSUER_ID_TOKNE", "ISSUER_ID_TOKEN"), ("ISSUER_SOMETHING_ELSE", ""), ("ISSUER_VERSION", ""),
    ],
)  # fmt: skip
def test_a_variable_that_nothing_reads_is_an_error_with_the_nearest_name(variable: str, meant: str) -> None:
    detail = refused_environment(**{variable: "hush"}).detail
    assert detail.startswith(f"{variable} is not a setting, and no command reads it")
    assert f"did you mean `{meant}`?" in detail if meant else "did you mean" not in detail
    assert "hush" not in detail


def test_every_variable_that_a_command_reads_is_a_setting_or_listed() -> None:
    """Or the service would refuse to start beside it. `_ISSUER_COMPLETE` is click's own."""
    read = {name for path in PACKAGE.rglob("*.py") for name in re.findall(r"\b(ISSUER_[A-Z_]+)", path.read_text())}
    runs = {name for name in read if name.startswith(OF_RUNS)}
    assert read - runs - OTHERS - set(VARIABLES) == set()


def test_no_two_settings_have_one_variable() -> None:
    assert len(VARIABLES) == len(MEMBERS) - 1, "all but the version of the file"
    assert not OTHERS & set(VARIABLES)


@pytest.mark.parametrize("missing", [("url",), ("policies", "data"), ("keys.folder", "store.url")])
@pytest.mark.parametrize("by", ["file", "environment"])
def test_all_that_is_missing_is_told_at_once_with_the_ways_to_set_it(
    tmp_path: Path, missing: tuple[str, ...], by: str
) -> None:
    variables = {variable: name for variable, name in VARIABLES.items() if MEMBERS[name].required}
    there = {variable: ENVIRONMENT[variable] for variable, name in variables.items() if name not in missing}
    with pytest.raises(SetupError) as error:
        read_settings(None, there) if by == "environment" else from_file(tmp_path, "version: 1\n", **there)
    assert error.value.code is Code.SETTINGS_INVALID
    told = re.findall(r"`([a-z.]+)` \((ISSUER_[A-Z_]+)\)", error.value.detail)
    assert told == [(name, variable) for variable, name in variables.items() if name in missing]
    assert (str(tmp_path / "settings.yaml") in error.value.detail) == (by == "file")


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """In the file each at its place, then what the environment has wrong, and what is missing."""
    text = 'version: 1\nurl: "http://issuer.example"\nprot: 1\nkeys: 5\nlog: {orign: "x", witnesses: "both"}\n'
    with pytest.raises(InputError) as error:
        from_file(tmp_path, text, ISSUER_PROT="1", ISSUER_LISTEN_PORT="x")
    told = [(finding.place.line, finding.place.column, finding.detail) for finding in error.value.findings]
    assert [one[:2] for one in told] == [(3, 7), (4, 7), (5, 14), (5, 30), (2, 6), (0, 0), (0, 0), (0, 0)]
    for (_, _, detail), said in zip(told, (
        "did you mean `listen.port`?", "a group of settings is a map of folder, passphrase_file",
        "did you mean `log.origin`?", "it is one of async, sync", "url must be https", "ISSUER_PROT is not a setting",
        "ISSUER_LISTEN_PORT, which sets `listen.port`", "not set: `policies`",
    ), strict=True):  # fmt: skip
        assert said in detail


def test_a_file_says_the_version_of_its_form(tmp_path: Path) -> None:
    assert "the file must begin with `version: 1`" in refused(tmp_path, FILE.removeprefix("version: 1\n")).detail
    for other in ("2", "1.0", '"1"'):
        assert str(refused(tmp_path, FILE.replace("version: 1", f"version: {other}")).place).endswith(":1:10")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("prot: 80", "listen.port"), ("redis_url: x", ""), ("listen: {prot: 80}", "listen.port"), ("lisen: {}", "listen"),
        ("log_origin: x", "log.origin"), ("pasphrase_file: x", "keys.passphrase_file"), ("urll: x", "url"),
        ('"listen.port": 80', "listen.port"), ('"listen/port": 80', "listen.port"),
    ],
)  # fmt: skip
def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path, line: str, meant: str) -> None:
    error = refused(tmp_path, f"{FILE}{line}\n")
    assert (error.code, error.place.line) == (Code.FILE_UNKNOWN_MEMBER, 7)
    assert error.detail == "this setting is not known" + (f" (did you mean `{meant}`?)" if meant else "")


def test_where_each_setting_comes_from_is_known(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(FILE + "listen:\n  port: 1\n  host: a\n")
    _, origins = find_settings(tmp_path / "s.yaml", {"ISSUER_LISTEN_PORT": "2", "ISSUER_PATS": "p"})
    assert origins["listen.port"] == "$ISSUER_LISTEN_PORT"
    assert origins["pats"] == "$ISSUER_PATS"
    assert origins["listen.host"] == f"{tmp_path / 's.yaml'}:9"
    assert origins["store.url"] == f"{tmp_path / 's.yaml'}:6"
    assert "log.origin" not in origins


def test_values_are_changed_by_the_names_of_variables() -> None:
    settings = read_settings(None, ENVIRONMENT)
    other = changed(settings, listen_port=1, url="https://a.example", keys_passphrase_file="p")
    assert (other.listen.port, other.url, other.keys) == (1, "https://a.example", Keys("keys", "p"))
    assert changed(other, listen_port=8000, url=settings.url, keys_passphrase_file="") == settings
    with pytest.raises(KeyError):
        changed(settings, port=1)
    with pytest.raises(msgspec.ValidationError):
        changed(settings, listen_port=-1)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("listen: {port: yes}\n", 16, "readers disagree"),
        ('listen: {port: "8000"}\n', 16, "expected a whole number, got text"),
        ("listen: {port: 8000.5}\n", 16, "expected a whole number, got a number"),
        ("listen: {port: 65536}\n", 16, "<= 65535"),
        ("listen: {port: null}\n", 16, "expected a whole number, got nothing"),
        ("listen: null\n", 9, "a group of settings is a map of host, port"),
        ("development: 1\n", 14, "expected true or false, got a whole number"),
        ('development: "true"\n', 14, "expected true or false, got text"),
        ("listen: {host: 127}\n", 16, "expected text, got a whole number"),
        ('listen: {host: ""}\n', 16, "length >= 1"),
        ("passphrase: x\n", 13, "this setting is not known"),
        ('"a/b": x\n', 8, "this setting is not known"),
        ("url: x\n", 1, "this key is here twice"),
    ],
)
def test_a_fault_of_the_file_is_refused_at_its_place(tmp_path: Path, line: str, column: int, reason: str) -> None:
    error = refused(tmp_path, FILE + line)
    assert str(error.place) == f"{tmp_path / 'settings.yaml'}:7:{column}"
    assert reason in error.detail


def test_a_file_that_is_no_map_or_not_there_is_refused(tmp_path: Path) -> None:
    assert "a settings file is a map" in refused(tmp_path, "- 1\n").detail
    with pytest.raises(InputError) as error:
        read_settings(tmp_path / "nowhere.yaml", {})
    assert error.value.code is Code.FILE_UNREADABLE


@pytest.mark.parametrize("name", ["URL", "POLICIES", "KEYS_FOLDER", "DATA", "STORE_URL", "LISTEN_HOST"])
def test_an_empty_variable_is_not_the_folder_one_stands_in(name: str) -> None:
    assert "length >= 1" in refused_environment(**{f"ISSUER_{name}": ""}).detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LISTEN_PORT", "http"), ("LISTEN_PORT", "-1"), ("LISTEN_PORT", "65536"), ("LISTEN_PORT", ""), ("LISTEN_PORT", " 80"), ("LISTEN_PORT", "8_000"),
        ("DEVELOPMENT", "yes"), ("DEVELOPMENT", ""), ("DEVELOPMENT", "maybe"), ("STORE_EPOCH_LEEWAY_S", "3601"),
        ("STORE_EPOCH_LEEWAY_S", "-1"), ("LOG_WITNESSES", "hush"),
    ],
)  # fmt: skip
def test_a_variable_that_does_not_fit_is_refused_without_its_value(name: str, value: str) -> None:
    detail = refused_environment(**{f"ISSUER_{name}": value}).detail
    assert f"ISSUER_{name}" in detail
    assert value == "" or value not in detail.replace("65535", "").replace("3600", "")


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://issuer.example", "must be https"), ("https://issuer.example/", "without a trailing slash"),
     ("https://issuer.example?x=1", "must be scheme, host and path"), ("https://", "must be scheme, host and path"),
     ("https://user:pw@issuer.example", "must be scheme, host and path"), ("https://[::1", "must be scheme, host")],
)  # fmt: skip
def test_the_service_s_name_is_a_plain_https_url(url: str, reason: str) -> None:
    assert reason in refused_environment(ISSUER_URL=url).detail


@pytest.mark.parametrize("url", ["https://issuer.example", "https://issuer.example:8443", "https://issuer.example/a/b"])
def test_the_service_may_live_below_a_path_or_at_a_port(url: str) -> None:
    assert read_settings(None, {**ENVIRONMENT, "ISSUER_URL": url}).url == url


def test_plain_http_is_for_development() -> None:
    url = "http://127.0.0.1:8000"
    assert "in development only" in refused_environment(ISSUER_URL=url).detail
    assert read_settings(None, {**ENVIRONMENT, "ISSUER_URL": url, "ISSUER_DEVELOPMENT": "true"}).url == url


@pytest.mark.parametrize("host", ["localhost", "issuer.example", "10.0.0.1"])
def test_and_there_for_loopback_addresses_alone(host: str) -> None:
    """The owner of such a name's address could issue tokens that are believed."""
    assert "at a loopback address" in refused_environment(ISSUER_URL=f"http://{host}", ISSUER_DEVELOPMENT="true").detail


def write_passphrase(folder: Path, raw: bytes, mode: int = 0o600) -> Path:
    path = folder / "passphrase"
    path.write_bytes(raw)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("raw", "passphrase"), [(b"secret", b"secret"), (b"se cret \n", b"se cret "), (b"a\r\n", b"a")]
)
def test_a_passphrase_is_the_file_without_its_last_line_break(tmp_path: Path, raw: bytes, passphrase: bytes) -> None:
    write_passphrase(tmp_path, raw)
    settings = from_file(tmp_path, ISSUER_KEYS_PASSPHRASE_FILE=str(tmp_path / "passphrase"))
    assert settings.passphrase() == passphrase


@pytest.mark.parametrize("raw", [None, b"", b"\n"])
def test_a_passphrase_file_that_holds_none_is_refused(tmp_path: Path, raw: bytes | None) -> None:
    if raw is not None:
        write_passphrase(tmp_path, raw)
    settings = from_file(tmp_path, ISSUER_KEYS_PASSPHRASE_FILE=str(tmp_path / "passphrase"))
    with pytest.raises(SetupError) as error:
        settings.passphrase()
    assert error.value.detail.startswith("keys.passphrase_file: ")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_passphrase_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_passphrase(tmp_path, b"secret", mode)
    with pytest.raises(SetupError) as error:
        from_file(tmp_path, ISSUER_KEYS_PASSPHRASE_FILE=str(path)).passphrase()
    assert f"Run `chmod 600 {path}`" in error.value.detail
    (tmp_path / "link").symlink_to(write_passphrase(tmp_path, b"secret"))
    with pytest.raises(SetupError, match="a symbolic link"):
        from_file(tmp_path, ISSUER_KEYS_PASSPHRASE_FILE=str(tmp_path / "link")).passphrase()


@pytest.mark.parametrize(
    ("proxies", "doubted"),
    [
        ("", []),
        ("192.0.2.1, 192.0.2.0/24, 2001:db8::1, 2001:db8::/64", []),
        ("10.0.0.0/8", ["10.0.0.0/8"]),
        ("192.0.2.1,192.0.2.0/23 , 2001:db8::/63", ["192.0.2.0/23", "2001:db8::/63"]),
        ("0.0.0.0/0", ["0.0.0.0/0"]),
    ],
)
def test_a_wide_network_of_proxies_is_doubted_with_what_it_means(proxies: str, doubted: list[str]) -> None:
    doubts = read_settings(None, {**ENVIRONMENT, "ISSUER_LISTEN_TRUSTED_PROXIES": proxies}).doubts
    assert [doubt.split()[1] for doubt in doubts] == doubted
    assert all("can choose its source and the network of its access token" in doubt for doubt in doubts)
