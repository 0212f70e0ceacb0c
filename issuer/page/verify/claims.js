/**
 * Run claims: the statement of an evaluation framework about one run (contract section 2).
 *
 * This file knows the rules of each member, the canonical order and the claims digest. It never repairs: a member that
 * breaks a rule is refused with its place.
 */

import { digest } from "./canonical.js";
import { FormatError } from "./errors.js";
import { plainNumber } from "./numbers.js";
import { integer, list, number, object, oneOf, optional, text } from "./shape.js";

/** @typedef {{metric_id: string, value: number, slice?: string, value_type?: string, sample_size?: number}} Metric */
/** @typedef {{name: string, version: string, command?: string}} Framework */
/**
 * Claims in canonical form: metrics are sorted, and every number is a JavaScript number.
 * @typedef {{model_repo: string, model_revision: string, benchmark_repo: string, benchmark_revision: string,
 *   task_id: string, metrics: Metric[], framework: Framework}} RunClaims
 */

export const RUN_MEMBERS = /** @type {const} */ ([
  "model_repo",
  "model_revision",
  "benchmark_repo",
  "benchmark_revision",
  "task_id",
  "metrics",
  "framework",
]);

const MAX_COMMAND = 4096;
const REPO_PART = "[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?";
export const REPO = new RegExp(`^(?!.*(?:--|\\.\\.))${REPO_PART}/${REPO_PART}(?<!\\.git)$`);
export const REVISION = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;
const IDENTIFIER = /^[\x21-\x7e]{1,128}$/;
const WORD = /^[\x20-\x7e]{1,64}$/;

const shape = object(
  {
    model_repo: text(),
    model_revision: text(),
    benchmark_repo: text(),
    benchmark_revision: text(),
    task_id: text(),
    metrics: list(
      object(
        {
          metric_id: text(),
          value: number(),
          slice: optional(text()),
          value_type: optional(oneOf("float", "int", "percentage", "rank")),
          sample_size: optional(integer({ min: 1, max: Number.MAX_SAFE_INTEGER })),
        },
        { closed: true },
      ),
      { min: 1, max: 256 },
    ),
    framework: object({ name: text(), version: text(), command: optional(text()) }, { closed: true }),
  },
  { closed: true },
);

/**
 * Read run claims from JSON that a strict reader returned. Throws FormatError for the first fault: `claims.invalid`,
 * `claims.revision`, `claims.number`, `claims.duplicate_metric`.
 * @param {unknown} value
 * @returns {RunClaims}
 */
export function readClaims(value) {
  try {
    shape(value);
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    throw new FormatError("claims.invalid", error.message, { pointer: error.pointer });
  }
  const said = /** @type {RunClaims} */ (value);
  const metrics = said.metrics.map((metric) => ({ ...metric, value: plainNumber(metric.value) ?? NaN }));
  const claims = { ...said, metrics, framework: { ...said.framework } };
  for (const [code, pointer, rule] of faults(claims)) throw new FormatError(code, rule, { pointer });
  return { ...claims, metrics: metrics.sort(byPair) };
}

/**
 * Return the claims digest.
 * @param {RunClaims} claims
 */
export const claimsDigest = (claims) => digest(claims);

/**
 * Return the key of a metric: its id and slice, "" without one.
 * @param {{metric_id: string, slice?: string}} metric
 * @returns {[string, string]}
 */
export const pairOf = ({ metric_id: id, slice = "" }) => [id, slice];

/**
 * Compare metrics for their order in claims; their names are ASCII.
 * @param {Metric} one
 * @param {Metric} other
 */
function byPair(one, other) {
  const [[id, slice], [otherId, otherSlice]] = [pairOf(one), pairOf(other)];
  if (id !== otherId) return id < otherId ? -1 : 1;
  return slice === otherSlice ? 0 : slice < otherSlice ? -1 : 1;
}

/** @typedef {[code: string, pointer: string, rule: string]} Fault */

const REPO_RULE = "must be `owner/name` by the Hub's rules, in ASCII";
const REVISION_RULE = "must be a full commit: 40 or 64 lowercase hex characters";
const WORD_RULE = "must be 1 to 64 printable ASCII characters";

/**
 * @param {RunClaims} claims
 * @returns {Generator<Fault>}
 */
function* faults(claims) {
  if (!REPO.test(claims.model_repo)) yield ["claims.invalid", "/model_repo", REPO_RULE];
  if (!REPO.test(claims.benchmark_repo)) yield ["claims.invalid", "/benchmark_repo", REPO_RULE];
  if (!REVISION.test(claims.model_revision)) yield ["claims.revision", "/model_revision", REVISION_RULE];
  if (!REVISION.test(claims.benchmark_revision)) yield ["claims.revision", "/benchmark_revision", REVISION_RULE];
  if (!IDENTIFIER.test(claims.task_id))
    yield ["claims.invalid", "/task_id", "must be 1 to 128 printable ASCII characters without space"];
  yield* frameworkFaults(claims.framework);
  const seen = new Set();
  for (const [index, metric] of claims.metrics.entries()) {
    const [place, pair] = [`/metrics/${index}`, pairOf(metric).join(" ")];
    yield* metricFaults(metric, place);
    if (seen.has(pair))
      yield ["claims.duplicate_metric", place, "the same metric_id and slice are here a second time"];
    seen.add(pair);
  }
}

/**
 * @param {Framework} framework
 * @returns {Generator<Fault>}
 */
function* frameworkFaults({ name, version, command }) {
  if (!WORD.test(name)) yield ["claims.invalid", "/framework/name", WORD_RULE];
  if (!WORD.test(version)) yield ["claims.invalid", "/framework/version", WORD_RULE];
  const rule = command === undefined ? "" : commandRule(command);
  if (rule) yield ["claims.invalid", "/framework/command", rule];
}

/** @param {string} command */
function commandRule(command) {
  const length = [...command].length;
  if (length < 1 || length > MAX_COMMAND) return `must be 1 to ${MAX_COMMAND} characters, or absent`;
  return /\p{Cc}/u.test(command) ? "must not contain control characters, line breaks included" : "";
}

/**
 * @param {Metric} metric
 * @param {string} place
 * @returns {Generator<Fault>}
 */
function* metricFaults({ metric_id: id, slice, value, value_type: type }, place) {
  if (!IDENTIFIER.test(id))
    yield ["claims.invalid", `${place}/metric_id`, "must be 1 to 128 printable ASCII without space"];
  if (slice !== undefined && !IDENTIFIER.test(slice))
    yield ["claims.invalid", `${place}/slice`, "must be 1 to 128 printable ASCII without space, or absent"];
  if (!(Math.abs(value) <= Number.MAX_SAFE_INTEGER))
    yield ["claims.number", `${place}/value`, "must be finite, and at most 2^53 - 1 if it is whole"];
  if ((type === "int" || type === "rank") && !Number.isInteger(value))
    yield ["claims.invalid", `${place}/value`, `must be a whole number: its value_type is ${type}`];
}
