"""`issuer verify` of files that are cut off, doubled, huge, binary or hostile: one clear line each, and no yes."""

import random
from pathlib import Path

import pytest

from issuer.formats import strict_yaml
from issuer.verify.report import Verdict
from tests.support import make
from tests.support.asking import ask
from tests.support.tree import write_result, write_trust

SAID = make.submission({"notes": "no tools"})
GOOD = make.file_for(SAID)
TOKEN = make.token_for(SAID)
ONE = '- {dataset: {id: "a/b"}, metrics: [{metric_id: m, value: 1}], verify_token: "x.y.z"}\n'

MALFORMED: dict[str, tuple[bytes, str]] = {
    "cut off in a text": (GOOD.encode()[:-30], "file.syntax"),
    "binary": (random.Random(1).randbytes(5000), "file.encoding"),
    "zeros": (bytes(1000), "file."),
    "an archive": (b"PK\x03\x04" + bytes(200), "file."),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(50), "file.encoding"),
    "too large": (b"#" * (strict_yaml.MAX_BYTES + 1), "file.too_large"),
    "as large as allowed": (b"#" * strict_yaml.MAX_BYTES, "file."),
    "too many entries": (ONE.encode() * 1001, "file.too_large"),
    "too deep": (b"- " + b"{a: " * 40 + b"1" + b"}" * 40, "file.too_large"),
    "a bomb of aliases": (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "file."),
    "control characters": (GOOD.replace("no tools", "a\x07\x1b[2Jb").encode(), "file."),
    "a web page": (b"<!doctype html>\n<html><body>Not found</body></html>\n", "file."),
    "a JSON object": (b'{"error": "Not found"}', "file."),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "file."),
    "a conflict": (f"<<<<<<< ours\n{GOOD}=======\n{GOOD}>>>>>>> theirs\n".encode(), "file."),
    "UTF-16": (GOOD.encode("utf-16"), "file.encoding"),
    "a member twice": (GOOD.replace("  notes:", '  notes: "a"\n  notes:').encode(), "file."),
}
JUDGED: dict[str, tuple[str, Verdict]] = {
    "cut off between two members": (GOOD[: GOOD.index("  verify_token")], "unverified"),
    "cut off in the token": (GOOD.replace(TOKEN, TOKEN[:-20]), "failed"),
    "a token that is doubled": (GOOD.replace(TOKEN, TOKEN + TOKEN), "failed"),
    "a token with a line break": (GOOD.replace(TOKEN, f"{TOKEN[:50]}\\n{TOKEN[50:]}"), "failed"),
    "a token of control characters": (GOOD.replace(TOKEN, "\\e[2J\\r\\x85"), "failed"),
    "a huge token": (GOOD.replace(TOKEN, "A" * 500_000), "failed"),
    "a huge note": (GOOD.replace("no tools", "x" * 500_000), "failed"),
    "huge names": (GOOD.replace("openai/gsm8k", "a" * 100_000), "failed"),
    "a huge metric": (GOOD.replace('"accuracy"', f'"{"a" * 100_000}"'), "failed"),
    "a name that draws": (GOOD.replace('"gsm8k"', '"\\e[31mverified\\r"', 1), "failed"),
}


@pytest.fixture
def by(tmp_path: Path) -> tuple[object, ...]:
    return "--repo", make.REPO, "--trust", write_trust(tmp_path)


def test_a_malformed_result_file_gets_one_line_with_its_place(
    tmp_path: Path, by: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, (raw, code) in MALFORMED.items():
        file = write_result(tmp_path, make.REPO, "gsm8k.yaml", raw)
        assert ask(tmp_path, make.NOW, file, *by) == 3, name
        written = capsys.readouterr()
        first, remedy, *more = written.err.splitlines()
        assert (written.out, first.startswith(f"issuer: {file}"), code in first) == ("", True, True), name
        assert len(first) < len(str(file)) + 300
        assert (remedy[:2], [line for line in more if not line.startswith("  ")]) == ("  ", [])
        assert written.err.replace("\n", "").isprintable()


def test_a_hostile_entry_is_judged_and_shown_in_short_lines(
    tmp_path: Path, by: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, (text, verdict) in JUDGED.items():
        file = write_result(tmp_path, make.REPO, "gsm8k.yaml", text)
        assert ask(tmp_path, make.NOW, file, *by) == 1, name
        lines = capsys.readouterr().out.splitlines()
        assert ask(tmp_path, make.NOW, file, *by, "--json") == 1
        assert f'"verdict": "{verdict}"' in capsys.readouterr().out
        assert all(line.isprintable() and len(line) < 600 for line in lines)
        assert len(lines[0]) < 450
    file = write_result(tmp_path, make.REPO, "gsm8k.yaml", GOOD + GOOD)
    assert ask(tmp_path, make.NOW, file, *by) == 0
    assert capsys.readouterr().out.count("verified: acme/open-model@") == 2
