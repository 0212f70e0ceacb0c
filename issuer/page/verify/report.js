/**
 * The report on one entry (contract section 6): numbered checks, a verdict, and the members of `issuer verify --json`.
 *
 * The rules of the checks are elsewhere.
 */

import { isObject } from "./json.js";

/** @typedef {import("./entry.js").Entry} Entry */
/**
 * `unknown`: due, but something that it needs was unavailable. `skip`: not required, or it depends on a check that
 * did not pass.
 * @typedef {"pass" | "fail" | "unknown" | "skip"} Status
 */
/**
 * One numbered check. If two values differ, `token` has the token's value and `file` the file's.
 * @typedef {{number: number, name: string, status: Status, evidence: string, token: string, file: string}} Check
 */
/**
 * `good_when_issued`: only the time of receipt is missing, and no receipt or log could supply it.
 * @typedef {"verified" | "failed" | "undecided" | "good_when_issued" | "unverified"} Verdict
 */
/**
 * Source of the time: this party's own clock or records, a claim, its receipt, the witnesses of the log, or none.
 * @typedef {"clock" | "stated" | "receipt" | "log" | "unknown"} AtFrom
 */
/** @typedef {"reproduced" | "logged" | "verified" | "signed" | "self-reported" | "undecided" | "refuted"} Tier */
/**
 * The run as the file describes it; only the file vouches for this.
 * @typedef {{dataset: import("./entry.js").Dataset, metrics: import("./entry.js").EntryMetric[],
 *   framework: import("./entry.js").EntryFramework, model_revision?: string, selection: Record<string, string>,
 *   completeness: string, value?: number, reproduces: string, benchmark_subset: string,
 *   normalization: Record<string, unknown>, date: string, arguments: Record<string, string | boolean | number>}} Said
 */
/**
 * The judgement of one entry, as plain data. The token's statements (`claims`, `caller`, `issuer`, ...) are null, empty
 * or "" unless its signature is good. Times are Unix seconds.
 * @typedef {{version: 1, repo: string, path: string, pointer: string, verdict: Verdict, reason: string, at: number,
 *   at_from: AtFrom, issuer: string, framework: string, jti: string, kid: string, content_digest: string, token_digest:
 *   string, checks: Check[], said: Said, claims: import("./claims.js").RunClaims | null, caller: Record<string, string
 *   | number | boolean>, run_url: string, integration: string, issued_at: number | null, expires_at: number | null,
 *   attempt: import("./token.js").Attempt | null, line: number, shared_jti: boolean, witnessed_at: number | null,
 *   revoked: boolean, tier: Tier, tier_reason: string, badges: null, wants_keys_of: string}} Report
 */

/** @type {Record<number, string>} */
export const NAMES = {
  1: "well-formed token",
  2: "key",
  3: "signature",
  4: "issuer and audience",
  5: "fresh",
  6: "repository and file name",
  7: "bound fields",
  8: "metrics",
  9: "digests",
  10: "benchmark definition",
  11: "transparency log",
};
export const NUMBERS = Object.keys(NAMES).map(Number);
export const ALWAYS_DUE = new Set([1, 2, 3, 4, 5, 6, 7, 8, 9]);

/**
 * Return the check of this number, with its name.
 * @param {number} number
 * @param {Status} status
 * @param {string} evidence
 * @param {{token?: string, file?: string}} [compared]
 * @returns {Check}
 */
export const check = (number, status, evidence, { token = "", file = "" } = {}) => ({
  number,
  name: NAMES[number] ?? "",
  status,
  evidence,
  token,
  file,
});

/**
 * Return a check that is skipped because check `other` did not pass.
 * @param {number} number
 * @param {number} other
 */
export const restsOn = (number, other) => check(number, "skip", `rests on check ${other}, which did not pass`);

/**
 * Return `failed` if any check failed, else `undecided` if one that is due is unknown, else `verified`.
 * @param {Check[]} checks
 * @param {Set<number>} due
 * @returns {Verdict}
 */
export function verdictOf(checks, due) {
  if (checks.some(({ status }) => status === "fail")) return "failed";
  const statuses = new Set(checks.filter(({ number }) => due.has(number)).map(({ status }) => status));
  return statuses.size === 1 && statuses.has("pass") ? "verified" : "undecided";
}

/**
 * Return the description that an entry of a file gives.
 * @param {Entry} entry
 * @returns {Said}
 */
export function saidBy({ dataset, metrics, framework, model_revision: revision, value, form }) {
  const run = isObject(form.run) ? form.run : {};
  const named = isObject(run.selection) ? Object.entries(run.selection) : [];
  return {
    dataset: only(dataset, ["id", "task_id", "revision"]),
    metrics: (metrics ?? []).map((metric) =>
      only(metric, ["metric_id", "value", "slice", "value_type", "sample_size"]),
    ),
    framework: only(framework, ["name", "version", "command"]),
    ...(revision === undefined ? {} : { model_revision: revision }),
    selection: /** @type {Record<string, string>} */ (
      Object.fromEntries(named.filter(([, selector]) => typeof selector === "string"))
    ),
    completeness: textOf(run.completeness),
    ...(value === undefined ? {} : { value }),
    reproduces: textOf(run.reproduces),
    benchmark_subset: textOf(form.benchmark_subset),
    normalization: isObject(form.normalization) ? form.normalization : {},
    date: textOf(form.date),
    arguments: scalarsOf(run.arguments),
  };
}

/**
 * @template {object} T
 * @param {T} value
 * @param {(keyof T)[]} names
 */
const only = (value, names) =>
  /** @type {T} */ (
    Object.fromEntries(names.filter((name) => value[name] !== undefined).map((name) => [name, value[name]]))
  );

/** @param {unknown} value */
const scalarsOf = (value) =>
  /** @type {Record<string, string | boolean | number>} */ (
    Object.fromEntries(
      Object.entries(isObject(value) ? value : {}).filter(([, item]) => item !== null && typeof item !== "object"),
    )
  );

/** @param {unknown} value */
const textOf = (value) => (typeof value === "string" ? value : "");
