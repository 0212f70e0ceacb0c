"""Inspect AI: each task that succeeds has its score signed, by a hook, and its entry put into `.eval_results/`.

Import this file beside the task (`import inspect_hook`), and name the issuer and what a log does not say in the
environment: $ISSUER_URL, $ISSUER_RUN_MODEL_REPO, $ISSUER_RUN_MODEL_REVISION, $ISSUER_RUN_COMMAND. A hook that fails
fails no evaluation: Inspect AI logs a warning. Let the job's next step be `issuer verify`, which fails it.
"""

from __future__ import annotations

import os
from pathlib import Path

from inspect_ai.hooks import Hooks, TaskEnd, hooks

import issuer


@hooks(name="have_signed", description="Has the score of each task signed, and put into its result file.")
class HaveSigned(Hooks):
    """Asks an issuer for a verify token at the end of each task; the identity is fetched then, and never kept."""

    async def on_task_end(self, data: TaskEnd) -> None:
        """Read the log that the task has just written, and have it signed."""
        if data.log.status != "success":
            return
        run = issuer.read(data.log.location)
        built = run.claims(
            issuer.Supplied(
                model_repo=os.environ.get("ISSUER_RUN_MODEL_REPO"),
                model_revision=os.environ.get("ISSUER_RUN_MODEL_REVISION"),
                command=os.environ.get("ISSUER_RUN_COMMAND"),
            )
        )
        token = await issuer.AsyncClient(os.environ["ISSUER_URL"]).request(built)
        issuer.put_entry(Path(issuer.result_file_name(built.claims.benchmark_repo)), token.entry)
