"""The client of the Hugging Face Hub: it reads files on main, and opens pull requests with changed files.

    hub = Hub.here()
    commit = hub.main(repo)
    after = merge_entries(hub.read(repo, path, revision=commit), path, [issued.entry])
    made = hub.open_pull_request(repo, {path: after}, title, description, commit, [issued.content_digest])

It uses `huggingface_hub`, which is the extra `[hub]` and imported at the first request. The write token is sent only to
the endpoint. The caller must verify the entries: this package does not know issuers or tokens.
"""

from issuer.client.hub.hub import Hub
from issuer.client.hub.pull_request import (
    FileAt,
    Moved,
    PullRequest,
    PullRequestText,
    describe_entry,
    merge_entries,
    pull_request_text,
)

__all__ = [
    "FileAt", "Hub", "Moved", "PullRequest", "PullRequestText", "describe_entry", "merge_entries", "pull_request_text",
]  # fmt: skip
