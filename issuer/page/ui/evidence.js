// The documents that are fetched to judge a result, one after the other, in the form for the verifier.
import { fetchDocument } from "./fetching.js";
import { MOST_PROOF } from "./given.js";

/** @typedef {import("./checking.js").Evidence} Evidence */
/** @typedef {import("./checking.js").Plan} Plan */
/** @typedef {import("./checking.js").Question} Question */
/** A document to fetch: the one that the trust file names at `pointer`, or the proof of `leaf`. The other one is "".
 * @typedef {{url: string, pointer: string, leaf: string}} Wanted */
/** @typedef {Wanted & Awaited<ReturnType<typeof fetchDocument>>} Got */

const MOST = 1024 * 1024;
/** The documents of a trust file by the end of their pointer: the largest size in bytes, and a name. @type {Map<string, [number, string]>} */
const KINDS = new Map([
  ["keys", [256 * 1024, "the keys that sign its tokens"]],
  ["archive", [MOST, "every key that ever signed, for older tokens"]],
  ["revocations", [4 * MOST, "its revoked tokens"]],
  ["policy", [MOST, "the witnesses of its log"]],
  ["receipt_keys", [256 * 1024, "the keys of your receipts"]],
  ["revocation_keys", [256 * 1024, "the keys that sign lists of revoked tokens"]],
]);
const NOT_FOUND = new Set([404, 410]);

/** @param {string} pointer @returns {[number, string]} */
const kindOf = (pointer) => KINDS.get(pointer.split("/").pop() ?? "") ?? [MOST, "named by your trust file"];

/** Return the name of a document. @param {{pointer: string, leaf?: string}} named */
export const whatIs = ({ pointer, leaf }) =>
  leaf ? "whether the token is in its log; the URL has the token's digest and time" : kindOf(pointer)[1];

/** @param {Plan} plan @returns {Wanted[]} */
export const wantedBy = ({ needs, leaves }) => [
  ...needs.flatMap(({ pointer, url }) => (url ? [{ url, pointer, leaf: "" }] : [])),
  ...leaves.flatMap(({ leaf, url }) => (url ? [{ url, pointer: "", leaf }] : [])),
];

/**
 * Fetch the documents one by one, so a log never gets a hundred requests at once. After `signal`, throw its reason.
 * @param {Wanted[]} wanted @param {(done: number) => void} tell @param {AbortSignal} signal
 */
export async function gather(wanted, tell, signal) {
  /** @type {Got[]} */
  const got = [];
  for (const each of wanted) {
    tell(got.length);
    got.push({ ...each, ...(await fetchDocument(each.url, each.leaf ? MOST_PROOF : kindOf(each.pointer)[0], signal)) });
    signal.throwIfAborted();
  }
  return got;
}

/** Return whether a single issuer does not publish an optional document, which is not a fault. @param {Question} question @param {Got} one */
export const isLeftOut = ({ trust }, { status, pointer }) =>
  !("bytes" in trust) && NOT_FOUND.has(status) && /archive|revocation/.test(pointer);

/** Return the question without the documents that the issuer does not publish. @param {Question} question @param {Got[]} got @returns {Question} */
export function settled(question, got) {
  if ("bytes" in question.trust) return question;
  const lacks = (/** @type {string} */ name) => got.some((one) => one.pointer.endsWith(name) && isLeftOut(question, one));
  const published = { archive: !lacks("/archive"), revocations: !lacks("/revocations") };
  return { ...question, trust: { ...question.trust, published } };
}

/**
 * Return the fetched documents and the person's documents: `supplied` for the trust file, `beside` for the result file.
 * @param {Plan} plan @param {Got[]} got @param {[string, Uint8Array | null][]} supplied
 * @param {import("./given.js").Beside} beside
 * @returns {Evidence}
 */
export function evidence({ leaves }, got, supplied, { benchmark, proofs }) {
  const documents = got.filter(({ pointer }) => pointer);
  return {
    found: new Map([...documents.map(({ pointer, bytes }) => /** @type {const} */ ([pointer, bytes])), ...supplied]),
    fetchedAt: new Map(documents.filter(({ bytes }) => bytes).map(({ pointer, at }) => [pointer, at])),
    proofs: new Map(leaves.filter(({ name }) => proofs.has(name)).map(({ leaf, name }) => [leaf, { proof: proofs.get(name) }])),
    asked: new Map(got.filter(({ leaf }) => leaf).map((one) => [one.leaf, answerOf(one)])),
    benchmark,
  };
}

/** Return a log's answer. Only its own problem document means that there is no leaf: any server may answer 404. @param {Got} got */
function answerOf({ bytes, fault, code }) {
  if (bytes) return { proof: bytes };
  return code === "log.no_leaf" ? { denied: true } : { fault };
}
