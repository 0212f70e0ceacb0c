/**
 * Reproductions: whether one run evaluated the same thing as another and got the same numbers.
 *
 * The second names the first by its content digest (`run.reproduces`), and another party had it signed. This shows two
 * signatures over agreeing numbers; it does not prove that a second run took place. `run.split`, `run.epochs` and
 * `run.completeness` are not compared.
 */

import { canonical } from "./canonical.js";
import { pairOf } from "./claims.js";
import { doubtOfTwoOwners } from "./provenance.js";

/** @typedef {import("./report.js").Report} Report */
/** @typedef {import("./report.js").Said} Said */
/** @typedef {import("./claims.js").RunClaims} RunClaims */
/**
 * How far two values of a metric may differ, in its unit, by metric id. Values of other metrics must be equal.
 * @typedef {Map<string, number>} Tolerance
 */
/**
 * A difference of two runs: its place, and both values.
 * @typedef {[where: string, first: string, second: string]} Difference
 */

const MOST = 200; // characters of a value that is shown
const BOUND = /** @type {const} */ ([
  "model_repo",
  "model_revision",
  "benchmark_repo",
  "benchmark_revision",
  "task_id",
]);

/**
 * Return why `second`, which names `first`, does not reproduce it, or "". Both are at least `verified`.
 * @param {Report} second
 * @param {Report} first
 * @param {Tolerance} tolerance
 */
export function reproductionObjection(second, first, tolerance) {
  if (!first.claims || !second.claims || first.issued_at === null || second.issued_at === null)
    return "one of them is not signed";
  if (first.issued_at >= second.issued_at) return "it was not signed later than the result that it names";
  const runs = runDifference(first.claims, second.claims, tolerance);
  const [parted] = runs ? [runs] : settingDifferences(first.said, second.said);
  if (parted) return `they differ at ${parted[0]}: ${shown(parted[1])} and ${shown(parted[2])}`;
  if (first.integration === second.integration) return `both were signed for ${first.integration}`;
  return doubtOfTwoOwners(first.caller, second.caller);
}

/**
 * Return the first difference of two runs. Another framework is not a difference.
 * @param {RunClaims} first
 * @param {RunClaims} second
 * @param {Tolerance} tolerance
 * @returns {Difference | undefined}
 */
function runDifference(first, second, tolerance) {
  for (const name of BOUND) if (first[name] !== second[name]) return [`/${name}`, first[name], second[name]];
  const theirs = new Map(second.metrics.map((metric) => [pairOf(metric).join(" "), metric]));
  for (const [index, metric] of first.metrics.entries()) {
    const pair = pairOf(metric).join(" ");
    const other = theirs.get(pair);
    theirs.delete(pair);
    if (!other) return [`/metrics/${index}`, describe(metric), ""];
    if (!agree(metric.value, other.value, tolerance.get(metric.metric_id) ?? 0))
      return [`/metrics/${index}/value`, describe(metric), describe(other)];
  }
  const [more] = theirs.values();
  return more && ["/metrics", "", describe(more)];
}

/**
 * Say whether two values agree. A tolerance of 0.1 also accepts 0.3 and 0.2: doubles are compared to one part in
 * 10^9.
 * @param {number} one
 * @param {number} other
 * @param {number} limit
 */
function agree(one, other, limit) {
  const apart = Math.abs(one - other);
  return apart <= limit || (limit > 0 && Math.abs(apart - limit) <= 1e-9 * Math.max(apart, limit));
}

/**
 * Return differences in the settings of two results, which are in their bound details.
 * @param {Said} first
 * @param {Said} second
 * @returns {Difference[]}
 */
function settingDifferences(first, second) {
  /** @type {Difference[]} */
  const pairs = [
    ["run.selection", written(first.selection), written(second.selection)],
    ...argumentDifference(first, second),
    ["benchmark_subset", first.benchmark_subset, second.benchmark_subset],
    ["normalization", written(first.normalization), written(second.normalization)],
  ];
  return pairs.filter(([, one, other]) => one !== other);
}

/**
 * Return the arguments of both runs. Another framework has other names for its arguments, and older results have none:
 * then arguments are not compared.
 * @param {Said} first
 * @param {Said} second
 * @returns {Difference[]}
 */
function argumentDifference(first, second) {
  const both = [first.arguments, second.arguments].every((given) => Object.keys(given).length);
  if (first.framework.name !== second.framework.name || !both) return [];
  const only = [onlyIn(first.arguments, second.arguments), onlyIn(second.arguments, first.arguments)];
  return [["run.arguments", written(only[0] ?? {}), written(only[1] ?? {})]];
}

/**
 * Return the arguments that the others lack or have with another value.
 * @param {Said["arguments"]} given
 * @param {Said["arguments"]} others
 */
const onlyIn = (given, others) =>
  Object.fromEntries(
    Object.entries(given).filter(([name, value]) => !(Object.hasOwn(others, name) && others[name] === value)),
  );

/**
 * Describe a difference that does not count: whether the whole benchmark was run. Returns "" without a difference.
 * @param {Said} second
 * @param {Said} first
 */
export function aside(second, first) {
  if (second.completeness === first.completeness) return "";
  return `; run.completeness, which is not compared: ${shown(first.completeness)} and ${shown(second.completeness)}`;
}

/** @param {Record<string, unknown>} value */
const written = (value) =>
  Object.keys(value).length ? canonical(/** @type {import("./json.js").JsonObject} */ (value)) : "";

/**
 * Return a metric's name, its slice in brackets, and its value.
 * @param {import("./claims.js").Metric} metric
 */
const describe = ({ metric_id: id, slice, value }) => `${id}${slice ? ` (${slice})` : ""} ${numberText(value)}`;

/**
 * Return the text of a number that every YAML reader reads alike: `0.00002`, `1.0e-7`.
 * @param {number} value
 */
function numberText(value) {
  const [mantissa = "", exponent] = String(value).split("e");
  if (exponent === undefined) return mantissa;
  return `${mantissa.includes(".") ? mantissa : `${mantissa}.0`}e${exponent}`;
}

/**
 * Shorten foreign text: the report of each entry that it is compared with repeats it.
 * @param {string} text
 */
const shown = (text) => ([...text].length > MOST ? `${[...text].slice(0, MOST).join("")}...` : text || "-");
