"""The client's library against the real service, also by the names of `import issuer` and by the scripts of
deploy/examples."""

import contextlib
import os
import runpy
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import issuer
from issuer.client import Credential, Denied, explain_request, put_entry, request_token
from issuer.client.batches import IssuerAccess, ResumeState, explain_each, obtain_each
from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.errors import Refused
from issuer.formats.times import LEEWAY_S
from issuer.results.entry import read_entries
from tests.support import make
from tests.support.frameworks import framework, run
from tests.support.hub_server import HubServer
from tests.support.running import BODY, Running, body, rewrite, running, write_folder
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, edited
from tests.support.shared import ROOT
from tests.support.submitting import fill
from tests.support.waiting import eventually

REFUSED: dict[str, Any] = body(benchmark_repo="acme/unknown")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("service")
    with LocalProvider() as provider:
        write_folder(folder, provider)
        known = '    - {name: "lm-eval", versions: ">=0"}\n    - {name: "our-harness", versions: ">=1"}\n'
        rewrite(folder, r"^  frameworks:\n", f"  frameworks:\n{known}")
        with running(folder, provider) as live:
            yield live


def identity(service: Running) -> Credential:
    return Credential(service.token(), reusable=False)


def test_a_request_gets_a_token_whose_entry_goes_into_a_file(tmp_path: Path, service: Running) -> None:
    credential, file = identity(service), tmp_path / ".eval_results" / "gsm8k.yaml"
    explained = explain_request(service.url, credential, BODY)
    assert (explained.verdict, all(check.passed for check in explained.checks)) == ("granted", True)
    issued = request_token(service.url, credential, BODY)
    assert issued.policy == explained.policy
    put_entry(file, issued.entry)
    (entry,) = read_entries(file.read_bytes(), "")
    assert entry.token == issued.verify_token
    assert request_token(service.url, credential, BODY) == issued, "the same request gets the same token"


class Ending:
    """Identities of which the first ends in two seconds by the issuer's clock; `renewable`: the later ones do not."""

    def __init__(self, service: Running, *, renewable: bool = True) -> None:
        self._service, self.renewable = service, renewable
        self.handed: list[Credential] = []

    def __call__(self) -> Credential:
        if not self.handed:
            now = int(time.time())
            ending = self._service.token(iat=now - 200, exp=now + 2 - LEEWAY_S)
            self.handed.append(Credential(ending, reusable=False))
        elif self.renewable:
            self.handed.append(identity(self._service))
        return self.handed[-1]


@contextlib.contextmanager
def stopped(service: Running) -> Iterator[None]:
    service.process.send_signal(signal.SIGSTOP)
    timer = threading.Timer(4, service.process.send_signal, [signal.SIGCONT])
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.long
@pytest.mark.parametrize("renewable", [True, False])
def test_an_identity_that_ends_while_it_waits_is_renewed_and_never_stored(
    tmp_path: Path, service: Running, renewable: bool
) -> None:
    identities, result = Ending(service, renewable=renewable), make.submission({"notes": "waited"})
    expired = contextlib.nullcontext() if renewable else pytest.raises(Refused)
    with stopped(service), expired as caught:
        answered = obtain_each(IssuerAccess(service.url, identities), [result], ResumeState(tmp_path))
        assert answered.tokens[0].content_digest == result.content_digest
    if caught is not None:
        assert caught.value.code is Code.IDENTITY_EXPIRED
        return
    assert len(identities.handed) == 2
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not [one for one in identities.handed if one.bearer.rpartition(".")[2].encode() in written]


@pytest.mark.long
def test_a_dry_run_that_outlasts_its_identity_fetches_another(service: Running) -> None:
    identities = Ending(service)
    asked = explain_each(IssuerAccess(service.url, identities), [make.submission({"notes": str(n)}) for n in range(2)])
    assert next(asked)[1].verdict == "granted"
    ended = time.time() + 4
    eventually(lambda: time.time() > ended)
    assert next(asked)[1].verdict == "granted"
    assert len(identities.handed) == 2


LOG = (DATA / "inspect_two_scorers.json").read_bytes().replace(b"mockllm/model", b"hf/acme/open-model")
SUPPLIED = issuer.Supplied(
    model_repo="acme/open-model", command="inspect eval gsm8k.py", metrics={"accuracy": "match/accuracy"}
)


def run_of(folder: Path, raw: bytes = LOG) -> issuer.Run:
    (folder / "run.json").write_bytes(raw)
    return issuer.read(folder / "run.json")


