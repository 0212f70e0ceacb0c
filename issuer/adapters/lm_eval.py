"""Reads the results JSON of lm-evaluation-harness into one `Run` a task or group. Pure; does not import lm_eval.

Where each claim comes from, and what is never taken for it:

* `model_repo`, `model_revision`: `pretrained` of `config.model_args` and `config.model_sha`, the commit that the Hub
  answered for it; no `model_sha`, no `model_repo` of a transformers model: the name may be a folder. With PEFT it is
  the adapter and `peft_sha`, with delta weights these and `delta_sha`: the base model's commit does not name what was
  measured. Never `config.model_revision`: that is the request, `main`.
* `benchmark_repo`: `dataset_path` of the task's configuration in the shape `owner/name`; a group's, where all its tasks
  have the same. `benchmark_revision`: a full commit that the task pins in `dataset_kwargs.revision`, which is rare.
  Never `versions`: they number the task's configuration.
* metrics: keys `metric,filter`; the filter is the scorer. Standard errors are claimed only where they are chosen.
* `framework.version`: `lm_eval_version`. Never `git_hash`. No file has the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from issuer.adapters.evidence import Octets, artifact, broken, lenient_number, measured, said, words
from issuer.adapters.run import Run, Said
from issuer.adapters.score import Score
from issuer.codes import Code
from issuer.errors import Fault, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results.claims import REVISION, is_repo

FRAMEWORK = "lm-eval"
MAX_BYTES = 8 * 2**20
MAX_DEPTH = 64
MAX_SCORES = 10_000
MOCK_MODEL = "dummy"
# Backends whose `pretrained` is the name of a Hub repository, if it is not a folder ...
HUB_BACKENDS = frozenset({
    "hf", "hf-audiolm-qwen", "hf-auto", "hf-mistral3", "hf-multimodal", "huggingface", "mamba_ssm", "sglang", "vllm",
    "vllm-vlm",
})  # fmt: skip
# ... and those that do not ask the Hub for its commit. The others do: an empty one says that the Hub does not know it.
SHALESS_BACKENDS = frozenset({"sglang", "vllm", "vllm-vlm"})


class _TaskConfig(Struct, frozen=True):
    dataset_path: object = None
    dataset_kwargs: object = None


class _Samples(Struct, frozen=True):
    original: int
    effective: int


class _Config(Struct, frozen=True):
    model: str
    model_args: object = None
    model_sha: object = None
    peft_sha: object = None
    delta_sha: object = None
    limit: object = None
    samples: object = None


_Scores: TypeAlias = Annotated[dict[str, object], Meta(max_length=1000)]
_Taker: TypeAlias = "Callable[[_TaskConfig], tuple[str, str]]"


class _File(Struct, frozen=True):
    """The members that are read; unknown ones are skipped."""

    results: Annotated[dict[str, _Scores], Meta(min_length=1, max_length=2000)]
    config: _Config
    configs: dict[str, _TaskConfig] = {}
    group_subtasks: dict[str, list[str]] = {}
    samples: dict[str, _Samples] = field(name="n-samples", default={})
    date: object = None
    lm_eval_version: str | None = None


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one results file: a run for each task and group, in the file's order.

    Raises InputError: `file.*` of the strict reader (numbers that are not used may be NaN), `file.schema` for a member
    of the wrong type, `file.rule` for contradictions within the file. The file is believed otherwise: it is not signed.
    """
    with reading(name):
        tree = strict_json.loads(bytes(raw), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, number=lenient_number)
        file = strict_json.convert(tree, _File)
    if sum(map(len, file.results.values())) > MAX_SCORES:
        raise broken(name, "/results", f"more than {MAX_SCORES} scores")
    model = _model(file.config, name)
    evidence = artifact(raw, name)
    return tuple(_run(file, task, model, evidence, name) for task in file.results)


class _Model(Struct, frozen=True):
    label: str
    repo: Said | None = None
    revision: Said | None = None
    base: str = ""
    base_revision: str = ""


def _run(file: _File, task: str, model: _Model, evidence: dict[str, JSON], name: str) -> Run:
    leaves = _leaves(file, task)
    counts = [file.samples[leaf] for leaf in leaves if leaf in file.samples]
    details: dict[str, JSON] = {
        "artifacts": [evidence],
        "run": words({
            "num_samples": sum(count.effective for count in counts) or None,
            "task": task,
            "model": model.label,
            "base_model": model.base,
            "base_model_revision": model.base_revision,
        }),
    }  # fmt: skip
    if date := _date(file.date):
        details = {"date": date, **details}
    return Run(
        name=name,
        task=task,
        framework_name=Said(FRAMEWORK, ""),
        framework_version=said(file.lm_eval_version, "/lm_eval_version"),
        model_repo=model.repo,
        model_revision=model.revision,
        benchmark_repo=_shared(file, leaves, _dataset),
        benchmark_revision=_shared(file, leaves, _dataset_revision),
        task_id=said(task, "/results"),
        mock=Said(MOCK_MODEL, "/config/model") if file.config.model == MOCK_MODEL else None,
        partial=tuple(Fault(Code.FILE_RULE, pointer, rule) for pointer, rule in _gaps(file, leaves)),
        scores=tuple(_scores(file.results[task], pointer_to("/results", task))),
        details=details,
    )


