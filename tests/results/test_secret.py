"""Secrets in commands: the shapes that are known, and none of the commands that people really write."""

import time

import pytest

from issuer.results.secret import secret_in

VALUE = "Zq9vK2mXw7Tb4RsL8nYd"


@pytest.mark.parametrize(
    "command",
    [
        "HF_TOKEN=hf_" + "a1B2" * 8 + " inspect eval gsm8k",
        "run hf_" + "a" * 20,
        "--x sk-" + "a" * 20,
        "--x sk-ant-api03-" + "a" * 20,
        "ghp_" + "a" * 36,
        "gho_" + "a" * 36,
        "github_pat_" + "a" * 22,
        "glpat-" + "a" * 20,
        "xoxb-" + "1" * 10,
        "AKIA" + "A" * 16,
        "AIza" + "a" * 35,
        "evi_pat_" + "a" * 16,
        "eyJhbGciOiJF.eyJzdWIiOiIx.c2ln",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----",
        f"HF_TOKEN={VALUE} run",
        f"api_key={VALUE}",
        f"--api-key {VALUE}",
        f"--api-key={VALUE}",
        f"-Dsecret={VALUE}",
        f"PASSWORD={VALUE}",
        f"--model_args token='{VALUE}'",
        f'{{"apiKey": "{VALUE}"}}',
        f"DbPassword : {VALUE}",
        f"--a.token\t{VALUE}",
        f"token'={VALUE}",
        f"API_\u212aEY={VALUE}",  # a Kelvin sign, which is a k in any case
        f"pa\u017f\u017fword={VALUE}",
        "curl -H 'Authorization: Bearer eyJabcde'; true",
        "Authorization: Bearer abcdefgh",
        "authorization: basic dXNlcjpwYXNz",
    ],
)
def test_a_secret_is_found_and_never_repeated(command: str) -> None:
    what = secret_in(command)
    assert what
    assert VALUE not in what
    assert "aaaa" not in what


@pytest.mark.parametrize(
    "command",
    [
        "inspect eval gsm8k --model hf/acme/open-model",
        "lm_eval --model hf --model_args pretrained=a/b,add_bos_token=True,max_tokens=5",
        "run --token $HF_TOKEN --api-key ${OPENAI_API_KEY_PRODUCTION}",
        "HF_TOKEN=$HUGGING_FACE_HUB_TOKEN run",
        "--max_new_tokens=1234567890123456789 --temperature 0.7",
        "--tokenizer=meta-llama/Llama-3.1-8B-Instruct",
        "--max-token 0.00000000000000001",
        "--use-token --some-very-long-option-name",
        "--password short",
        "-H 'Authorization: Bearer $TOKEN_FROM_ENV'",
        "task-hf_home-disk sk-learn ghp_short",
        "--keyboard=aaaaaaaaaaaaaaaaaaaaaaaaaa",
        "",
    ],
)
def test_an_honest_command_passes(command: str) -> None:
    assert secret_in(command) is None


@pytest.mark.parametrize(
    "part", ["token ", "token=", "--a", "-", "key\t", "eyJ", "sk-", "a" * 60 + "token ", "authorization: "]
)
def test_the_longest_command_is_judged_in_no_time(part: str) -> None:
    start = time.process_time()
    secret_in((part * 4096)[:4096])
    secret_in("token" + " " * 4091)
    assert time.process_time() - start < 2
