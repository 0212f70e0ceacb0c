"""The state of a Hub: accounts, repositories with commits, and discussions with events. No HTTP here."""

import hashlib
import itertools
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["model", "dataset", "space"]
_TIMES = itertools.count()


def now() -> str:
    """Each event has a later time than the one before it, as the Hub writes it."""
    return f"2026-11-23T07:{next(_TIMES) // 60 % 60:02}:{next(_TIMES) % 60:02}.000Z"


def blob_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass(frozen=True)
class Account:
    name: str
    role: Literal["read", "write"]


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str
    files: Mapping[str, bytes]
    message: str


@dataclass
class Talk:
    """A discussion, or a pull request."""

    num: int
    title: str
    author: str
    status: str = "open"
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"

    @property
    def description(self) -> str:
        return self.comments[0]

    @property
    def comments(self) -> list[str]:
        return [str(event["data"]["latest"]["raw"]) for event in self.events if event["type"] == "comment"]

    def add(self, type: str, author: str, **data: Any) -> dict[str, Any]:
        said = {"createdAt": now(), "author": {"name": author}, "data": data}
        self.events.append({"id": secrets.token_hex(12), "type": type, **said})
        return self.events[-1]

    def comment(self, author: str, text: str) -> dict[str, Any]:
        latest = {"raw": text, "html": "", "updatedAt": now()}
        return self.add("comment", author, edited=False, hidden=False, latest=latest, history=[])

    def set_status(self, author: str, status: str) -> dict[str, Any]:
        self.status = status
        return self.add("status-change", author, status=status)


class Repo:
    def __init__(self, name: str, kind: Kind, files: Mapping[str, bytes], *, private: bool, gated: bool) -> None:
        self.name, self.kind, self.private, self.gated = name, kind, private, gated
        self.members = {name.partition("/")[0]}
        self.takes_pull_requests = True
        self.commits: dict[str, Commit] = {}
        self.refs: dict[str, str] = {}
        self.talks: list[Talk] = []
        self.refs["main"] = self._add("", files, "initial commit")

    def _add(self, parent: str, files: Mapping[str, bytes], message: str) -> str:
        tree = "".join(f"{path} {blob_oid(data)}\n" for path, data in sorted(files.items()))
        oid = hashlib.sha1(f"{parent}\n{message}\n{len(self.commits)}\n{tree}".encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent, dict(files), message)
        return oid

    @property
    def main(self) -> str:
        return self.refs["main"]

    def commit(self, changes: Mapping[str, bytes | None], message: str = "a change", ref: str = "main") -> str:
        """Commit files to a branch; None deletes one."""
        return self.commit_on(self.refs[ref], changes, message, ref)

    def commit_on(self, parent: str, changes: Mapping[str, bytes | None], message: str, ref: str) -> str:
        after = {**self.commits[parent].files, **changes}
        kept = {path: data for path, data in after.items() if data is not None}
        self.refs[ref] = self._add(parent, kept, message)
        return self.refs[ref]

    def resolve(self, revision: str) -> Commit | None:
        return self.commits.get(self.refs.get(revision.removeprefix("refs/heads/"), revision))

    def file(self, path: str, revision: str = "main") -> bytes | None:
        found = self.resolve(revision)
        return None if found is None else found.files.get(path)

    def propose(
        self, author: str, title: str, description: str, parent: str, changes: Mapping[str, bytes | None]
    ) -> Talk:
        talk = Talk(len(self.talks) + 1, title, author)
        self.talks.append(talk)
        talk.comment(author, description)
        oid = self.commit_on(parent, changes, title, talk.ref)
        talk.add("commit", author, subject=title, oid=oid)
        return talk

    @property
    def open(self) -> list[Talk]:
        return [talk for talk in self.talks if talk.status == "open"]

    def conflicts(self, talk: Talk) -> list[str]:
        """Return the files that main and the branch changed, each in its own way, since they parted."""
        base, ours, theirs = self._sides(talk)
        paths = {*base, *ours, *theirs}
        return sorted(path for path in paths if base.get(path) != ours.get(path) != theirs.get(path) != base.get(path))

    def _sides(self, talk: Talk) -> tuple[Mapping[str, bytes], Mapping[str, bytes], Mapping[str, bytes]]:
        on_main = set(self._history(self.main))
        base = next(oid for oid in self._history(self.refs[talk.ref]) if oid in on_main)
        commits = (self.commits[base], self.commits[self.main], self.commits[self.refs[talk.ref]])
        return commits[0].files, commits[1].files, commits[2].files

    def _history(self, oid: str) -> list[str]:
        found = []
        while oid:
            found.append(oid)
            oid = self.commits[oid].parent
        return found

    def merge(self, number: int) -> str:
        """Merge a pull request, as its owner's button does."""
        talk = self.talks[number - 1]
        assert not self.conflicts(talk), self.conflicts(talk)
        base, _, theirs = self._sides(talk)
        changes = {path: theirs.get(path) for path in {*base, *theirs} if base.get(path) != theirs.get(path)}
        talk.set_status(self.name.partition("/")[0], "merged")
        return self.commit(changes, f"Merge #{number}")


class State:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.accounts: dict[str, Account] = {}
        self.repos: dict[tuple[Kind, str], Repo] = {}
        self.renamed: dict[str, str] = {}

    def token(self, name: str = "evals-bot", role: Literal["read", "write"] = "write") -> str:
        """Return a new token of an account, which need not be there yet."""
        token = "hf_" + secrets.token_hex(17)
        self.accounts[token] = Account(name, role)
        return token

    def repo(
        self, name: str, files: Mapping[str, bytes] | None = None, kind: Kind = "model", *,
        private: bool = False, gated: bool = False,
    ) -> Repo:  # fmt: skip
        made = Repo(name, kind, {"README.md": b"# A model\n"} if files is None else files, private=private, gated=gated)
        self.repos[kind, name] = made
        return made

    def rename(self, name: str, new: str) -> None:
        repo = self.repos.pop(("model", name))
        repo.name = new
        self.repos["model", new] = repo
        self.renamed[name] = new