def _leaves(file: _File, task: str) -> list[str]:
    """Return the tasks of a group, through groups of groups; of a task, itself."""
    leaves, waiting, seen = [], [task], set()
    while waiting:
        one = waiting.pop(0)
        if one in seen:
            continue
        seen.add(one)
        if below := file.group_subtasks.get(one):
            waiting += below
        else:
            leaves.append(one)
    return leaves


# -- model ------------------------------------------------------------------------------------------------------------


def _model(config: _Config, name: str) -> _Model:
    args = _arguments(config.model_args)
    label = args.get("pretrained", "")
    if config.model not in HUB_BACKENDS or {"steer_path", "lora_local_path"} & args.keys():
        return _Model(label or config.model)
    for member, sha in (("peft", config.peft_sha), ("delta", config.delta_sha)):
        if weights := args.get(member):
            repo, revision = _known(config, weights, sha, f"/config/{member}_sha")
            base_sha = config.model_sha if isinstance(config.model_sha, str) else ""
            return _Model(weights, repo, revision, label, base_sha)
    repo, revision = _known(config, label, config.model_sha, "/config/model_sha")
    asked = args.get("revision", "")
    if revision and REVISION.fullmatch(asked) and asked != revision.text:
        raise broken(name, "/config/model_sha", f"not the revision that model_args asks for, {asked}")
    if repo and not revision and REVISION.fullmatch(asked):
        revision = Said(asked, "/config/model_args")
    return _Model(label, repo, revision)


def _known(config: _Config, weights: str, sha: object, pointer: str) -> tuple[Said | None, Said | None]:
    """Return the repository and its commit; neither where the Hub was asked and did not know it."""
    revision = said(sha, pointer) if isinstance(sha, str) else None
    if not is_repo(weights) or (revision is None and config.model not in SHALESS_BACKENDS):
        return None, None
    return Said(weights, "/config/model_args"), revision


def _arguments(args: object) -> dict[str, str]:
    """Read `model_args`, a map or `name=value,...`; a name that occurs twice is ignored."""
    if isinstance(args, dict):
        return {str(name): value for name, value in args.items() if isinstance(value, str)}
    pairs = [pair.partition("=")[::2] for pair in args.split(",")] if isinstance(args, str) else []
    names = [name.strip() for name, _ in pairs]
    return {name.strip(): value.strip() for name, value in pairs if names.count(name.strip()) == 1}


# -- benchmark --------------------------------------------------------------------------------------------------------


def _dataset(config: _TaskConfig) -> tuple[str, str]:
    path = config.dataset_path
    return (path, "dataset_path") if isinstance(path, str) and is_repo(path) else ("", "")


def _dataset_revision(config: _TaskConfig) -> tuple[str, str]:
    revision = config.dataset_kwargs.get("revision") if isinstance(config.dataset_kwargs, dict) else None
    pinned = isinstance(revision, str) and REVISION.fullmatch(revision)
    return (str(revision), "dataset_kwargs/revision") if pinned else ("", "")


def _shared(file: _File, leaves: list[str], take: _Taker) -> Said | None:
    """Return what all the tasks have in common, or None."""
    found = [take(file.configs.get(leaf, _TaskConfig())) for leaf in leaves]
    if len(set(found)) != 1 or not found[0][0]:
        return None
    text, member = found[0]
    return Said(text, f"{pointer_to('/configs', leaves[0])}/{member}")


# -- results ----------------------------------------------------------------------------------------------------------


def _gaps(file: _File, leaves: list[str]) -> Iterator[tuple[str, str]]:
    if file.config.limit is not None:
        yield "/config/limit", "the run was limited to a part of the benchmark"
    if file.config.samples is not None:
        yield "/config/samples", "the run was limited to chosen samples"
    for leaf in leaves:
        count = file.samples.get(leaf)
        if count and count.effective != count.original:
            rule = f"{count.effective} of {count.original} samples of {leaf!r} were used"
            yield pointer_to("/n-samples", leaf), rule


def _scores(results: dict[str, object], place: str) -> Iterator[Score]:
    for key, value in results.items():
        metric, comma, scorer = key.rpartition(",")
        if not comma:  # alias, name, sample_len ...
            continue
        pointer = pointer_to(place, key)
        number, fault = measured(value, pointer)
        yield Score(
            scorer=scorer,
            metric=metric,
            spelling=key,
            value=number,
            pointer=pointer,
            fault=fault,
            aside=metric.endswith("_stderr"),
        )


def _date(date: object) -> str:
    """Return when the run began; the file has Unix seconds."""
    if isinstance(date, bool) or not isinstance(date, int | float) or not 0 < date < 2**34:
        return ""
    return f"{datetime.fromtimestamp(int(date), UTC):%Y-%m-%dT%H:%M:%SZ}"
