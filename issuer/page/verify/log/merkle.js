/**
 * Merkle trees of RFC 6962 section 2.1: hashing, and inclusion and consistency proofs.
 *
 * The algorithms are those of RFC 9162 (2.1.3.2 and 2.1.4.2), step by step. Hashes are 32 raw bytes, sizes and indexes
 * are bigint. The content of leaves and the signatures of roots are not checked here.
 */

import { concat, equal, sha256 } from "../bytes.js";

export const HASH_BYTES = 32;
const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

/**
 * Hash one leaf. The prefix distinguishes leaves from nodes, which prevents a second preimage.
 * @param {Uint8Array} data
 */
export const leafHash = (data) => sha256(concat(LEAF, data));

/**
 * Hash two subtrees into their parent.
 * @param {Uint8Array} left
 * @param {Uint8Array} right
 */
export const nodeHash = (left, right) => sha256(concat(NODE, left, right));

/**
 * Hash these leaf hashes, in order, into the root of their tree, level by level: O(n) hashes.
 * @param {Uint8Array[]} leaves
 */
export async function root(leaves) {
  if (!leaves.length) return sha256(new Uint8Array());
  let level = leaves;
  while (level.length > 1) {
    /** @type {Promise<Uint8Array>[]} */
    const above = [];
    for (let at = 0; at + 1 < level.length; at += 2) above.push(nodeHash(level[at], level[at + 1]));
    const odd = level.length & 1 ? [level[level.length - 1]] : []; // moves up unchanged
    level = [...(await Promise.all(above)), ...odd];
  }
  return level[0];
}

/**
 * A step from a leaf to the root: the proof's `sibling` is on this `side`, and both together hash to `hash`.
 * @typedef {{side: "left" | "right", sibling: Uint8Array, hash: Uint8Array}} Step
 */

/**
 * Climb from the leaf hash at `index` (from 0) of a tree of `size` leaves, one step for each hash of the proof.
 *
 * The last step's hash (without steps, the leaf's own) is the root that the proof leads to; the caller compares it with
 * the log's. Null if a tree of this size has no such leaf, or needs another number of steps.
 * @param {bigint} index
 * @param {bigint} size
 * @param {Uint8Array} leaf
 * @param {Uint8Array[]} proof
 * @returns {Promise<Step[] | null>}
 */
export async function climb(index, size, leaf, proof) {
  // (1) the index is in the tree
  if (index < 0n || index >= size || !areHashes(leaf, ...proof)) return null;
  // (2), (3)
  let [first, last, hash] = [index, size - 1n, leaf];
  /** @type {Step[]} */
  const steps = [];
  // (4) with the proof's hash on the side where the sibling is
  for (const sibling of proof) {
    if (last === 0n) return null;
    const isRight = Boolean(first & 1n) || first === last;
    hash = await (isRight ? nodeHash(sibling, hash) : nodeHash(hash, sibling));
    steps.push({ side: isRight ? "left" : "right", sibling, hash });
    [first, last] = above(first, last, isRight);
  }
  return last === 0n ? steps : null;
}

/**
 * Say whether the proof shows the leaf hash at `index` (from 0) of the tree of `size` leaves under `head`.
 * @param {bigint} index
 * @param {bigint} size
 * @param {Uint8Array} leaf
 * @param {Uint8Array[]} proof
 * @param {Uint8Array} head
 */
export async function verifyInclusion(index, size, leaf, proof, head) {
  const steps = await climb(index, size, leaf, proof);
  return steps !== null && equal(steps.at(-1)?.hash ?? leaf, head); // (5)
}

/**
 * Say whether the proof shows that the tree of `size1` leaves is a prefix of the tree of `size2` leaves.
 *
 * A tree is a prefix of itself by the empty proof. For the empty tree the result is false, because a proof cannot show
 * anything about it (RFC 9162 2.1.4).
 * @param {bigint} size1
 * @param {bigint} size2
 * @param {Uint8Array} head1
 * @param {Uint8Array} head2
 * @param {Uint8Array[]} proof
 */
export async function verifyConsistency(size1, size2, head1, head2, proof) {
  if (size1 <= 0n || size1 > size2) return false;
  if (size1 === size2) return !proof.length && equal(head1, head2);
  // (1) two different sizes need a proof
  if (!proof.length || !areHashes(head1, head2, ...proof)) return false;
  // (2) a complete first tree is a subtree of the second, so the proof omits it
  const path = (size1 & (size1 - 1n)) === 0n ? [head1, ...proof] : proof;
  // (3), (4)
  let [first, last] = [size1 - 1n, size2 - 1n];
  while (first & 1n) [first, last] = [first >> 1n, last >> 1n];
  // (5)
  let [hash1, hash2] = [path[0], path[0]];
  // (6)
  for (const sibling of path.slice(1)) {
    if (last === 0n) return false;
    const isRight = Boolean(first & 1n) || first === last;
    if (isRight) hash1 = await nodeHash(sibling, hash1);
    hash2 = await (isRight ? nodeHash(sibling, hash2) : nodeHash(hash2, sibling));
    [first, last] = above(first, last, isRight);
  }
  // (7)
  return last === 0n && equal(hash1, head1) && equal(hash2, head2);
}

/**
 * Go up a level; from a node on the right edge, up to the first right child, because the nodes before have no sibling.
 * @param {bigint} first
 * @param {bigint} last
 * @param {boolean} isRight
 */
function above(first, last, isRight) {
  while (isRight && !(first & 1n) && first) [first, last] = [first >> 1n, last >> 1n];
  return [first >> 1n, last >> 1n];
}

/** @param {...Uint8Array} values */
const areHashes = (...values) => values.every((value) => value.length === HASH_BYTES);
