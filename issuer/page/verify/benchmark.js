/** A benchmark's `eval.yaml`: its tasks, its metrics, and the primary metric (contract section 3). */

import { FormatError } from "./errors.js";
import { isObject } from "./json.js";
import { flag, list, object, optional, text } from "./shape.js";
import { readYaml } from "./yaml.js";

/** @typedef {{id: string, dataset?: {id: string, revision?: string}}} Task */
/**
 * `metrics` is empty in the live form, which defines no metrics.
 * @typedef {{tasks: Task[], metrics: {id: string, primary?: boolean}[]}} Benchmark
 */

const id = text({ min: 1 });
const word = optional(text());
const shape = object({
  name: text(),
  tasks: list(
    object({
      id,
      display_name: word,
      dataset: optional(object({ id: text(), revision: word })),
      config: word,
      split: word,
    }),
    { min: 1 },
  ),
  description: word,
  metrics: optional(
    list(
      object({
        id,
        display_name: word,
        higher_is_better: optional(flag),
        primary: optional(flag),
        unit: word,
        aggregation: word,
        slice: word,
      }),
    ),
  ),
  evaluation_framework: word,
});

/**
 * Read an `eval.yaml`. Throws FormatError, or Beyond for YAML that only `issuer verify` reads. The code is
 * `benchmark.absent` if the file is valid YAML but defines no benchmark.
 * @param {Uint8Array} raw
 * @returns {Benchmark}
 */
export function readBenchmark(raw) {
  const value = readYaml(raw);
  if (!isObject(value) || !("tasks" in value || "metrics" in value))
    throw new FormatError("benchmark.absent", "not a benchmark definition: neither `tasks` nor `metrics`");
  shape(value);
  const { tasks, metrics = [] } = /** @type {import("./json.js").JsonObject & Benchmark} */ (value);
  return { tasks, metrics };
}

/**
 * Return the id of the primary metric: the only one or the marked one; null if that is ambiguous.
 * @param {Benchmark} benchmark
 */
export function primaryOf({ metrics }) {
  const marked = metrics.filter((metric) => metric.primary);
  const candidates = marked.length ? marked : metrics;
  return candidates.length === 1 ? (candidates[0]?.id ?? null) : null;
}
