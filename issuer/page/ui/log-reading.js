// A log as the page reads it: its files, what a checkpoint is worth under a policy, and whether two are of one tree.
import { equal } from "../verify/bytes.js";
import { FormatError } from "../verify/errors.js";
import { verifyConsistency } from "../verify/log/merkle.js";
import { consistencyProof } from "../verify/log/prove.js";
import { checkNote } from "../verify/log/quorum.js";
import { fetchDocument } from "./fetching.js";

export const MOST_INFO = 512 * 1024;
const MOST_TILE = 256 * 65_537;
export const LOG = new URL("../log/", document.baseURI);

/** @typedef {import("../verify/log/checkpoint.js").Checkpoint} Checkpoint */
/** @typedef {import("../verify/log/quorum.js").WitnessPolicy} WitnessPolicy */
/** What was found good at a look. @typedef {{policy: WitnessPolicy, checkpoint: Checkpoint, node: import("../verify/log/tiles.js").Node}} Good */

/** Read a file of the log, or throw what a person is to be told. @param {string} path @param {number} most bytes */
export async function read(path, most = MOST_TILE) {
  const { bytes, status, fault, code: refused } = await fetchDocument(new URL(path, LOG).href, most);
  if (refused === "log.no_leaf") throw new FormatError("log.no_leaf", "the log was asked, and has no such entry. One that is seconds old may need a moment");
  if (status === 404) throw new FormatError("log.unavailable", `${new URL(path, LOG).pathname} is not there: this issuer may keep no log`);
  if (bytes === null) throw new FormatError("log.unavailable", `${new URL(path, LOG).pathname}: ${fault}`);
  return bytes;
}

export const now = () => Math.floor(Date.now() / 1000);
/** @param {bigint | number} count */
export const counted = (count) => count.toLocaleString("en");

/** Say by whom a checkpoint is signed; too few witnesses are said, and anything else is thrown. @param {WitnessPolicy} policy @param {import("../verify/log/note.js").Note} signed */
export async function judged(policy, signed) {
  try {
    const { time } = await checkNote(policy, signed, now());
    return { quorum: policy.quorum === "none" ? "No witness is asked for, so nothing here proves a time or that others are shown the same log" : "", time };
  } catch (error) {
    if (!(error instanceof FormatError) || error.code !== "log.quorum") throw error;
    return { quorum: error.message, time: null };
  }
}

/** @param {Checkpoint} earlier @param {{checkpoint: Checkpoint, node: Good["node"]}} later */
export async function isBeginning(earlier, { checkpoint, node }) {
  if (earlier.size === checkpoint.size) return equal(earlier.root, checkpoint.root);
  if (earlier.size === 0n) return true;
  const proof = await consistencyProof(earlier.size, checkpoint.size, node);
  return verifyConsistency(earlier.size, checkpoint.size, earlier.root, checkpoint.root, proof);
}
