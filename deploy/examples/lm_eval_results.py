"""For lm-evaluation-harness: sign several tasks of one results file with one use of the identity.

    lm_eval run --model hf --model_args pretrained=acme/open-model --tasks gsm8k --output_path results
    python lm_eval_results.py results/*/results_*.json gsm8k

$ISSUER_URL names the issuer; $ISSUER_RUN_... have the data that the results file lacks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import issuer


def main(results: str, *tasks: str) -> None:
    """Have these tasks of a results file signed, and put each entry into the file of its benchmark."""
    supplied = issuer.Supplied(
        model_repo=os.environ.get("ISSUER_RUN_MODEL_REPO"),
        model_revision=os.environ.get("ISSUER_RUN_MODEL_REVISION"),
        benchmark_repo=os.environ.get("ISSUER_RUN_BENCHMARK_REPO"),
        benchmark_revision=os.environ.get("ISSUER_RUN_BENCHMARK_REVISION"),
        command=os.environ.get("ISSUER_RUN_COMMAND"),
    )
    built = [issuer.read(results, "lm-eval", task=task).claims(supplied) for task in tasks]
    tokens = issuer.Client(os.environ["ISSUER_URL"]).request_batch(built)
    for one, token in zip(built, tokens, strict=True):
        issuer.put_entry(Path(issuer.result_file_name(one.claims.benchmark_repo)), token.entry)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except issuer.IssuerError as error:
        sys.exit(str(error))