def test_a_run_is_signed_put_into_a_file_and_verified(tmp_path: Path, service: Running) -> None:
    run, client = run_of(tmp_path), issuer.Client(service.url, identity(service))
    token = client.request(run, SUPPLIED)
    assert client.request(run.claims(SUPPLIED)) == token, "claims that are made already are the same request"
    file = tmp_path / issuer.result_file_name("openai/gsm8k")
    issuer.put_entry(file, token.entry)
    trust = issuer.trust_issuer(service.url, AUDIENCE)
    (report,) = issuer.verify_file(file, repo="acme/open-model", trust=trust, received="now")
    assert (report.verdict, report.jti, report.line) == ("verified", token.jti, 0)
    (other,) = issuer.verify_file(file, repo="acme/other", trust=trust, received="now")
    assert (other.verdict, other.failed, other.line) == ("failed", (6,), 1)


def test_an_identity_is_fetched_for_each_request_and_never_before(tmp_path: Path, service: Running) -> None:
    fetched: list[Credential] = []

    def fetch() -> Credential:
        fetched.append(identity(service))
        return fetched[-1]

    client, runs = (
        issuer.Client(service.url, fetch),
        [run_of(tmp_path), run_of(tmp_path, edited(LOG, "/eval/task", "other"))],
    )
    assert not fetched
    tokens = client.request_batch(runs, SUPPLIED)
    assert [one.jti for one in tokens] != [client.request(run, SUPPLIED).jti for run in runs]
    assert (len(fetched), len({one.bearer for one in fetched})) == (3, 3)


async def test_the_client_for_event_loops_gets_the_same_answers(tmp_path: Path, service: Running) -> None:
    credential, run = identity(service), run_of(tmp_path)
    client = issuer.AsyncClient(service.url, credential)
    assert (await client.explain(run, SUPPLIED)).verdict == "granted"
    token = await client.request(run, SUPPLIED)
    assert token == issuer.Client(service.url, credential).request(run, SUPPLIED)
    (other,) = await issuer.AsyncClient(service.url, lambda: identity(service)).request_batch([run], SUPPLIED)
    assert other.content_digest == token.content_digest


def test_a_refusal_is_raised_with_its_checks_and_explained_as_an_answer(tmp_path: Path, service: Running) -> None:
    with pytest.raises(Denied) as caught:
        request_token(service.url, identity(service), REFUSED)
    explained = explain_request(service.url, identity(service), REFUSED)
    assert (explained.verdict, explained.code) == ("refused", caught.value.code)
    assert explained.checks == caught.value.checks
    assert [check.code for check in explained.checks if not check.passed] == ["policy.benchmark"]
    elsewhere = edited(LOG, "/eval/dataset/location", "acme/unknown")
    with pytest.raises(issuer.Denied, match=r"policy\.benchmark: /claims/benchmark_repo: .*acme/unknown\. Ask"):
        issuer.Client(service.url, identity(service)).request(run_of(tmp_path, elsewhere), SUPPLIED)
    mock = run_of(tmp_path, (DATA / "inspect_two_scorers.json").read_bytes())
    with pytest.raises(issuer.InputError, match="mock model"):
        issuer.Client(service.url, identity(service)).request(mock)


async def test_runs_are_proposed_once_and_a_second_call_finds_them(tmp_path: Path, service: Running) -> None:
    with HubServer() as hub, job(tmp_path, service):
        fill(hub, benchmark=None)
        os.environ.update(HF_ENDPOINT=hub.url, HF_TOKEN=hub.token())
        run, client = run_of(tmp_path), issuer.Client(service.url)
        (made,) = client.submit(run, SUPPLIED)
        (found,) = await issuer.AsyncClient(service.url).submit([run], SUPPLIED)
        assert made.pull_request is not None
        assert found.pull_request is not None
        assert (made.repo, found.pull_request.number) == ("acme/open-model", made.pull_request.number)
        elsewhere = run_of(tmp_path, edited(LOG, "/eval/dataset/location", "acme/unknown"))
        with pytest.raises(issuer.Denied, match=r"policy\.benchmark"):
            client.submit(elsewhere, SUPPLIED)
        (written,) = client.submit(run, SUPPLIED, out=tmp_path / "models")
        assert written.repo == "acme/open-model"
    assert verdicts(tmp_path / "models/acme/open-model/.eval_results/gsm8k.yaml", service) == ["verified"]


