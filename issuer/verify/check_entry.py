"""Checks 6 to 10 of contract section 6: does the entry, at its place, say the same as the token? Pure.

Each function takes the claims that a good signature vouches for. Without them (None) it skips comparisons with the
token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET

from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.results.benchmark import Benchmark
from issuer.results.claims import RunClaims
from issuer.results.entry import Entry, content_digest, primary_metric, result_file_name
from issuer.verify.check_token import Signed
from issuer.verify.report import Check, Status, check, rests_on
from issuer.verify.trust import Trust

Benchmarks = Mapping[tuple[str, str], Benchmark]  # by repository and commit


def placed(entry: Entry, repo: str, path: str, signed: Signed | None) -> Check:  # (6)
    """Compare the file's path, which needs no token, and the repository, which does."""
    expected = result_file_name(entry.dataset.id)
    if path != expected:
        evidence = f"results of {_shown(entry.dataset.id)} belong in {_shown(expected)}"
        return check(6, Status.FAIL, evidence, file=path)
    if signed is None:
        return rests_on(6, 3)
    if signed.run.model_repo != repo:
        evidence = "the token is for another model repository: this one was renamed, or the entry was copied"
        return check(6, Status.FAIL, evidence, token=signed.run.model_repo, file=repo)
    return check(6, Status.PASS, f"{repo}, {path}")


def fields(entry: Entry, signed: Signed | None) -> Check:  # (7)
    """Compare every bound field; a field that the entry lacks is a mismatch."""
    if signed is None:
        return rests_on(7, 3)
    for name, bound, found in _bound_fields(signed.run, entry):
        if bound != found:
            return check(7, Status.FAIL, f"{name} differs", token=_shown(bound), file=_shown(found))
    return check(7, Status.PASS, "model, benchmark, task and framework are equal")


def _bound_fields(run: RunClaims, entry: Entry) -> Iterator[tuple[str, object, object]]:
    """Yield every bound field by its name in the file, with the token's and the file's value."""
    yield "dataset.id", run.benchmark_repo, entry.dataset.id
    yield "dataset.task_id", run.task_id, entry.dataset.task_id
    yield "dataset.revision", run.benchmark_revision, entry.dataset.revision
    yield "model_revision", run.model_revision, entry.model_revision
    yield "framework.name", run.framework.name, entry.framework.name
    yield "framework.version", run.framework.version, entry.framework.version
    yield "framework.command", run.framework.command, entry.framework.command


def metrics(entry: Entry, signed: Signed | None, benchmarks: Benchmarks) -> Check:  # (8)
    """Compare metrics and their values as doubles, and `value` with the primary metric."""
    if signed is None:
        return rests_on(8, 3)
    bound = {(metric.metric_id, metric.slice or ""): metric.value for metric in signed.run.metrics}
    found = [((metric.metric_id, metric.slice or ""), metric.value) for metric in entry.metrics or ()]
    for pair, value in found:
        if pair not in bound:
            return check(8, Status.FAIL, "the token does not bind this metric", file=_pair(pair))
        if bound[pair] != value:
            evidence = f"{_pair(pair)} differs"
            return check(8, Status.FAIL, evidence, token=_shown(bound[pair]), file=_shown(value))
    if missing := sorted(bound.keys() - dict(found).keys()):
        return check(8, Status.FAIL, "the file lacks a metric of the token", token=_pair(missing[0]), file="absent")
    if len(found) != len(bound):
        return check(8, Status.FAIL, "the file names a metric twice")
    if entry.value is not UNSET:
        return _primary(entry.value, bound, benchmarks.get((signed.run.benchmark_repo, signed.run.benchmark_revision)))
    return check(8, Status.PASS, f"{len(bound)} equal")


def _primary(value: float, bound: Mapping[tuple[str, str], float], benchmark: Benchmark | None) -> Check:
    """Judge `value`, which must be the score of the primary metric without a slice (contract section 3)."""
    named = benchmark.primary if benchmark else None
    primary = primary_metric(named, bound)
    if primary is None and benchmark is None:
        return check(8, Status.UNKNOWN, "`value` can only be judged with the benchmark's eval.yaml")
    if primary is None:
        return check(8, Status.UNKNOWN, "`value` cannot be judged: the benchmark's eval.yaml names no primary metric")
    pair = (primary, "")
    if pair not in bound:
        return check(8, Status.FAIL, f"`value` belongs to the primary metric {_pair(pair)}, which is missing here")
    if bound[pair] != value:
        evidence = f"`value` differs from the primary metric {_pair(pair)}"
        return check(8, Status.FAIL, evidence, token=_shown(bound[pair]), file=_shown(value))
    alone = "" if named else ", the only metric"
    return check(8, Status.PASS, f"{len(bound)} equal, and `value` is {_pair(pair)}{alone}")


