// The web worker with the verifier: the page can end it if a check takes too long, and no file can block the page.
// It has no network access (its policy forbids that): the page passes all data in.
import { FormatError, inspectToken, readBenchmark, readEntries, readTrustFile, resolve, sources, trustIssuer, verifyEntries } from "../verify/index.js";
import { digestOf } from "../verify/canonical.js";
import { benchmarkKey } from "../verify/check-entry.js";
import { proofUrl, sidecarName, unverifiedLeaf } from "../verify/log/ask.js";

/** @typedef {import("../verify/log/inclusion.js").AtHand} AtHand */
/** @typedef {import("../verify/report.js").Report} Report */
/** @typedef {import("../verify/trust.js").Absence} Absence */
/** @typedef {import("../verify/trust.js").TrustFile} TrustFile */
/**
 * The trusted issuers: a trust file, or one issuer with the documents that it publishes.
 * @typedef {{issuer: string, audience: string, published: {archive: boolean, revocations: boolean}}} OneIssuer
 * @typedef {{bytes: Uint8Array} | OneIssuer} Whom
 */
/**
 * What to check: a file, which is `path` in the repository `repo`, or only a token. `at` is the time of receipt in Unix
 * seconds, or null; `witnessed` says that it comes from this person's own clock.
 * @typedef {{file: Uint8Array, token: null} | {file: null, token: string}} Subject
 * @typedef {Subject & {repo: string, path: string, trust: Whom, now: number, at: number | null, witnessed: boolean}} Question
 */
/**
 * A document that the trust file names at a JSON Pointer: a URL to fetch, or a file that the person has.
 * @typedef {{pointer: string, url?: string, file?: string}} Need
 */
/**
 * A token's leaf in its issuer's log, the name of its proof's file, and the URL of the proof, or "".
 * @typedef {{leaf: string, name: string, url: string}} Leaf
 */
/** @typedef {{entries: number, tokens: number, audience: string, needs: Need[], leaves: Leaf[]}} Plan */
/**
 * The documents that were fetched or given: by pointers of the trust file; proofs and answers of logs by leaf.
 * @typedef {{found: Map<string, Uint8Array | null>, fetchedAt: Map<string, number>, proofs: Map<string, AtHand>,
 *   asked: Map<string, AtHand>, benchmark: Uint8Array | null}} Evidence
 */
/** The reports, with the digest of the definition that was used, or "". @typedef {{reports: Report[], absent: Absence[], definition: string}} Judged */
/**
 * The worker's tasks, each with its input and its answer.
 * @typedef {{plan: {given: {question: Question}, done: Plan}, judge: {given: {question: Question, evidence: Evidence},
 *   done: Judged}}} Verbs
 * @typedef {{verb: "plan", given: Verbs["plan"]["given"]} | {verb: "judge", given: Verbs["judge"]["given"]}} Task
 */
/**
 * @template Done
 * @typedef {{done: Done} | {fault: {code: string, message: string, place: string}}} Answer
 */

const MOST_LEAVES = 100;
const TRUST_FILE = "your trust file";

/** A fault in a file other than the one that is checked. */
class InFile extends Error {
  /** @param {string} file @param {FormatError} error */
  constructor(file, { message, code, place }) {
    super(message);
    this.code = code;
    this.place = [file, place].filter(Boolean).join(", ");
  }
}

/**
 * Read something. Faults in it are then faults of this file.
 * @template Read
 * @param {string} file @param {() => Read | Promise<Read>} read
 */
async function inFile(file, read) {
  try {
    return await read();
  } catch (error) {
    throw error instanceof FormatError ? new InFile(file, error) : error;
  }
}

/** @param {Whom} trust @returns {Promise<TrustFile>} */
const trustOf = async (trust) =>
  "bytes" in trust
    ? inFile(TRUST_FILE, () => readTrustFile(trust.bytes))
    : trustIssuer(trust.issuer, trust.audience, trust.published);

