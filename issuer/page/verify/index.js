/** The public functions of the verifier. Each is described at its definition. */

export { readBenchmark } from "./benchmark.js";
export { readEntries, resultFileName } from "./entry.js";
export { Beyond, FormatError } from "./errors.js";
export { CheckedNotes } from "./log/inclusion.js";
export { questions } from "./questions.js";
export { checkFound, readTrustFile, resolve, sources, trustIssuer } from "./trust.js";
export { inspectToken, verifyEntries, verifyEntry } from "./verify.js";
