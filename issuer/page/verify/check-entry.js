/**
 * Checks 6 to 11 of contract section 6: does the entry, at its place, say the same as the token?
 *
 * Each function takes the claims that a good signature vouches for. Without them (null) it skips comparisons with the
 * token.
 */

import { primaryOf } from "./benchmark.js";
import { canonical, digest } from "./canonical.js";
import { claimsDigest, pairOf } from "./claims.js";
import { resultFileName } from "./entry.js";
import { isObject } from "./json.js";
import { check, restsOn } from "./report.js";
import { contentDigest } from "./target.js";

/** @typedef {import("./benchmark.js").Benchmark} Benchmark */
/** @typedef {import("./check-token.js").Signed} Signed */
/** @typedef {import("./claims.js").RunClaims} RunClaims */
/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {import("./log/inclusion.js").Inclusion} Inclusion */
/** `eval.yaml` files by `owner/name@commit`. @typedef {ReadonlyMap<string, Benchmark>} Benchmarks */

// -- (6) and (7) ------------------------------------------------------------------------------------------------------

/**
 * Compare the file's path, which needs no token, and the repository, which does.
 * @param {Entry} entry
 * @param {string} repo
 * @param {string} path
 * @param {Signed | null} signed
 */
export function placed({ dataset }, repo, path, signed) {
  const expected = resultFileName(dataset.id);
  if (path !== expected)
    return check(6, "fail", `results of ${shown(dataset.id)} belong in ${shown(expected)}`, { file: path });
  if (!signed) return restsOn(6, 3);
  const { model_repo: bound } = signed.run;
  if (bound !== repo) {
    const evidence = "the token is for another model repository: this one was renamed, or the entry was copied";
    return check(6, "fail", evidence, { token: bound, file: repo });
  }
  return check(6, "pass", `${repo}, ${path}`);
}

/**
 * Compare every bound field; a field that the entry lacks is a mismatch.
 * @param {Entry} entry
 * @param {Signed | null} signed
 */
export function fieldsEqual({ dataset, framework, model_revision: revision }, signed) {
  if (!signed) return restsOn(7, 3);
  const { run } = signed;
  /** @type {[name: string, bound: string | undefined, found: string | undefined][]} */
  const fields = [
    ["dataset.id", run.benchmark_repo, dataset.id],
    ["dataset.task_id", run.task_id, dataset.task_id],
    ["dataset.revision", run.benchmark_revision, dataset.revision],
    ["model_revision", run.model_revision, revision],
    ["framework.name", run.framework.name, framework.name],
    ["framework.version", run.framework.version, framework.version],
    ["framework.command", run.framework.command, framework.command],
  ];
  const differing = fields.find(([, bound, found]) => bound !== found);
  if (!differing) return check(7, "pass", "model, benchmark, task and framework are equal");
  const [name, bound, found] = differing;
  return check(7, "fail", `${name} differs`, { token: shown(bound), file: shown(found) });
}

// -- (8) --------------------------------------------------------------------------------------------------------------

/** The scores of metrics, each by its pair. @typedef {Map<string, {pair: [string, string], value: number}>} Scores */

/**
 * Compare metrics and their values as doubles, and `value` with the primary metric.
 * @param {Entry} entry
 * @param {Signed | null} signed
 * @param {Benchmarks} benchmarks
 */
export function metricsEqual(entry, signed, benchmarks) {
  if (!signed) return restsOn(8, 3);
  const { run } = signed;
  const bound = scores(run.metrics);
  const metrics = entry.metrics ?? [];
  for (const metric of metrics) {
    const same = bound.get(keyOf(pairOf(metric)));
    if (!same) return check(8, "fail", "the token does not bind this metric", { file: showPair(pairOf(metric)) });
    if (same.value !== metric.value)
      return check(8, "fail", `${showPair(same.pair)} differs`, {
        token: shown(same.value),
        file: shown(metric.value),
      });
  }
  const found = scores(metrics);
  const missing = [...bound.entries()].find(([key]) => !found.has(key));
  if (missing)
    return check(8, "fail", "the file lacks a metric of the token", {
      token: showPair(missing[1].pair),
      file: "absent",
    });
  if (metrics.length !== bound.size) return check(8, "fail", "the file names a metric twice");
  if (entry.value === undefined) return check(8, "pass", `${bound.size} equal`);
  return judgeValue(entry.value, bound, benchmarks.get(benchmarkKey(run.benchmark_repo, run.benchmark_revision)));
}

