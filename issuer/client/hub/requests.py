"""How the Hub is asked: `huggingface_hub`'s calls, bounded in time and repeated where that is safe; its errors as ours.

The one place that knows the library, which is imported when the first question is asked. A redirect is followed; to
another origin it goes without the token (httpx2, as RFC 9110 15.4 asks for).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import quote

from issuer.client.hub.pull_request import Proposal
from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Place, Refused, SetupError, Undecided
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.identity import pat
from issuer.io.http_client import ATTEMPTS, DEADLINE_S, NoAnswer, check_url, seconds_of, within
from issuer.results.claims import REVISION, is_repo

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

RepoType = Literal["model", "dataset"]
T = TypeVar("T")

# What is left is 0, and until when: `"api";r=0;t=55` (draft-ietf-httpapi-ratelimit-headers).
_RATE_LIMIT = re.compile(r";\s*r=0\s*;\s*t=([0-9]{1,9})")
# What the library makes of an answer that is no JSON, or other JSON.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_IN_THE_WAY = frozenset({409, 412})


class Lost(Undecided):
    """429, 5xx, 409, 412 or no answer: what was asked for may be done or not. `asked_s` is the Retry-After, if any;
    `going_on` says that nobody waits any more for what was sent, which may still arrive."""

    def __init__(self, detail: str, asked_s: int | None = None, *, going_on: bool = False) -> None:
        super().__init__(Code.HUB_UNAVAILABLE, detail, retry_after_s=1 if asked_s is None else asked_s)
        self.asked_s = asked_s
        self.going_on = going_on


class HubRequests:
    """One endpoint, one token, and how long a question may take with all its repeats."""

    def __init__(self, endpoint: str, token: str, patience_s: float) -> None:
        self.endpoint = check_url(endpoint)
        self.patience_s = patience_s
        self._token = _checked(token)
        self._made: HfApi | None = None

    @property
    def api(self) -> HfApi:
        """The library's client. Raises SetupError(`package.missing`)."""
        if self._made is None:
            try:
                from huggingface_hub import HfApi
            except ModuleNotFoundError as error:
                detail = f"the Hub needs {error.name}. In the checkout, run `pip install '.[hub]'`"
                raise SetupError(Code.PACKAGE_MISSING, detail) from None
            # False: else the library would look for a token of its own.
            self._made = HfApi(endpoint=self.endpoint, token=self._token or False, library_name="issuer")
        return self._made

    def demand_token(self) -> None:
        """Raise SetupError(`hub.token`) where $HF_TOKEN has no token."""
        if not self._token:
            raise SetupError(Code.HUB_TOKEN, "to open a pull request takes a token of the Hub, in $HF_TOKEN")

    def patiently(self, repo: str, call: Callable[[], T]) -> T:
        """Ask until there is an answer: for what is safe to repeat. Raises as `once` does."""
        until = time.monotonic() + self.patience_s
        attempt = 1
        while True:
            try:
                return self.once(repo, call, min(DEADLINE_S, max(0.1, until - time.monotonic())))
            except Lost as lost:
                if not wait(lost, attempt, until):
                    raise
            attempt += 1

    def once(self, repo: str, call: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Ask once. Raises Refused or SetupError with a code of the Hub's, and Lost."""
        self.api  # noqa: B018  (SetupError where the library is missing)
        from httpx2 import HTTPError, InvalidURL, StreamError
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            return within(deadline_s, call, self.endpoint)
        except NoAnswer as silent:
            raise Lost(silent.detail, going_on=True) from None
        except OfflineModeIsEnabled:
            raise SetupError(Code.SETTINGS_INVALID, "$HF_HUB_OFFLINE is set: unset it to reach the Hub") from None
        except HfHubHTTPError as error:
            raise self._meant(error, repo) from None
        except (HTTPError, InvalidURL, StreamError) as error:
            raise Lost(f"no answer from {self.endpoint}: {type(error).__name__}") from None
        except _UNREADABLE:
            raise self._stranger() from None

    def _stranger(self) -> Lost:
        return Lost(f"what answers at {self.endpoint} is not the Hub, or not well")

    def _meant(self, error: HfHubHTTPError, repo: str) -> IssuerError:
        """Return the error that an answer means; nothing of its body is shown."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        status = error.response.status_code
        if isinstance(error, GatedRepoError):
            return Refused(Code.HUB_GATED, f"{repo} is gated, and this account has not been let in")
        if isinstance(error, RepositoryNotFoundError):
            return Refused(Code.HUB_NOT_FOUND, f"the Hub shows this account no repository {repo}")
        if isinstance(error, RevisionNotFoundError):
            return Refused(Code.HUB_NOT_FOUND, f"{repo} has no such commit or branch")
        if status in {408, 429} or status >= 500:
            return Lost(f"the Hub answers HTTP status {status}", _asked_s(error))
        if status in _IN_THE_WAY:
            return Lost(f"another commit to {repo} is in the way (HTTP status {status})", _asked_s(error))
        if status == 401:
            return SetupError(Code.HUB_TOKEN, "the Hub does not know this token: it has ended, or is of another Hub")
        if status == 403:
            return Refused(Code.HUB_FORBIDDEN, f"the Hub does not let this account do that in {repo}")
        return Refused(Code.HUB_REFUSED, f"the Hub answers HTTP status {status} about {repo}")

    def commit_of(self, repo: str, revision: str, kind: RepoType = "model") -> str:
        """Return the full hash that a revision of a repository is at. Raises Refused(`hub.renamed`), and
        `hub.not_model` for a model's name that is another kind of repository's."""
        try:
            info = self.patiently(repo, lambda: self.api.repo_info(repo, revision=revision, repo_type=kind))
        except Refused as missing:
            if missing.code is Code.HUB_NOT_FOUND and kind == "model":
                self._demand_model(repo)
            raise
        if not is_repo(str(info.id)) or not REVISION.fullmatch(str(info.sha)):
            raise self._stranger()
        if info.id != repo:
            raise Refused(Code.HUB_RENAMED, f"the repository {repo} is now {info.id}")
        return str(info.sha)

    def _demand_model(self, repo: str) -> None:
        for kind, name in (("dataset", "a dataset"), ("space", "a Space")):
            try:
                self.patiently(repo, lambda kind=kind: self.api.repo_info(repo, repo_type=kind))  # type: ignore[misc]
            except Refused:
                continue
            raise Refused(Code.HUB_NOT_MODEL, f"{repo} is {name}: results sit in a model's repository")

    def fetch(self, repo: str, commit: str, path: str, kind: RepoType = "model") -> bytes | None:
        """Return a file's bytes at a commit, at most as many as a result file has; None where there is none. Raises
        InputError(`file.too_large`)."""
        folder = "datasets/" if kind == "dataset" else ""
        url = f"{self.endpoint}/{folder}{repo}/resolve/{commit}/{quote(path)}"
        data = self.patiently(repo, lambda: self._read(url))
        if data is not None and len(data) > MAX_BYTES:
            rule = f"has more than {MAX_BYTES} bytes"
            raise InputError(Code.FILE_TOO_LARGE, rule, Place(f"{repo}/{path}"))
        return data

    def _read(self, url: str) -> bytes | None:
        from huggingface_hub import get_session, hf_raise_for_status
        from huggingface_hub.errors import EntryNotFoundError

        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        data = bytearray()
        try:
            with get_session().stream("GET", url, headers=headers) as response:
                hf_raise_for_status(response)
                for part in response.iter_bytes():
                    data += part
                    if len(data) > MAX_BYTES:
                        break
        except EntryNotFoundError:
            return None
        return bytes(data)

    def account(self) -> str:
        """Return the name of the account whose token this is."""
        return str(self.patiently("", lambda: self.api.whoami())["name"])

    def open_ones(self, repo: str, author: str) -> list[int]:
        """Return the numbers of an account's open pull requests."""

        def numbers() -> list[int]:
            found = self.api.get_repo_discussions(
                repo, author=author, discussion_type="pull_request", discussion_status="open"
            )
            # Looked at again: a mirror may know no such parameters.
            return [one.num for one in found if one.is_pull_request and one.status == "open" and one.author == author]

        return self.patiently(repo, numbers)

    def description(self, repo: str, number: int) -> str:
        """Return the description of a pull request, which is its first comment; "" where there is none."""
        details = self.patiently(repo, lambda: self.api.get_discussion_details(repo, number))
        return next((str(event.content) for event in details.events if hasattr(event, "content")), "")

    def create(self, proposal: Proposal, files: Mapping[str, bytes], parent: str) -> int | None:
        """Make a pull request from a commit of main, with these of its files, and return its number; None where main
        has them by now. Not repeated: after Lost it may be there."""
        from huggingface_hub import CommitOperationAdd

        operations = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=data) for path, data in files.items()]

        def commit() -> int | None:
            made = self.api.create_commit(
                proposal.repo, operations, commit_message=proposal.title, commit_description=proposal.description,
                create_pr=True, parent_commit=parent,
            )  # fmt: skip
            return made.pr_num

        # Half: what is left is for finding out whether it was taken.
        return self.once(proposal.repo, commit, self.patience_s / 2)

    def close(self, repo: str, number: int, comment: str) -> None:
        """Close a pull request."""
        self.patiently(repo, lambda: self.api.change_discussion_status(repo, number, "closed", comment=comment))


def wait(lost: Lost, attempt: int, until: float) -> bool:
    """Wait before the next attempt, as long as the Hub asks; False where there is none, or no time for it."""
    wait_s = attempt if lost.asked_s is None else lost.asked_s
    if attempt >= ATTEMPTS or time.monotonic() + wait_s >= until:
        return False
    time.sleep(wait_s)
    return True


def _checked(token: str) -> str:
    """Return a token that may be sent. Raises SetupError(`hub.token`), which does not show it."""
    if token.startswith(pat.PREFIX):
        detail = "$HF_TOKEN holds a personal access token of an issuer, which the Hub must not see; it was not sent"
        raise SetupError(Code.HUB_TOKEN, detail)
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise SetupError(Code.HUB_TOKEN, "$HF_TOKEN holds no token: it has spaces, line breaks or other characters")
    return token


def _asked_s(error: HfHubHTTPError) -> int | None:
    """How long the Hub asks to wait: Retry-After, or of its own rate limit headers the time until they begin anew."""
    headers = error.response.headers
    if (told := seconds_of(headers.get("retry-after", ""))) is not None:
        return told
    limit = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    return int(limit[1]) if limit and error.response.status_code == 429 else None
