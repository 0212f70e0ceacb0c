// A worker: the verifier apart from the page, so that what takes too long can be ended, and no file holds the page up.
// It reaches no network (its policy, and nothing here asks): what it needs is handed in.
import { FormatError, inspectToken, readBenchmark, readEntries, readTrustFile, resolve, sources, trustIssuer, verifyEntries } from "../verify/index.js";
import { parseCompact } from "../verify/jws.js";
import { readJson } from "../verify/json.js";
import { proofUrl, sidecarName } from "../verify/log/ask.js";
import { leafText } from "../verify/log/leaf.js";

const MOST_QUESTIONS = 100;
const MOST_TOKEN = 16 * 1024;

/** @param {any} asked */
const trustOf = (asked) =>
  asked.bytes ? readTrustFile(asked.bytes) : trustIssuer(asked.issuer, asked.audience, asked.published);

/** What is to be checked: the entries of a file, or a token. @param {any} asked */
const entriesOf = ({ file }) => (file ? readEntries(file) : []);

/** Say what judging would need. @param {any} asked */
async function plan(asked) {
  const entries = entriesOf(asked);
  const trust = await trustOf(asked.trust);
  const tokens = file(asked) ? entries.map((entry) => entry.token) : [asked.token];
  const leaves = await leavesOf(tokens, trust, asked.path);
  return {
    entries: entries.length,
    tokens: tokens.filter(Boolean).length,
    audience: trust.audience,
    issuers: trust.issuers.map((/** @type {any} */ one) => one.issuer),
    required: trust.require ?? [],
    needs: [...sources(trust)].map(([pointer, { url, file }]) => ({ pointer, url, file })).filter(({ url, file }) => url || file),
    leaves,
  };
}

/** @param {any} asked */
const file = (asked) => Boolean(asked.file);

/**
 * The leaves of tokens whose issuer has a log in the trust file, and where its proof may be asked for. What a token says is
 * not checked here: it decides which question is shown to the person, and nothing else.
 * @param {(string | null)[]} tokens @param {any} trust @param {string} path
 */
async function leavesOf(tokens, trust, path) {
  const found = [];
  for (const token of tokens) {
    if (!token || found.length === MOST_QUESTIONS) continue;
    try {
      const { header, payload, signingInput } = /** @type {any} */ (parseCompact(token));
      const claims = /** @type {any} */ (readJson(payload, { maxBytes: MOST_TOKEN, maxDepth: 16 }));
      const entry = trust.issuers.find((/** @type {any} */ one) => one.issuer === claims.iss);
      if (!entry?.log) continue;
      const head = header instanceof Uint8Array ? /** @type {any} */ (readJson(header, { maxBytes: MOST_TOKEN, maxDepth: 4 })) : header;
      const leaf = await leafText(claims, String(head.kid), signingInput);
      found.push({ leaf, url: entry.log.url ? proofUrl(entry.log.url, leaf) : "", name: sidecarName(path.split("/").pop() ?? "", leaf) });
    } catch (error) {
      if (!(error instanceof FormatError)) throw error; // check 1 says what is wrong with such a token
    }
  }
  return found;
}

/** Judge. @param {any} asked */
async function judge(asked) {
  const entries = entriesOf(asked);
  const trust = await resolve(await trustOf(asked.trust), asked.found, asked.fetchedAt);
  const { now, at, witnessed, proofs, asked: answers } = asked;
  const benchmarks = new Map();
  if (asked.benchmark) {
    const benchmark = readBenchmark(asked.benchmark);
    for (const { dataset } of entries) benchmarks.set(`${dataset.id}@${dataset.revision}`, benchmark);
  }
  const context = { now, witnessed, benchmarks, proofs, asked: answers };
  const reports = file(asked)
    ? await verifyEntries(entries, asked.repo, asked.path, trust, at, context)
    : [await inspectToken(asked.token, trust, at, context)];
  return { reports, absent: trust.absent };
}

/** @type {Record<string, (asked: any) => Promise<any>>} */
const VERBS = { plan, judge };

onmessage = async ({ data }) => {
  try {
    postMessage({ done: await VERBS[data.verb](data) });
  } catch (error) {
    if (!(error instanceof FormatError)) return postMessage({ fault: { code: "internal", message: String(error), place: "" } });
    postMessage({ fault: { code: error.code, message: error.message, place: error.place } });
  }
};
