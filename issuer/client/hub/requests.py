"""Requests to the Hub: `huggingface_hub`'s calls with a time limit, safe repeats, and this project's errors.

Only this module uses the library, which is imported at the first request. Redirects are followed; the token is not sent
to another origin (httpx2, as RFC 9110 15.4 requires).
"""

from __future__ import annotations

import itertools
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

# No request is left for t seconds: `"api";r=0;t=55` (draft-ietf-httpapi-ratelimit-headers).
_RATE_LIMIT = re.compile(r";\s*r=0\s*;\s*t=([0-9]{1,9})")
# The library's errors for an answer that is not JSON, or unexpected JSON.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_CONFLICTS = frozenset({409, 412})


class Lost(Undecided):
    """408, 409, 412, 429, 5xx or no answer: the Hub may have executed the request. `asked_s` is the Retry-After, if
    any. `going_on` means that the request was abandoned and may still arrive."""

    def __init__(self, detail: str, asked_s: int | None = None, *, going_on: bool = False) -> None:
        super().__init__(Code.HUB_UNAVAILABLE, detail, retry_after_s=1 if asked_s is None else asked_s)
        self.asked_s = asked_s
        self.going_on = going_on


class HubRequests:
    """Requests to one endpoint with one token. `patience_s` bounds a request with all its repeats."""

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
            # With None instead of False, the library would search for another token.
            self._made = HfApi(endpoint=self.endpoint, token=self._token or False, library_name="issuer")
        return self._made

    def demand_token(self) -> None:
        """Raise SetupError(`hub.token`) if $HF_TOKEN has no token."""
        if not self._token:
            raise SetupError(Code.HUB_TOKEN, "opening a pull request needs a token of the Hub, in $HF_TOKEN")

    def patiently(self, repo: str, call: Callable[[], T]) -> T:
        """Call until the Hub answers; the call must be safe to repeat. Raises as `once` does."""
        until = time.monotonic() + self.patience_s
        for attempt in itertools.count(1):
            try:
                return self.once(repo, call, min(DEADLINE_S, max(0.1, until - time.monotonic())))
            except Lost as lost:
                if not wait(lost, attempt, until):
                    raise
        raise AssertionError

    def once(self, repo: str, call: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Call once. Raises Refused or SetupError with a code of the Hub, and Lost."""
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
        return Lost(f"the server at {self.endpoint} is not the Hub, or answers with errors")

    def _meant(self, error: HfHubHTTPError, repo: str) -> IssuerError:
        """Return this project's error for an error of the library. The answer's body is not shown."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        status = error.response.status_code
        if isinstance(error, GatedRepoError):
            return Refused(Code.HUB_GATED, f"{repo} is gated, and this account has no access")
        if isinstance(error, RepositoryNotFoundError):
            return Refused(Code.HUB_NOT_FOUND, f"the Hub has no repository {repo}, or hides it from this account")
        if isinstance(error, RevisionNotFoundError):
            return Refused(Code.HUB_NOT_FOUND, f"{repo} has no such commit or branch")
        if status in {408, 429} or status >= 500:
            return Lost(f"the Hub answers HTTP status {status}", _asked_s(error))
        if status in _CONFLICTS:
            return Lost(f"the request conflicts with another commit to {repo} (HTTP status {status})", _asked_s(error))
        if status == 401:
            return SetupError(Code.HUB_TOKEN, "the Hub does not know this token: it expired, or is for another Hub")
        if status == 403:
            return Refused(Code.HUB_FORBIDDEN, f"this account may not do that in {repo}")
        return Refused(Code.HUB_REFUSED, f"the Hub answers HTTP status {status} for {repo}")

    def commit_of(self, repo: str, revision: str, kind: RepoType = "model") -> str:
        """Return the full commit of a repository's revision. Raises Refused(`hub.renamed`, `hub.not_model`)."""
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
            raise Refused(Code.HUB_NOT_MODEL, f"{repo} is {name}: results belong in the model's repository")

    def fetch(self, repo: str, commit: str, path: str, kind: RepoType = "model") -> bytes | None:
        """Return a file's bytes at a commit; None if there is no such file. Raises InputError(`file.too_large`) for
        more bytes than a result file may have."""
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
        """Return the name of the token's account."""
        return str(self.patiently("", lambda: self.api.whoami())["name"])

    def open_ones(self, repo: str, author: str) -> list[int]:
        """Return the numbers of an account's open pull requests."""

        def numbers() -> list[int]:
            talks = self.api.get_repo_discussions(
                repo, author=author, discussion_type="pull_request", discussion_status="open"
            )
            # Filtered again, because a mirror may not know these parameters.
            return [
                talk.num for talk in talks if talk.is_pull_request and (talk.status, talk.author) == ("open", author)
            ]

        return self.patiently(repo, numbers)

    def description(self, repo: str, number: int) -> str:
        """Return the description of a pull request, which is its first comment, or ""."""
        details = self.patiently(repo, lambda: self.api.get_discussion_details(repo, number))
        return next((str(event.content) for event in details.events if hasattr(event, "content")), "")

    def create(self, proposal: Proposal, files: Mapping[str, bytes], parent: str) -> int | None:
        """Create a pull request on a commit of main with these files, and return its number; None if main has the files
        by now. This is not repeated: after Lost the pull request may exist."""
        from huggingface_hub import CommitOperationAdd

        operations = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=data) for path, data in files.items()]

        def commit() -> int | None:
            made = self.api.create_commit(
                proposal.repo, operations, commit_message=proposal.title, commit_description=proposal.description,
                create_pr=True, parent_commit=parent,
            )  # fmt: skip
            return made.pr_num

        # The other half of the time is for finding out whether the Hub accepted it.
        return self.once(proposal.repo, commit, self.patience_s / 2)

    def close(self, repo: str, number: int, comment: str) -> None:
        """Close a pull request."""
        self.patiently(repo, lambda: self.api.change_discussion_status(repo, number, "closed", comment=comment))


def wait(lost: Lost, attempt: int, until: float) -> bool:
    """Wait before the next attempt for as long as the Hub requests. Return False if no attempt or no time is left."""
    wait_s = attempt if lost.asked_s is None else lost.asked_s
    if attempt >= ATTEMPTS or time.monotonic() + wait_s >= until:
        return False
    time.sleep(wait_s)
    return True


def _checked(token: str) -> str:
    """Return a token that may be sent. Raises SetupError(`hub.token`), without the token."""
    if token.startswith(pat.PREFIX):
        detail = "$HF_TOKEN is a personal access token of an issuer, which the Hub must not see; it was not sent"
        raise SetupError(Code.HUB_TOKEN, detail)
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise SetupError(Code.HUB_TOKEN, "$HF_TOKEN is not a token: it has spaces, line breaks or other characters")
    return token


def _asked_s(error: HfHubHTTPError) -> int | None:
    """Return the wait that the Hub requests: Retry-After, or the time until its rate limit starts anew."""
    headers = error.response.headers
    if (retry_after_s := seconds_of(headers.get("retry-after", ""))) is not None:
        return retry_after_s
    limit = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    return int(limit[1]) if limit and error.response.status_code == 429 else None
