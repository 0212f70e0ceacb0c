/**
 * Entries of `.eval_results/*.yaml` files (contract section 3), in the three forms that exist.
 *
 * A file does not name its repository, so this code does not know it.
 */

import { FormatError } from "./errors.js";
import { isObject } from "./json.js";
import { plainNumber } from "./numbers.js";
import { anything, either, integer, list, map, number, object, optional, text } from "./shape.js";
import { dropNulls, targetForm } from "./target.js";
import { readYamlDocument } from "./yaml.js";

/** @typedef {import("./json.js").Json} Json */
/** @typedef {import("./json.js").JsonObject} JsonObject */
/** @typedef {{id: string, task_id?: string, revision?: string}} Dataset */
/**
 * Values here may break the rules of run claims; the checks judge that.
 * @typedef {{metric_id: string, value: number, slice?: string, value_type?: string, sample_size?: number}} EntryMetric
 */
/** @typedef {{name?: string, version?: string, command?: string}} EntryFramework */
/**
 * One entry of a file as plain data: the members that the checks compare, and `form`, its target form, which also has
 * unknown members. `metrics` is null if the entry has none, `line` 0 if unknown.
 * @typedef {{pointer: string, line: number, form: JsonObject, token: string | null, dataset: Dataset, model_revision:
 *   string | undefined, framework: EntryFramework, metrics: EntryMetric[] | null, value: number | undefined}} Entry
 */

const MAX_ENTRIES = 1000;
// Members of the Hub's answers about an entry: huggingface_hub skips an entry with `error`, and reads `data` instead.
const HUB_ANSWERS = ["data", "error"];
const HUB_ANSWER_RULE = "huggingface_hub takes an entry with this member for an answer of the Hub: leave it out";

const members = object({
  dataset: object({ id: text(), task_id: optional(text()), revision: optional(text()) }),
  model_revision: optional(text()),
  framework: optional(object({ name: optional(text()), version: optional(text()), command: optional(text()) })),
  metrics: optional(
    list(
      object({
        metric_id: text(),
        value: number(),
        slice: optional(text()),
        value_type: optional(text()),
        sample_size: optional(integer()),
      }),
      { max: 256 },
    ),
  ),
  value: optional(number()),
  verify_token: optional(text()),
  verifyToken: optional(text()),
});

const details = object({
  date: optional(text()),
  source: optional(
    object({ url: optional(text()), name: optional(text()), user: optional(text()), org: optional(text()) }),
  ),
  notes: optional(text()),
  run: optional(map(anything)),
  artifacts: optional(
    either("a map or a list", (value) => (typeof value !== "object" || value === null ? undefined : anything)),
  ),
  runtime_context: optional(map(anything)),
  benchmark_subset: optional(text()),
  normalization: optional(map(anything)),
});

/**
 * Read a result file. Throws FormatError with line and column, or Beyond for YAML that only `issuer verify` reads.
 * @param {Uint8Array} raw
 * @returns {Entry[]}
 */
export function readEntries(raw) {
  const document = readYamlDocument(raw, { bareDates: isDateMember });
  const { value } = document;
  if (!Array.isArray(value))
    throw located(new FormatError("file.schema", "a result file is a list of entries"), document);
  if (value.length > MAX_ENTRIES)
    throw located(
      new FormatError("file.too_large", `more than ${MAX_ENTRIES} entries`, { pointer: `/${MAX_ENTRIES}` }),
      document,
    );
  return value.map((item, index) => {
    try {
      const { line } = document.place(`/${index}`);
      return readEntry(item, `/${index}`, line);
    } catch (error) {
      throw error instanceof FormatError ? located(error.within(`/${index}`), document) : error;
    }
  });
}

/**
 * @param {FormatError} error
 * @param {{place: (pointer: string) => {line: number, column: number}}} document
 */
function located(error, document) {
  const { line, column } = document.place(error.pointer);
  return new FormatError(error.code, error.message, { pointer: error.pointer, line, column });
}

/**
 * Say whether this pointer is the `date` of an entry, which may be a bare ISO date.
 * @param {string} pointer
 */
const isDateMember = (pointer) => /^\/[0-9]+\/date$/.test(pointer);

/**
 * Read one entry that a strict reader returned from `pointer` in its file. Throws FormatError with the pointer inside
 * the entry.
 * @param {Json} value
 * @param {string} [pointer]
 * @param {number} [line]
 * @returns {Entry}
 */
export function readEntry(value, pointer = "", line = 0) {
  const answer = HUB_ANSWERS.find((name) => isObject(value) && name in value);
  if (answer) throw new FormatError("file.rule", HUB_ANSWER_RULE, { pointer: `/${answer}` });
  const plain = dropNulls(value);
  members(plain);
  details(plain);
  demandUrl(/** @type {JsonObject} */ (plain).source);
  const said = /** @type {JsonObject & Partial<Entry> & {dataset: Dataset}} */ (plain);
  const metrics = said.metrics?.map((metric) => ({ ...metric, value: plainNumber(metric.value) ?? NaN }));
  return {
    pointer,
    line,
    form: targetForm(said),
    token: tokenOf(said),
    dataset: said.dataset,
    model_revision: said.model_revision,
    framework: said.framework ?? {},
    metrics: metrics ?? null,
    value: plainNumber(said.value),
  };
}

/** @param {Json | undefined} source */
function demandUrl(source) {
  if (isObject(source) && !("url" in source) && ["name", "user", "org"].some((name) => name in source))
    throw new FormatError("file.rule", "lacks `url`, without which huggingface_hub reads no entry", {
      pointer: "/source",
    });
}

/** @param {JsonObject} said */
function tokenOf({ verify_token: one = null, verifyToken: other = null }) {
  if (one !== null && other !== null && one !== other)
    throw new FormatError("file.rule", "differs from verify_token: keep one of the two", { pointer: "/verifyToken" });
  return /** @type {string | null} */ (one ?? other);
}

/**
 * Return the path of a benchmark's results in a model repository: `.eval_results/<name>.yaml`.
 * @param {string} benchmarkRepo
 */
export function resultFileName(benchmarkRepo) {
  const name = benchmarkRepo.slice(benchmarkRepo.lastIndexOf("/") + 1);
  return `.eval_results/${name.toLowerCase().replaceAll("-", "_")}.yaml`;
}