/**
 * @param {{metric_id: string, slice?: string, value: number}[]} metrics
 * @returns {Scores}
 */
const scores = (metrics) =>
  new Map(metrics.map((metric) => [keyOf(pairOf(metric)), { pair: pairOf(metric), value: metric.value }]));

/** @param {[string, string]} pair */
const keyOf = (pair) => JSON.stringify(pair);

/**
 * Judge `value`, which must be the score of the primary metric without a slice (contract section 3).
 * @param {number} value
 * @param {Scores} bound
 * @param {Benchmark | undefined} benchmark
 */
function judgeValue(value, bound, benchmark) {
  const named = benchmark ? primaryOf(benchmark) : null;
  const primary = named ?? onlyMetric(bound);
  if (primary === null && !benchmark)
    return check(8, "unknown", "`value` can only be judged with the benchmark's eval.yaml");
  if (primary === null)
    return check(8, "unknown", "`value` cannot be judged: the benchmark's eval.yaml names no primary metric");
  const name = showPair([primary, ""]);
  const same = bound.get(keyOf([primary, ""]));
  if (!same) return check(8, "fail", `\`value\` belongs to the primary metric ${name}, which is missing here`);
  if (same.value !== value) {
    const evidence = `\`value\` differs from the primary metric ${name}`;
    return check(8, "fail", evidence, { token: shown(same.value), file: shown(value) });
  }
  return check(8, "pass", `${bound.size} equal, and \`value\` is ${name}${named === null ? ", the only metric" : ""}`);
}

/**
 * Return the id of the only metric, if it has a score without a slice, otherwise null.
 * @param {Scores} bound
 */
function onlyMetric(bound) {
  const pairs = [...bound.values()].map(({ pair }) => pair);
  const [first] = pairs.filter(([, slice]) => slice === "");
  return first && pairs.every(([id]) => id === first[0]) ? first[0] : null;
}

// -- (9) --------------------------------------------------------------------------------------------------------------

/**
 * Compute both digests from the file, and compare them with those that the token states. Takes the repository from the
 * token, because check 6 compares it: a renamed repository changes no result.
 * @param {Entry} entry
 * @param {Signed | null} signed
 */
export async function digestsRecompute({ form }, signed) {
  if (!signed) return restsOn(9, 3);
  const { claims_digest: stated, content_digest: statedContent } = signed.claims;
  const claims = await digest(claimsInFile(form, signed.run.model_repo));
  if (claims !== stated || (await claimsDigest(signed.run)) !== stated)
    return check(9, "fail", "claims_digest does not match", { token: stated, file: claims });
  const content = await contentDigest(form);
  if (content !== statedContent) {
    const evidence = "content_digest does not match: a member of the entry was changed";
    return check(9, "fail", evidence, { token: statedContent, file: content });
  }
  return check(9, "pass", "claims_digest and content_digest match");
}

/**
 * Return the run claims that the file states.
 * @param {import("./json.js").JsonObject} form
 * @param {string} repo
 * @returns {import("./json.js").JsonObject}
 */
function claimsInFile(form, repo) {
  const dataset = isObject(form.dataset) ? form.dataset : {};
  return {
    model_repo: repo,
    model_revision: form.model_revision ?? null,
    benchmark_repo: dataset.id ?? null,
    benchmark_revision: dataset.revision ?? null,
    task_id: dataset.task_id ?? null,
    metrics: form.metrics ?? null,
    framework: form.framework ?? null,
  };
}

// -- (10) and (11) ----------------------------------------------------------------------------------------------------

/**
 * @param {string} repo
 * @param {string} revision
 */
export const benchmarkKey = (repo, revision) => `${repo}@${revision}`;