/** Return what judging needs. @param {Verbs["plan"]["given"]} given @returns {Promise<Plan>} */
async function plan({ question }) {
  const entries = question.file ? readEntries(question.file) : [];
  const trust = await trustOf(question.trust);
  const tokens = (question.file ? entries.map(({ token }) => token) : [question.token]).filter((token) => token !== null);
  const needs = [...sources(trust)].map(([pointer, { url, file }]) => ({ pointer, url, file }));
  return {
    entries: entries.length,
    tokens: tokens.length,
    audience: trust.audience,
    needs: needs.filter(({ url, file }) => url || file),
    leaves: await leavesOf(tokens, trust, question.path.split("/").pop() ?? ""),
  };
}

/**
 * The leaves of tokens whose issuer has a log in the trust file, with the URLs of their proofs. The tokens' content is not
 * checked here, because it only decides which URLs are shown to the person.
 * @param {string[]} tokens @param {TrustFile} trust @param {string} file its name
 */
async function leavesOf(tokens, { issuers }, file) {
  const logs = new Map(issuers.flatMap(({ issuer, log }) => (log ? [[issuer, log]] : [])));
  /** @type {Leaf[]} */
  const found = [];
  if (logs.size)
    for (const token of tokens) {
      if (found.length === MOST_LEAVES) break;
      const { leaf, iss } = await leafOf(token);
      const log = logs.get(iss);
      if (log) found.push({ leaf, name: sidecarName(file, leaf), url: log.url ? proofUrl(log.url, leaf) : "" });
    }
  return found;
}

/** @param {string} token */
async function leafOf(token) {
  try {
    const { leaf, claims } = await unverifiedLeaf(token);
    return { leaf, iss: claims.iss };
  } catch (error) {
    if (!(error instanceof FormatError)) throw error; // check 1 reports the fault of such a token
    return { leaf: "", iss: "" };
  }
}

/** Judge. @param {Verbs["judge"]["given"]} given @returns {Promise<Judged>} */
async function judge({ question, evidence }) {
  const { now, at, witnessed } = question;
  const { found, fetchedAt, proofs, asked } = evidence;
  const stated = await trustOf(question.trust);
  const trust = await inFile(TRUST_FILE, () => resolve(stated, found, fetchedAt));
  if (question.file === null) {
    const report = await inspectToken(question.token, trust, at, { now, witnessed, proofs, asked });
    return { reports: [report], absent: trust.absent, definition: "" };
  }
  const entries = readEntries(question.file);
  const context = { now, witnessed, benchmarks: await benchmarksOf(entries, evidence.benchmark), proofs, asked };
  const reports = await verifyEntries(entries, question.repo, question.path, trust, at, context);
  return { reports, absent: trust.absent, definition: evidence.benchmark ? await digestOf(evidence.benchmark) : "" };
}

/**
 * The `eval.yaml` that the person vouches for counts as the definition of each benchmark and commit that the file names.
 * @param {import("../verify/entry.js").Entry[]} entries @param {Uint8Array | null} raw
 */
async function benchmarksOf(entries, raw) {
  if (!raw) return new Map();
  const benchmark = await inFile("eval.yaml", () => readBenchmark(raw));
  return new Map(entries.map(({ dataset }) => [benchmarkKey(dataset.id, dataset.revision ?? ""), benchmark]));
}

/** @param {unknown} error */
function faultOf(error) {
  if (!(error instanceof FormatError || error instanceof InFile)) return { code: "internal", message: String(error), place: "" };
  return { code: error.code, message: error.message, place: error.place };
}

onmessage = async (/** @type {MessageEvent<Task>} */ { data }) => {
  try {
    postMessage({ done: await (data.verb === "plan" ? plan(data.given) : judge(data.given)) });
  } catch (error) {
    postMessage({ fault: faultOf(error) });
  }
};
