"""A Hub over HTTP for the tests: the part of its API that `huggingface_hub` calls to read files and propose changes.

`with HubServer() as hub:` serves on 127.0.0.1. It keeps the commits (`hub_state`). `fail` makes requests go wrong, `before`
lets a test act during a call, and `asked` are the requests.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.answering import Handler, serving
from tests.support.hub_state import Account, Commit, Kind, Repo, State, Talk, blob_oid, now

JSON = {"Content-Type": "application/json"}
_KINDS: dict[str, Kind] = {"models": "model", "datasets": "dataset", "spaces": "space"}
_API = re.compile(r"/api/(models|datasets|spaces)/([^/]+/[^/]+)(?:/([a-z]+)(?:/(.*))?)?")
_FILE = re.compile(
    r"/(?:(datasets|spaces)/)?([^/]+/[^/]+)/(?:resolve|raw)/((?:refs(?:/|%2F)pr(?:/|%2F)\d+)|[^/]+)/(.+)"
)


@dataclass
class Failure:
    """The failure of the next `times` requests with `match` in `METHOD path`, after the first `skip` of them.

    `status` is the answer; with 0 the connection is lost, before the request is served or `after` it. `cut` sends half of
    the true answer's body.
    """

    match: str
    status: int = 0
    headers: Mapping[str, str] | None = None
    body: bytes = b'{"error": "Something went wrong"}'
    times: int = 1
    skip: int = 0
    when: Literal["before", "after"] = "before"
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    authorization: str
    body: bytes


class Refusal(Exception):
    """An answer that is an error, as the Hub words it."""

    def __init__(self, status: int, message: str, code: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **headers}


class HubServer(State):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self.page_size = 50
        # A mirror that ignores what it is asked for, and one that lists what is new only later.
        self.filters, self.late = True, False
        self._failures: list[Failure] = []
        self._actions: list[tuple[str, Callable[[], object]]] = []
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> HubServer:
        exchange = type("Exchange", (_Exchange,), {"hub": self})
        self.url = self._stack.enter_context(serving(exchange))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fail(self, match: str, status: int = 0, **how: Any) -> None:
        """Let requests fail, as `Failure` describes."""
        self._failures.append(Failure(match, status, **how))

    def before(self, match: str, action: Callable[[], object]) -> None:
        """Act before the next request like this is served; other requests are served meanwhile."""
        self._actions.append((match, action))

    def count(self, match: str) -> int:
        return sum(match in f"{one.method} {one.path}" for one in self.asked)

    def take(self, line: str) -> tuple[Failure | None, list[Callable[[], object]]]:
        """Return the failure of a request, and the actions before it."""
        with self.lock:
            actions = [action for match, action in self._actions if match in line]
            self._actions = [(match, action) for match, action in self._actions if match not in line]
            failure = next((one for one in self._failures if one.match in line and one.times), None)
            if failure and failure.skip:
                failure.skip, failure = failure.skip - 1, None
            elif failure:
                failure.times -= 1
        return failure, actions

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer(self, asked: Asked) -> tuple[int, Any, Mapping[str, str]]:
        """Return status, body (bytes, or a value for JSON) and headers."""
        url = urlsplit(asked.path)
        try:
            account = self._account(asked.authorization)
            if url.path == "/api/whoami-v2":
                return 200, self._whoami(account), {}
            if found := _FILE.fullmatch(url.path):
                repo = self._repo(_KINDS[found[1] or "models"], found[2], account)
                return self._file(repo, unquote(found[3]), unquote(found[4]), account)
            if found := _API.fullmatch(url.path):
                repo = self._repo(_KINDS[found[1]], found[2], account)
                query = dict(parse_qsl(url.query))
                return self._api(
                    repo, (asked.method, found[3] or "", unquote(found[4] or "")), query, asked.body, account
                )
        except Refusal as no:
            return no.status, {"error": no.message}, no.headers
        return 404, {"error": "Sorry, we can't find the page you are looking for."}, {}

    def _account(self, authorization: str) -> Account | None:
        if not authorization:
            return None
        if (account := self.accounts.get(authorization.removeprefix("Bearer "))) is None:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return account

    def _whoami(self, account: Account | None) -> dict[str, Any]:
        if account is None:
            raise Refusal(401, "Invalid username or password.")
        token = {"displayName": "nightly", "role": account.role, "createdAt": now()}
        auth = {"type": "access_token", "accessToken": token}
        return {"type": "user", "id": "6" * 24, "name": account.name, "orgs": [], "auth": auth}

    def _repo(self, kind: Kind, name: str, account: Account | None) -> Repo:
        if kind == "model" and name in self.renamed:
            raise Refusal(307, "Temporary Redirect", Renamed=self.renamed[name])
        repo = self.repos.get((kind, name))
        if repo is None or (repo.private and (account is None or account.name not in repo.members)):
            raise Refusal(404 if account else 401, "Repository not found", "RepoNotFound")
        return repo

    def _demand_let_in(self, repo: Repo, account: Account | None) -> None:
        if repo.gated and (account is None or account.name not in repo.members):
            message = f"Access to model {repo.name} is restricted and you are not in the authorized list."
            raise Refusal(403 if account else 401, message, "GatedRepo")

    def _file(
        self, repo: Repo, revision: str, path: str, account: Account | None
    ) -> tuple[int, Any, Mapping[str, str]]:
        self._demand_let_in(repo, account)
        commit = _commit_at(repo, revision)
        if (data := commit.files.get(path)) is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        tag, media_type = f'"{blob_oid(data)}"', "text/plain; charset=utf-8"
        return 200, data, {"X-Repo-Commit": commit.oid, "ETag": tag, "Content-Type": media_type}

    def _api(
        self, repo: Repo, what: tuple[str, str, str], query: Mapping[str, str], body: bytes, account: Account | None
    ) -> tuple[int, Any, Mapping[str, str]]:
        match what:
            case "GET", "" | "revision", revision:
                return 200, self._info(repo, revision or "main"), {}
            case "GET", "tree", revision:
                return 200, self._tree(repo, revision), {}
            case "POST", "preupload", revision:
                return 200, self._preupload(repo, revision, json.loads(body), account), {}
            case "POST", "commit", revision:
                writer = self._writer(repo, account)
                return 200, self._commit(repo, revision, body, writer, create_pr="create_pr" in query), {}
            case "GET", "discussions", "":
                return 200, self._talks(repo, query), {}
            case "GET", "discussions", number:
                return 200, self._details(repo, self._talk(repo, number)), {}
            case "POST", "discussions", rest:
                number, _, resource = rest.partition("/")
                talk, writer = self._talk(repo, number), self._writer(repo, account)
                return 200, self._change(repo, talk, resource, json.loads(body), writer), {}
            case _:
                raise Refusal(404, "Not found")

    def _info(self, repo: Repo, revision: str) -> dict[str, Any]:
        commit = _commit_at(repo, revision)
        siblings = [{"rfilename": path} for path in sorted(commit.files)]
        return {
            "_id": "6" * 24, "id": repo.name, "author": repo.name.partition("/")[0], "sha": commit.oid, "tags": [],
            "private": repo.private, "gated": "manual" if repo.gated else False, "disabled": False, "siblings": siblings,
        }  # fmt: skip

    def _tree(self, repo: Repo, revision: str) -> list[dict[str, Any]]:
        files = sorted(_commit_at(repo, revision).files.items())
        return [{"type": "file", "oid": blob_oid(data), "size": len(data), "path": path} for path, data in files]

    def _writer(self, repo: Repo, account: Account | None) -> Account:
        if account is None:
            raise Refusal(401, "Invalid username or password.")
        self._demand_let_in(repo, account)
        if account.role != "write":
            raise Refusal(403, "Forbidden: you must use a write token to open a pull request")
        return account

    def _preupload(self, repo: Repo, revision: str, body: Any, account: Account | None) -> dict[str, Any]:
        self._writer(repo, account)
        answer = []
        for file in body["files"]:
            known = repo.file(file["path"], revision)
            oid = {} if known is None else {"oid": blob_oid(known)}
            answer.append({"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, **oid})
        return {"files": answer}

    def _commit(self, repo: Repo, revision: str, body: bytes, account: Account, *, create_pr: bool) -> dict[str, Any]:
        lines = [json.loads(line) for line in body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        changes: dict[str, bytes | None] = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        changes |= {line["value"]["path"]: None for line in lines if line["key"] == "deletedFile"}
        head = repo.resolve(revision)
        parent = header.get("parentCommit") or (head.oid if head else "")
        if parent not in repo.commits:
            raise Refusal(404, f"Invalid rev id: {parent}", "RevisionNotFound")
        # An older parent is refused for a branch only: a pull request is made from it.
        if not create_pr and (head is None or parent != head.oid):
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        if create_pr and not repo.takes_pull_requests:
            raise Refusal(403, "Discussions are disabled for this repo")
        made: dict[str, Any] = {"success": True, "hookOutput": ""}
        if create_pr:
            talk = repo.propose(account.name, header["summary"], header["description"], parent, changes)
            made["pullRequestUrl"] = f"{self.url}/{repo.name}/discussions/{talk.num}"
            made["commitOid"] = repo.refs[talk.ref]
        else:
            made["commitOid"] = repo.commit(changes, header["summary"], revision)
        return made | {"commitUrl": f"{self.url}/{repo.name}/commit/{made['commitOid']}"}

    def _talk(self, repo: Repo, number: str) -> Talk:
        if not number.isdigit() or not 1 <= int(number) <= len(repo.talks):
            raise Refusal(404, "Discussion not found")
        return repo.talks[int(number) - 1]

    def _talks(self, repo: Repo, asked: Mapping[str, str]) -> dict[str, Any]:
        query = asked if self.filters else {"p": asked["p"]}
        found = [
            talk for talk in reversed(repo.talks[:-1] if self.late else repo.talks)
            if query.get("status", talk.status) == talk.status and query.get("author", talk.author) == talk.author
        ]  # fmt: skip
        start = int(query.get("p", "0")) * self.page_size
        page = [self._shown(repo, talk) for talk in found[start : start + self.page_size]]
        return {"discussions": page, "count": len(found), "start": start}

    def _shown(self, repo: Repo, talk: Talk) -> dict[str, Any]:
        return {
            "num": talk.num, "title": talk.title, "status": talk.status, "author": {"name": talk.author}, "isPullRequest": True,
            "createdAt": talk.events[0]["createdAt"], "repo": {"name": repo.name, "type": repo.kind},
        }  # fmt: skip

    def _details(self, repo: Repo, talk: Talk) -> dict[str, Any]:
        more = {"events": talk.events, "changes": {"base": "refs/heads/main"}, "diff": ""}
        return {**self._shown(repo, talk), **more, "filesWithConflicts": repo.conflicts(talk)}

    def _change(self, repo: Repo, talk: Talk, resource: str, body: Any, account: Account) -> dict[str, Any]:
        if account.name not in {talk.author, *repo.members}:
            raise Refusal(403, "Forbidden")
        if resource == "comment":
            return {"newMessage": talk.comment(account.name, body["comment"])}
        if resource == "status":
            if comment := body.get("comment"):
                talk.comment(account.name, comment)
            return {"newStatus": talk.set_status(account.name, body["status"])}
        if resource == "merge":
            return {"commitOid": repo.merge(talk.num)}
        raise Refusal(404, "Not found")


def _commit_at(repo: Repo, revision: str) -> Commit:
    if (commit := repo.resolve(revision)) is None:
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
    return commit


class _Exchange(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: HubServer

    def answer(self) -> None:
        hub = self.hub
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, self.path, self.headers.get("Authorization", ""), body)
        hub.asked.append(asked)
        failure, actions = hub.take(f"{self.command} {self.path}")
        for action in actions:
            action()
        if failure and failure.when == "before" and not failure.cut:
            return self._go_wrong(failure)
        with hub.lock:
            status, answer, headers = hub.answer(asked)
        if "Renamed" in headers:
            old = next(old for old, new in hub.renamed.items() if new == headers["Renamed"] and old in self.path)
            return self.reply(status, b"", Location=self.path.replace(old, headers["Renamed"]))
        if failure and not failure.cut:
            return self._go_wrong(failure)
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        sent = {**JSON, "Content-Length": str(len(raw)), **headers}
        self.close_connection = self.close_connection or failure is not None
        return self.reply(status, raw[: len(raw) // 2] if failure else raw, **sent)

    def _go_wrong(self, failure: Failure) -> None:
        if failure.status:
            return self.reply(failure.status, failure.body, **{**JSON, **(failure.headers or {})})
        self.close_connection = True
        return None