/**
 * Ask whether the trust file accepts the definition's commit. If required, look up task and metrics (without a token,
 * the file's) in the `eval.yaml` of the commit.
 * @param {Entry} entry
 * @param {Signed | null} signed
 * @param {Benchmarks} benchmarks
 * @param {import("./trust.js").Trust} trust
 */
export function definedIn({ dataset, metrics }, signed, benchmarks, { definitions, require }) {
  const listed = (signed && definitions.get(signed.run.benchmark_repo.toLowerCase())) ?? [];
  const commit = signed?.run.benchmark_revision ?? "";
  if (listed.length && !listed.includes(commit)) {
    const others = listed.length === 1 ? `it pins ${listed[0]}` : `it lists ${listed.length} others`;
    return check(10, "fail", `the trust file does not accept the definition at ${commit}: ${others}`);
  }
  const whose = signed ? `; ${chosenBy(listed)} the definition's commit` : "";
  if (!require.has("benchmark")) return check(10, "skip", `not required${whose}`);
  const here = benchmarks.get(benchmarkKey(dataset.id, dataset.revision ?? ""));
  const unknownHere = here && undefinedIn(here, dataset.task_id ?? "", metrics ?? []);
  if (unknownHere) return check(10, "fail", "the benchmark's eval.yaml does not define it", { file: unknownHere });
  if (!signed) return restsOn(10, 3);
  const { run } = signed;
  const benchmark = benchmarks.get(benchmarkKey(run.benchmark_repo, run.benchmark_revision));
  if (!benchmark) return check(10, "unknown", "the benchmark's eval.yaml of that commit is unavailable");
  const missing = undefinedIn(benchmark, run.task_id, run.metrics);
  if (missing) return check(10, "fail", "the benchmark's eval.yaml does not define it", { token: missing });
  if (!benchmark.metrics.length)
    return check(10, "unknown", "the benchmark's eval.yaml defines the task, but no metrics");
  return check(10, "pass", `task and metrics are defined${whose}${elsewhere(benchmark, run)}`);
}

/** @param {string[]} listed */
const chosenBy = ({ length }) =>
  length === 0 ? "the submitter chose" : length === 1 ? "the trust file pins" : "the trust file lists";

/**
 * Name the task or metric that the benchmark does not define, or return "".
 * @param {Benchmark} benchmark
 * @param {string} taskId
 * @param {{metric_id: string}[]} found
 */
function undefinedIn({ tasks, metrics }, taskId, found) {
  if (!tasks.some(({ id }) => id === taskId)) return `task ${shown(taskId)}`;
  const known = new Set(metrics.map(({ id }) => id));
  const unknown = known.size ? found.find(({ metric_id: id }) => !known.has(id)) : undefined;
  return unknown ? `metric ${shown(unknown.metric_id)}` : "";
}

/**
 * Report a task whose dataset or commit is another one. The check passes all the same: a commit cannot name itself.
 * @param {Benchmark} benchmark
 * @param {RunClaims} run
 */
function elsewhere({ tasks }, run) {
  for (const { id, dataset } of tasks)
    if (
      id === run.task_id &&
      dataset &&
      (dataset.id !== run.benchmark_repo || dataset.revision !== run.benchmark_revision)
    )
      return `; the task's dataset is ${shown(dataset.id)} at ${shown(dataset.revision)}`;
  return "";
}

/**
 * Return check 11 for an inclusion, null without a good signature. The check is skipped if it is not required.
 * @param {Inclusion | null} inclusion
 * @param {boolean} required
 */
export function logged(inclusion, required) {
  if (!inclusion) return required ? restsOn(11, 3) : check(11, "skip", "not required");
  const { status, evidence, origin } = inclusion;
  if (required) return check(11, status, evidence, { token: origin });
  return check(11, "skip", `not required: ${evidence}`, { token: origin });
}

/** @param {[string, string]} pair */
const showPair = ([id, slice]) => shown(slice ? `${id} (${slice})` : id);

/** @param {string | number | undefined} value */
function shown(value) {
  if (value === undefined) return "absent";
  const text = [...(typeof value === "string" ? value : canonical(value))];
  return text.length <= 200 ? text.join("") : `${text.slice(0, 200).join("")}...`;
}