def digests(entry: Entry, signed: Signed | None) -> Check:  # (9)
    """Compute both digests from the file, and compare them with those that the token states. Takes the repository from
    the token, because check 6 compares it: a renamed repository changes no result."""
    if signed is None:
        return rests_on(9, 3)
    stated = signed.claims
    bound = signed.run.to_json()
    here, digest = _entry_claims(entry.form, signed.run.model_repo), signed.run.digest
    # JCS writes equal values alike, so equal claims have the same digest.
    claims = digest if here == {**bound, "metrics": list(bound["metrics"])} else jcs.digest(here)
    if not claims == digest == stated.claims_digest:
        evidence = "claims_digest does not match"
        return check(9, Status.FAIL, evidence, token=stated.claims_digest, file=claims)
    content = content_digest(entry.form)
    if content != stated.content_digest:
        evidence = "content_digest does not match: a member of the entry was changed"
        return check(9, Status.FAIL, evidence, token=stated.content_digest, file=content)
    return check(9, Status.PASS, "claims_digest and content_digest match")


def _entry_claims(form: dict[str, JSON], repo: str) -> dict[str, JSON]:
    dataset = form.get("dataset")
    parts = dataset if isinstance(dataset, dict) else {}
    return {
        "model_repo": repo, "model_revision": form.get("model_revision"), "benchmark_repo": parts.get("id"),
        "benchmark_revision": parts.get("revision"), "task_id": parts.get("task_id"), "metrics": form.get("metrics"),
        "framework": form.get("framework"),
    }  # fmt: skip


def defined(entry: Entry, signed: Signed | None, benchmarks: Benchmarks, trust: Trust) -> Check:  # (10)
    """Ask whether the trust file accepts the definition's commit. If required, look up task and metrics (without
    a token, the file's) in the `eval.yaml` of the commit."""
    if signed and (refused := _not_accepted(signed.run, trust)):
        return refused
    whose = f"; {_chosen_by(signed.run, trust)}" if signed else ""
    if "benchmark" not in trust.require:
        return check(10, Status.SKIP, f"not required{whose}")
    here = benchmarks.get((entry.dataset.id, entry.dataset.revision or ""))
    if here and (missing := _undefined(here, entry.dataset.task_id or "", (m.metric_id for m in entry.metrics or ()))):
        return check(10, Status.FAIL, "the benchmark's eval.yaml does not define it", file=missing)
    if signed is None:
        return rests_on(10, 3)
    run = signed.run
    benchmark = benchmarks.get((run.benchmark_repo, run.benchmark_revision))
    if benchmark is None:
        return check(10, Status.UNKNOWN, "the benchmark's eval.yaml of that commit is unavailable")
    if missing := _undefined(benchmark, run.task_id, (metric.metric_id for metric in run.metrics)):
        return check(10, Status.FAIL, "the benchmark's eval.yaml does not define it", token=missing)
    if not benchmark.metrics:
        return check(10, Status.UNKNOWN, "the benchmark's eval.yaml defines the task, but no metrics")
    return check(10, Status.PASS, f"task and metrics are defined{whose}{_elsewhere(benchmark, run)}")


def _not_accepted(run: RunClaims, trust: Trust) -> Check | None:
    listed = trust.definitions.listed(run.benchmark_repo)
    if not listed or run.benchmark_revision in listed:
        return None
    refused = f"the trust file does not accept the definition at {run.benchmark_revision}"
    others = f"it pins {listed[0]}" if len(listed) == 1 else f"it lists {len(listed)} others"
    return check(10, Status.FAIL, f"{refused}: {others}")


def _chosen_by(run: RunClaims, trust: Trust) -> str:
    """Name the party that chose the commit of an accepted definition."""
    listed = len(trust.definitions.listed(run.benchmark_repo))
    party = "the submitter chose" if not listed else "the trust file pins" if listed == 1 else "the trust file lists"
    return f"{party} the definition's commit"


def _undefined(benchmark: Benchmark, task_id: str, metric_ids: Iterable[str]) -> str:
    """Name the task or metric that the benchmark does not define, or return ""."""
    if task_id not in benchmark.task_ids:
        return f"task {_shown(task_id)}"
    known = benchmark.metric_ids
    unknown = [metric_id for metric_id in metric_ids if metric_id not in known] if known else []
    return f"metric {_shown(unknown[0])}" if unknown else ""


def _elsewhere(benchmark: Benchmark, run: RunClaims) -> str:
    """Report a task whose dataset or commit is another one. The check passes all the same: a commit cannot name
    itself."""
    for task in benchmark.tasks:
        if task.id != run.task_id or task.dataset is UNSET:
            continue
        if (task.dataset.id, task.dataset.revision or "") != (run.benchmark_repo, run.benchmark_revision):
            return f"; the task's dataset is {_shown(task.dataset.id)} at {_shown(task.dataset.revision)}"
    return ""


def _pair(pair: tuple[str, str]) -> str:
    return _shown(f"{pair[0]} ({pair[1]})" if pair[1] else pair[0])


def _shown(value: object) -> str:
    if value is UNSET:
        return "absent"
    text = value if isinstance(value, str) else jcs.canonical(value).decode()  # type: ignore[arg-type]
    return text if len(text) <= 200 else f"{text[:200]}..."
