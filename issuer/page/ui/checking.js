// A worker: the verifier apart from the page, so that what takes too long can be ended, and no file holds the page up.
// It reaches no network (its policy, and nothing here asks): what it needs is handed in.
import { FormatError, inspectToken, readBenchmark, readEntries, readTrustFile, resolve, sources, trustIssuer, verifyEntries } from "../verify/index.js";
import { benchmarkKey } from "../verify/check-entry.js";
import { proofUrl, sidecarName, unverifiedLeaf } from "../verify/log/ask.js";

/** @typedef {import("../verify/log/inclusion.js").AtHand} AtHand */
/** @typedef {import("../verify/report.js").Report} Report */
/** @typedef {import("../verify/trust.js").Absence} Absence */
/** @typedef {import("../verify/trust.js").TrustFile} TrustFile */
/**
 * Whom to trust: by a trust file, or one issuer by what it publishes.
 * @typedef {{issuer: string, audience: string, published: {archive: boolean, revocations: boolean}}} OneIssuer
 * @typedef {{bytes: Uint8Array} | OneIssuer} Whom
 */
/**
 * What to check: a file, which is `path` in the repository `repo`, or a token alone; received at `at`, which `witnessed`
 * says is by this person's own clock, or null. Times are Unix seconds.
 * @typedef {{file: Uint8Array, token: null} | {file: null, token: string}} Subject
 * @typedef {Subject & {repo: string, path: string, trust: Whom, now: number, at: number | null, witnessed: boolean}} Question
 */
/**
 * What the trust file names by this pointer: to be fetched, or a file that the person has.
 * @typedef {{pointer: string, url?: string, file?: string}} Need
 */
/**
 * A token's leaf in its issuer's log, what its proof is called beside the file, and where it is asked for, "" for nowhere.
 * @typedef {{leaf: string, name: string, url: string}} Leaf
 */
/** @typedef {{entries: number, tokens: number, audience: string, needs: Need[], leaves: Leaf[]}} Plan */
/**
 * What was fetched and given: by pointers of the trust file, and proofs and answers of logs by leaf.
 * @typedef {{found: Map<string, Uint8Array | null>, fetchedAt: Map<string, number>, proofs: Map<string, AtHand>,
 *   asked: Map<string, AtHand>, benchmark: Uint8Array | null}} Evidence
 */
/** @typedef {{reports: Report[], absent: Absence[]}} Judged */
/**
 * What the worker is sent, and what it answers to it.
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

/** What is wrong with another file than the one that is checked. */
class InFile extends Error {
  /** @param {string} file @param {FormatError} error */
  constructor(file, { message, code, place }) {
    super(message);
    this.code = code;
    this.place = [file, place].filter(Boolean).join(", ");
  }
}

/**
 * Have something read; what is wrong there is of this file.
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

/** Say what judging would need. @param {Verbs["plan"]["given"]} given @returns {Promise<Plan>} */
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
 * The leaves of tokens whose issuer has a log in the trust file, and where its proof may be asked for. What a token says is
 * not checked here: it decides which question is shown to the person, and nothing else.
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
    if (!(error instanceof FormatError)) throw error; // check 1 says what is wrong with such a token
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
    return { reports: [report], absent: trust.absent };
  }
  const entries = readEntries(question.file);
  const context = { now, witnessed, benchmarks: await benchmarksOf(entries, evidence.benchmark), proofs, asked };
  const reports = await verifyEntries(entries, question.repo, question.path, trust, at, context);
  return { reports, absent: trust.absent };
}

/**
 * The `eval.yaml` that lies beside a file is taken for that of each benchmark and commit which the file names.
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
