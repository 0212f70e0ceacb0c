"""The Hub, for who proposes results: what is on main, and a pull request with the files that were made of it.

    hub = Hub.here()
    commit = hub.main(repo)
    after = merge_entries(hub.read(repo, path, revision=commit), path, [issued.entry])
    made = hub.open_pull_request(repo, {path: after}, title, description, commit, [issued.content_digest])

`huggingface_hub` speaks to it; it is the extra `[hub]`, and imported when something is asked. The write token goes to
the endpoint alone. Knows nothing of an issuer's answers and of what makes a token good: its caller verifies.
"""

from issuer.client.hub.hub import Hub
from issuer.client.hub.pull_request import FileAt, Moved, PullRequest, PullRequestText, merge_entries, pull_request_text

__all__ = ["FileAt", "Hub", "Moved", "PullRequest", "PullRequestText", "merge_entries", "pull_request_text"]
