// The reader of a log for its page: files, a checkpoint's signatures under a policy, and consistency of two checkpoints.
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
/** A good checkpoint with its policy. @typedef {{policy: WitnessPolicy, checkpoint: Checkpoint, node: import("../verify/log/tiles.js").Node}} Good */

/** Read a file of the log. Throws Fault with a message for the person. @param {string} path @param {number} most bytes */
export async function read(path, most = MOST_TILE) {
  const { bytes, status, fault, code: refused } = await fetchDocument(new URL(path, LOG).href, most);
  if (refused === "log.no_leaf") throw new FormatError("log.no_leaf", "the log answers that it has no such entry. An entry may take a few seconds to appear");
  if (status === 404) throw new FormatError("log.unavailable", `${new URL(path, LOG).pathname} is not there: this issuer may keep no log`);
  if (bytes === null) throw new FormatError("log.unavailable", `${new URL(path, LOG).pathname}: ${fault}`);
  return bytes;
}

export const now = () => Math.floor(Date.now() / 1000);
/** @param {bigint | number} count */
export const counted = (count) => count.toLocaleString("en");

/** Return the signers of a checkpoint. Too few witnesses are reported in the result; other faults are thrown. @param {WitnessPolicy} policy @param {import("../verify/log/note.js").Note} signed */
export async function judged(policy, signed) {
  try {
    const { time } = await checkNote(policy, signed, now());
    return { quorum: policy.quorum === "none" ? "The policy requires no witness, so nothing here proves a time, or that others see the same log" : "", time };
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
