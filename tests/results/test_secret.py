"""Secrets in commands and other texts: every known shape is found, and ordinary text is not."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.formats import jcs
from issuer.results import secret
from issuer.results.secret import find_secrets, secret_in, without_local, without_paths
from tests.support import make
from tests.support.shared import examples

VALUE = "Zq9vK2mXw7Tb4RsL8nYd"


def test_a_secret_is_found_and_never_repeated() -> None:
    for command in (
        "HF_TOKEN=hf_" + "a1B2" * 8 + " inspect eval gsm8k", "run hf_" + "a" * 20, "--x sk-" + "a" * 20, "--x sk-ant-api03-" + "a" * 20,
        "ghp_" + "a" * 36, "gho_" + "a" * 36, "github_pat_" + "a" * 22, "glpat-" + "a" * 20, "xoxb-" + "1" * 10, "AKIA" + "A" * 16,
        "AIza" + "a" * 35, "evi_pat_" + "a" * 16, "eyJhbGciOiJF.eyJzdWIiOiIx.c2ln", "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----", f"HF_TOKEN={VALUE} run", f"api_key={VALUE}", f"--api-key {VALUE}", f"--api-key={VALUE}",
        f"-Dsecret={VALUE}", f"PASSWORD={VALUE}", f"--model_args token='{VALUE}'", f'{{"apiKey": "{VALUE}"}}', f"DbPassword : {VALUE}",
        f"--a.token\t{VALUE}", f"token'={VALUE}", f"API_\u212aEY={VALUE}",  # a Kelvin sign, which is a k in any case
        f"pa\u017f\u017fword={VALUE}", "curl -H 'Authorization: Bearer eyJabcde'; true", "Authorization: Bearer abcdefgh",
        "authorization: basic dXNlcjpwYXNz",
    ):  # fmt: skip
        what = secret_in(command)
        assert what, command
        assert VALUE not in what
        assert "aaaa" not in what


def test_a_local_path_is_found_wherever_it_begins_and_no_address_is_taken_for_one() -> None:
    for path in ("/data/m", "~/m", "./m", "../m", "C:\\m", "file:///m", "\\\\host\\m", "hf//data/m", "vllm/./m"):
        assert without_paths(f"run x={path} 'y'") == f"run x={jcs.digest(path)} 'y'"
        assert without_local({"a": [f"at {path}"], "b": 1}) == {"a": [jcs.digest(f"at {path}")], "b": 1}
    for text in ("openai/gpt-4o", "a/b/c", "https://a.b//c/./d?e=f", "and/or", "1 / 2", "a: b", "x ./ y", "..."):
        assert without_paths(text) == without_local(text) == text


def test_an_honest_command_passes_and_an_ordinary_result_is_skipped_quickly() -> None:
    commands = [
        "inspect eval gsm8k --model hf/acme/open-model", "lm_eval --model_args pretrained=a/b,add_bos_token=True,max_tokens=5",
        "run --token $HF_TOKEN --api-key ${OPENAI_API_KEY_PRODUCTION}", "HF_TOKEN=$HUGGING_FACE_HUB_TOKEN run",
        "--max_new_tokens=1234567890123456789 --temperature 0.7", "--tokenizer=meta-llama/Llama-3.1-8B-Instruct",
        "--max-token 0.00000000000000001", "--use-token --some-very-long-option-name", "--password short",
        "-H 'Authorization: Bearer $TOKEN_FROM_ENV'", "task-hf_home-disk sk-learn ghp_short", "--keyboard=aaaaaaaaaaaaaaaaaaaaaaaaaa",
        "acme/sk-instruct-large-language-model-8b", "--eos_token=<|reserved_special_token_0|> pad_token='<|end_of_text|>'", "",
    ]  # fmt: skip
    assert [command for command in commands if secret_in(command) is not None] == []
    command = "inspect eval gsm8k --model hf/acme/model --max-tokens 512 -T tokenizer=a --limit 'high'"
    claims = make.claims(framework={"name": "inspect-ai", "version": "0.3.285", "command": command})
    assert not secret._may_contain(json.dumps(claims))


TOKEN = "hf_" + "a1B2" * 8


def test_a_secret_is_found_in_every_text_at_its_place() -> None:
    for value, pointers in [
        ({"notes": f"run with {TOKEN}"}, ["/notes"]),
        ({"run": {"env": [{"a~/b": f"x={TOKEN}"}]}}, ["/run/env/0/a~0~1b"]),
        ({"run": {TOKEN: 1, "b": 2}}, ["/run"]),  # the pointer must not repeat a name with a secret
        ({"run": {TOKEN: {"c": TOKEN}}}, ["/run"]),
        ({"run": {"hf_token": VALUE}}, ["/run/hf_token"]),
        ({"run": {"OPENAI_API_KEY": VALUE, "x": [TOKEN]}}, ["/run/OPENAI_API_KEY", "/run/x/0"]),
        ({"source": {"url": f"https://a.example/x?token={VALUE}"}}, ["/source/url"]),
        ([TOKEN, {"deep": [[[TOKEN]]]}], ["/0", "/1/deep/0/0/0"]),
        ({"run": {"model_args": {"eos_token": "<|end_of_text|>", "pad_token": "[PAD]"}}}, []),
        ({"run": {"cache_key": "gsm8k-main-2026-11-21", "max_tokens": 1024, "tokenizer": "acme/some-tokenizer-2"}}, []),
        ({"notes": None, "run": {"hf_token": True, "n": 1.5}}, []),
    ]:
        found = list(find_secrets(value, "/details"))
        assert [fault.pointer for fault in found] == [f"/details{pointer}" for pointer in pointers]
        assert {fault.code for fault in found} <= {Code.CLAIMS_SECRET}
        assert not any(TOKEN in str(fault) or VALUE in str(fault) for fault in found)


WORDS = [
    TOKEN, VALUE, "hf_", "gh", "ghp_" + "a" * 36, "sk-" + "a" * 20, "token", "Key", "\u212aey", "pa\u017fsword", "api_key", "=",
    ": ", '"', "'", "\\", "\n", "\x1f", " ", "--", "Authorization:", "Bearer ", "abcdefgh", "eyJabcdefgh.", "\xe9", "-----BEGIN ",
    "PRIVATE KEY-----", "AKIA" + "A" * 16, "/",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)
LEAVES = TEXT | st.none() | st.integers()
VALUES = st.recursive(LEAVES, lambda i: st.lists(i, max_size=3) | st.dictionaries(TEXT, i, max_size=3), max_leaves=4)


@examples(400)
@given(VALUES)
@example({"api_key": VALUE})
@example({"x": {"API_\u212aEY": VALUE}})
@example({"x": f"pa\u017f\u017fword={VALUE}"})
@example({"x": f"author\u0131zation: Bearer {VALUE}"})
@example({"token\n": VALUE})
@example([f"x Authorization\t: Bearer {VALUE}"])
@example([f'{{"apiKey": "{VALUE}"}}'])
def test_a_text_that_is_skipped_quickly_has_no_secret(value: Any) -> None:
    assert list(find_secrets(value)) == list(secret._find(value, ""))


def test_the_longest_text_is_searched_in_linear_time() -> None:
    """Half a megabyte takes a tenth of a second. With quadratic time it would take minutes."""
    words = ["token ", "token=", "--a", "-", "key\t", "-eyJ", "sk-"]
    parts = [*words, "a" * 60 + "token ", "authorization: ", "-----BEGIN A"]
    for text in ["token" + " " * 2**19, *((part * 2**19)[: 2**19] for part in parts)]:
        secret_in(text)
