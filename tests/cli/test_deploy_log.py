"""The transparency log's chapter of deploy/README.md: its transcripts are run, one after the other, on one log.

What has happened meanwhile stands above each in a comment; here it is done.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from issuer.service.log.setup import LogSettings, sequencer_of, turn
from issuer.service.server import log_settings
from issuer.service.settings import read_settings
from tests.support.command import issuer
from tests.support.sequencing import tokens
from tests.support.shared import ROOT

PAGE = (ROOT / "deploy" / "README.md").read_text("utf-8")
CHAPTER = PAGE.partition("\n## The transparency log\n")[2].partition("\n## ")[0]
TRANSCRIPT = re.compile(r"^<!-- ([^\n]*) -->\n```console\n(.*?)^```", re.S | re.M)
COMMAND = re.compile(r"((?:[A-Z_]+=\S* )*)issuer (.*)")
SETTINGS = 'url: "https://issuer.example"\npolicies: "policies"\nkeys: "keys"\ndata: "data"\nredis_url: "embedded"\n'


def pattern(output: str) -> str:
    """Make a regular expression of an output: `...` is any text of a line, a line `...` any lines."""
    return re.sub(r"^\\\.\\\.\\\.\\\n", r"(?:.*\\n)*", re.escape(output), flags=re.M).replace(r"\.\.\.", ".*")


class Night:
    """The operator's folder, and what happens to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""
        (folder / "policies").mkdir()
        (folder / "settings.yaml").write_text(SETTINGS)
        self.happens: dict[str, Callable[[], object]] = {
            "as it is": lambda: None,
            "log_origin is set": self.set_origin,
            "600 tokens later": lambda: self.append(0, 600),
            "the database is lost": lambda: shutil.rmtree(folder / "data" / "log"),
            "an old copy is put back": self.put_back,
            "the records are lost": lambda: shutil.rmtree(folder / "elsewhere"),
            "exported once more; then database and records are lost": self.lose_all,
        }

    @property
    def log(self) -> LogSettings:
        return log_settings(read_settings(Path("settings.yaml"), {}), "")

    def set_origin(self) -> None:
        """Do what the command before says."""
        with (self.folder / "settings.yaml").open("a") as settings:
            settings.write("".join(re.findall(r"^log_origin: .*\n", self.said, re.M)))
        (named,) = re.findall(r"^log .*\n", self.said, re.M)
        (self.folder / "witness-policy.txt").write_text(f"{named}quorum none\n")

    def append(self, first: int, end: int) -> None:
        with turn(self.log), closing(sequencer_of(self.log)) as sequencer:
            sequencer.start()
            sequencer.append(tokens(*range(first, end)))
            published = sequencer.published
            assert published is not None
            sequencer.keep_cosigned(end, published.note)

    def put_back(self) -> None:
        database = self.folder / "data" / "log" / "log.sqlite"
        old = shutil.copy(database, self.folder / "old.sqlite")
        self.append(600, 700)
        database.rename(self.folder / "newest.sqlite")
        shutil.move(old, database)

    def lose_all(self) -> None:
        self.run("issuer log export /backup/log --from data/log/log.sqlite --policy witness-policy.txt")
        shutil.rmtree(self.folder / "data")
        shutil.rmtree(self.folder / "elsewhere")

    def run(self, command: str) -> str:
        """Run a line as a shell does, with our own folder for backups, and the root that was just told."""
        told = re.search(r"--root ([0-9a-f]{64})", self.said)
        line = self._here(command).replace("--root ROOT", told[0] if told else "")
        if found := COMMAND.fullmatch(line):
            env = dict(word.split("=", 1) for word in found[1].split())
            done = issuer(*self._words(found[2]), env=env)
        else:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        assert "Traceback" not in done.stderr
        self.said = done.stdout + done.stderr
        return self.said

    def expected(self, output: str) -> str:
        return pattern(self._here(output))

    def _here(self, text: str) -> str:
        return text.replace("/backup/log", str(self.folder / "backup"))

    def _words(self, line: str) -> list[str]:
        words = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
        return words.stdout.decode().split("\0")[:-1]


@pytest.mark.long
def test_the_transcripts_say_what_is_said_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    night = Night(tmp_path)
    ran: list[str] = []
    for happened, transcript in TRANSCRIPT.findall(CHAPTER):
        night.happens.pop(happened)()
        _, *parts = re.split(r"^\$ (.*)\n", transcript, flags=re.M)
        for command, output in zip(parts[::2], parts[1::2], strict=True):
            said = night.run(command)
            assert re.fullmatch(night.expected(output), said), f"$ {command}\n{said}"
            ran.append(command)
    assert not night.happens, "each is in the chapter"
    assert len([command for command in ran if command.startswith("issuer serve")]) == 3


def test_every_transcript_of_the_chapter_is_run() -> None:
    assert CHAPTER.count("```console") == len(TRANSCRIPT.findall(CHAPTER)) == 7
