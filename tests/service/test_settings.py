"""The settings: a file, the environment over it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.identity.token import LEEWAY_S
from issuer.service.settings import Settings, read_settings

FILE = """\
url: "https://issuer.example"
policies: "policies"
keys: "keys"
data: "data"
redis_url: "redis://localhost:6379/0"
"""
ENVIRONMENT = {
    "ISSUER_URL": "https://issuer.example",
    "ISSUER_POLICIES": "policies",
    "ISSUER_KEYS": "keys",
    "ISSUER_DATA": "data",
    "ISSUER_REDIS_URL": "embedded",
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


def test_a_file_is_enough_and_the_rest_has_safe_defaults(tmp_path: Path) -> None:
    settings = from_file(tmp_path)
    assert (settings.url, settings.redis_url) == ("https://issuer.example", "redis://localhost:6379/0")
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.epoch_leeway_s == LEEWAY_S == 30
    assert (settings.development, settings.durable_store, settings.noeviction_stated) == (False, False, False)
    assert settings.audit_file == Path("data/audit.jsonl")
    assert settings.pats_folder == Path("data/pats")
    assert settings.passphrase() is None


def test_personal_access_tokens_may_lie_apart_from_the_data(tmp_path: Path) -> None:
    assert from_file(tmp_path, FILE + 'pats: "/srv/pats"\n').pats_folder == Path("/srv/pats")
    assert from_file(tmp_path, ISSUER_PATS="elsewhere").pats_folder == Path("elsewhere")


def test_the_environment_is_enough() -> None:
    settings = read_settings(None, {**ENVIRONMENT, "ISSUER_PORT": "0", "ISSUER_DURABLE_STORE": "true"})
    assert (settings.redis_url, settings.port, settings.durable_store) == ("embedded", 0, True)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = from_file(tmp_path, FILE + "port: 1\n", ISSUER_PORT="2", ISSUER_KEYS="/run/keys")
    assert (settings.port, settings.keys, settings.data) == (2, "/run/keys", "data")


def test_variables_that_are_no_settings_are_left_alone() -> None:
    """ISSUER_ID_TOKEN belongs to the client; everything else belongs to somebody else."""
    read_settings(None, {**ENVIRONMENT, "ISSUER_ID_TOKEN": "x", "URL": "x", "MYISSUER_URL": "x"})


@pytest.mark.parametrize("name", ["url", "policies", "keys", "data", "redis_url"])
def test_what_is_missing_is_named_with_the_way_to_set_it(name: str) -> None:
    less = {key: value for key, value in ENVIRONMENT.items() if key != f"ISSUER_{name.upper()}"}
    with pytest.raises(SetupError) as error:
        read_settings(None, less)
    assert f"`{name}`" in error.value.detail
    assert "ISSUER_<NAME>" in error.value.detail


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("port: yes\n", 7, "readers disagree"),
        ('port: "8000"\n', 7, "expected a whole number, got text"),
        ("port: 8000.5\n", 7, "expected a whole number, got a number"),
        ("port: 65536\n", 7, "<= 65535"),
        ("port: null\n", 7, "expected a whole number, got nothing"),
        ("development: 1\n", 14, "expected true or false, got a whole number"),
        ('durable_store: "true"\n', 16, "expected true or false, got text"),
        ("host: 127\n", 7, "expected text, got a whole number"),
        ('host: ""\n', 7, "length >= 1"),
        ("epoch_leeway_s: -1\n", 17, ">= 0"),
        ("epoch_leeway_s: 3601\n", 17, "<= 3600"),
        ("passphrase: x\n", 13, "this setting is not known"),
        ('"a/b": x\n', 8, "this setting is not known"),
        ("url: x\n", 1, "this key stands here twice"),
    ],
)
def test_a_fault_of_the_file_is_refused_at_its_place(tmp_path: Path, line: str, column: int, reason: str) -> None:
    error = refused(tmp_path, FILE + line)
    assert str(error.place) == f"{tmp_path / 'settings.yaml'}:6:{column}"
    assert reason in error.detail


def test_a_file_that_is_no_map_or_not_there_is_refused(tmp_path: Path) -> None:
    assert "a settings file is a map" in refused(tmp_path, "- 1\n").detail
    with pytest.raises(InputError) as error:
        read_settings(tmp_path / "nowhere.yaml", {})
    assert error.value.code is Code.FILE_UNREADABLE


@pytest.mark.parametrize("name", ["URL", "POLICIES", "KEYS", "DATA", "REDIS_URL", "HOST"])
def test_an_empty_variable_is_not_the_folder_one_stands_in(name: str) -> None:
    assert "length >= 1" in refused_environment(**{f"ISSUER_{name}": ""}).detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"), ("PORT", "-1"), ("PORT", "65536"), ("PORT", ""), ("PORT", " 80"), ("PORT", "8_000"),
        ("DEVELOPMENT", "yes"), ("DEVELOPMENT", ""), ("DEVELOPMENT", "maybe"), ("EPOCH_LEEWAY_S", "3601"),
    ],
)  # fmt: skip
def test_a_variable_that_does_not_fit_is_refused_without_its_value(name: str, value: str) -> None:
    detail = refused_environment(**{f"ISSUER_{name}": value}).detail
    assert name.lower() in detail
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
    settings = from_file(tmp_path, ISSUER_KEY_PASSPHRASE_FILE=str(tmp_path / "passphrase"))
    assert settings.passphrase() == passphrase


@pytest.mark.parametrize("raw", [None, b"", b"\n"])
def test_a_passphrase_file_that_holds_none_is_refused(tmp_path: Path, raw: bytes | None) -> None:
    if raw is not None:
        write_passphrase(tmp_path, raw)
    settings = from_file(tmp_path, ISSUER_KEY_PASSPHRASE_FILE=str(tmp_path / "passphrase"))
    with pytest.raises(SetupError) as error:
        settings.passphrase()
    assert error.value.detail.startswith("key_passphrase_file: ")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_passphrase_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_passphrase(tmp_path, b"secret", mode)
    with pytest.raises(SetupError) as error:
        from_file(tmp_path, ISSUER_KEY_PASSPHRASE_FILE=str(path)).passphrase()
    assert f"Run `chmod 600 {path}`" in error.value.detail
    (tmp_path / "link").symlink_to(write_passphrase(tmp_path, b"secret"))
    with pytest.raises(SetupError, match="a symbolic link"):
        from_file(tmp_path, ISSUER_KEY_PASSPHRASE_FILE=str(tmp_path / "link")).passphrase()


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
    doubts = read_settings(None, {**ENVIRONMENT, "ISSUER_TRUSTED_PROXIES": proxies}).doubts
    assert [doubt.split()[1] for doubt in doubts] == doubted
    assert all("chooses, by X-Forwarded-For, as which source it is counted" in doubt for doubt in doubts)