EXAMPLES = ROOT / "deploy" / "examples"
VARIABLES = {
    "ISSUER_RUN_MODEL_REPO": "acme/open-model",
    "ISSUER_RUN_MODEL_REVISION": MODEL_COMMIT,
    "ISSUER_RUN_COMMAND": "x",
}


@contextlib.contextmanager
def job(folder: Path, service: Running) -> Iterator[dict[str, str]]:
    before = dict(os.environ)
    os.environ.update({**service.provider.environment, **VARIABLES, "ISSUER_URL": service.url})
    try:
        with contextlib.chdir(folder):
            yield dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(before)


def verdicts(file: Path, service: Running) -> list[str]:
    trust = issuer.trust_issuer(service.url, AUDIENCE)
    return [one.verdict for one in issuer.verify_file(file, repo="acme/open-model", trust=trust, received="now")]


def test_the_examples_of_any_harness_and_of_lm_eval_sign_what_is_named(
    tmp_path: Path, service: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ".eval_results" / "gsm8k.yaml"
    with job(tmp_path, service):
        runpy.run_path(str(EXAMPLES / "plain_json.py"))["main"](AUDIENCE)
    assert capsys.readouterr().out.startswith("verified ")
    assert verdicts(file, service) == ["verified"]
    file.unlink()
    results = (DATA / "lm_eval_dummy.json").read_bytes().replace(b'"model": "dummy"', b'"model": "hf"')
    (tmp_path / "results.json").write_bytes(results)
    with job(tmp_path, service):
        os.environ.update(IN_RESULTS)
        runpy.run_path(str(EXAMPLES / "lm_eval_results.py"))["main"]("results.json", "choice_mini", "mini")
    assert verdicts(file, service) == ["verified", "verified"]


IN_RESULTS = {"ISSUER_RUN_BENCHMARK_REPO": "openai/gsm8k", "ISSUER_RUN_BENCHMARK_REVISION": BENCHMARK_COMMIT}


@pytest.mark.long
def test_a_task_of_lm_eval_itself_is_signed_by_its_example(tmp_path: Path, service: Running) -> None:
    """Its model answers by chance and is not fetched; its name is not a mock's."""
    python = Path(framework("lm_eval")).with_name("python")
    program = """
import json, sys
from pathlib import Path
import lm_eval
from lm_eval.api.registry import register_model
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.dummy import DummyLM
from lm_eval.tasks import TaskManager

register_model("acme")(type("Acme", (DummyLM,), {}))
Path("data.jsonl").write_text("".join(json.dumps({"question": f"{n}?", "answer": "yes"}) + chr(10) for n in range(4)))
task = {"task": "choice_mini", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "data.jsonl"}},
        "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_target": 0,
        "doc_to_choice": ["{{answer}}", "no"]}
results = lm_eval.simple_evaluate(model="acme", tasks=[task], task_manager=TaskManager())
EvaluationTracker(output_path="out").save_results_aggregated(results=results, samples={})
"""
    run(tmp_path, python, "-c", program, env={"HF_DATASETS_CACHE": str(tmp_path / "cache")})
    (results,) = (tmp_path / "out").rglob("results*.json")
    with job(tmp_path, service):
        os.environ.update(IN_RESULTS)
        runpy.run_path(str(EXAMPLES / "lm_eval_results.py"))["main"](str(results), "choice_mini")
    assert verdicts(tmp_path / ".eval_results" / "gsm8k.yaml", service) == ["verified"]


@pytest.mark.long
def test_a_task_of_inspect_ai_itself_is_signed_by_its_hook_as_it_ends(tmp_path: Path, service: Running) -> None:
    """Its model is written here and is not fetched; its name is not a mock's."""
    python = Path(framework("inspect")).with_name("python")
    program = """
import sys
sys.path[:0] = sys.argv[1:]
import inspect_hook
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.scorer import match

@modelapi(name="local")
class Local(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        return ModelOutput.from_content("local/open-model", "36")

dataset = MemoryDataset([Sample(input="12 * 3?", target="36")], name="gsm8k", location="openai/gsm8k")
metadata = {"benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb"}
eval(Task(name="gsm8k", dataset=dataset, scorer=match(), metadata=metadata), model="local/open-model", display="none")
"""
    with job(tmp_path, service) as env:
        output = run(tmp_path, python, "-c", program, EXAMPLES, ROOT, env=env)
    file = tmp_path / ".eval_results" / "gsm8k.yaml"
    assert file.is_file(), output
    assert verdicts(file, service) == ["verified"]
