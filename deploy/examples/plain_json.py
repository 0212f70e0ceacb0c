"""For any harness: write a score in the project's JSON, have it signed, and verify the result.

$ISSUER_URL names the issuer. `issuer results schema` prints the JSON Schema of the file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import issuer

RUN = {
    "model_repo": "acme/open-model",
    "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
    "benchmark_repo": "openai/gsm8k",
    "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
    "task_id": "gsm8k",
    "framework": {"name": "our-harness", "version": "1.4.0", "command": "python evaluate.py --task gsm8k"},
    "metrics": [{"metric_id": "accuracy", "value": 0.625, "sample_size": 8}],
    "completeness": {"answer": "full"},
}


def main(audience: str) -> None:
    """Write the run, have it signed, put its entry into the result file, and verify that as `audience` would."""
    Path("run.json").write_text(json.dumps({"format": "eval-token-issuer/run/v1", "runs": [RUN]}))
    url = os.environ["ISSUER_URL"]
    token = issuer.Client(url).request(issuer.read("run.json"))
    file = Path(issuer.result_file_name("openai/gsm8k"))
    issuer.put_entry(file, token.entry)
    trust = issuer.trust_issuer(url, audience)
    for report in issuer.verify_file(file, repo="acme/open-model", trust=trust, received="now"):
        sys.stdout.write(f"{report.verdict} {report.jti}\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except issuer.IssuerError as error:
        sys.exit(str(error))
