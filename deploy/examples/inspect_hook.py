"""A hook of Inspect AI that has the score of each successful task signed, and puts its entry into `.eval_results/`.

Import this file in the task (`import inspect_hook`). These variables name the issuer, and data that the log lacks:
$ISSUER_URL, $ISSUER_RUN_MODEL_REPO, $ISSUER_RUN_MODEL_REVISION, $ISSUER_RUN_COMMAND. If the hook fails, Inspect AI only
logs a warning, so run `issuer verify` as the job's next step.
"""

from __future__ import annotations

import os
from pathlib import Path

from inspect_ai.hooks import Hooks, TaskEnd, hooks

import issuer


@hooks(name="have_signed", description="Has the score of each task signed, and puts it into its result file.")
class HaveSigned(Hooks):
    """Requests a verify token at the end of each task. The identity token is fetched then, and never stored."""

    async def on_task_end(self, data: TaskEnd) -> None:
        """Read the log of the finished task, and have its score signed."""
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
