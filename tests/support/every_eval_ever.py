"""A record in the form of Every Eval Ever."""

import json

# Ours, in the shape of the schema: a complete run of a transformers model.
RECORD = json.dumps(
    {
        "schema_version": "0.3.0",
        "evaluation_id": "gsm8k/acme_open-model/1",
        "evaluation_timestamp": "1768964383.9",
        "retrieved_timestamp": "1795225833.64",
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": "acme",
            "evaluator_relationship": "first_party",
        },
        "eval_library": {"name": "lm_eval", "version": "0.4.13"},
        "model_info": {
            "name": "open-model",
            "id": "acme/open-model",
            "inference_engine": {"name": "transformers"},
            "additional_details": {"revision": "main", "sha": "82047f5e5d5245c1b3a4cd75ad98aa441d6487cd"},
        },
        "evaluation_results": [
            {
                "evaluation_result_id": "exact_match",
                "evaluation_name": "gsm8k",
                "source_data": {"source_type": "hf_dataset", "hf_repo": "openai/gsm8k", "samples_number": 8},
                "metric_config": {"metric_id": "exact-match", "metric_name": "exact_match"},
                "score_details": {"score": 0.625, "uncertainty": {"num_samples": 8}},
            }
        ],
    }
).encode()
