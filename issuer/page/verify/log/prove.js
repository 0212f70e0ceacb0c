/**
 * Inclusion and consistency proofs (RFC 6962 2.1.1 and 2.1.2), built from the nodes of a tree in O(log n).
 *
 * A proof built from a stranger's tiles shows nothing until `merkle.js` has checked it against the roots.
 */

import { nodeHash } from "./merkle.js";

/** @typedef {import("./tiles.js").Node} Node */

/**
 * Build the proof of the leaf at `index` in the tree of `size` leaves, 0 <= index < size.
 * @param {bigint} index
 * @param {bigint} size
 * @param {Node} node
 */
export const inclusionProof = (index, size, node) => siblings(0, index, size, node);

/**
 * Build the proof that the tree of `size1` leaves is a prefix of the tree of `size2` leaves, 0 < size1 <= size2.
 * @param {bigint} size1
 * @param {bigint} size2
 * @param {Node} node
 */
export async function consistencyProof(size1, size2, node) {
  if (size1 === size2) return [];
  // The path starts at the smallest peak of the first tree, which is below both roots. If that is the whole first tree,
  // the verifier has its hash already, so the proof omits it.
  const level = trailingZeros(size1);
  const index = (size1 - 1n) >> BigInt(level);
  return [...(index ? [await node(level, index)] : []), ...(await siblings(level, index, size2, node))];
}

/**
 * Return the siblings on the path from a complete subtree up to the root, lowest first.
 * @param {number} from
 * @param {bigint} start
 * @param {bigint} size
 * @param {Node} node
 */
async function siblings(from, start, size, node) {
  const found = [];
  for (let [level, index] = [from, start]; (size - 1n) >> BigInt(level); level++, index >>= 1n) {
    const beside = await sibling(level, index, size, node);
    if (beside) found.push(beside);
  }
  return found;
}

/**
 * Return the hash beside a subtree of 2^level leaves, or of its existing part. null: it has no sibling, so the
 * subtree's hash moves up unchanged.
 * @param {number} level
 * @param {bigint} index
 * @param {bigint} size
 * @param {Node} node
 */
async function sibling(level, index, size, node) {
  if (index & 1n) return node(level, index - 1n);
  const begin = (index + 1n) << BigInt(level);
  const end = begin + (1n << BigInt(level));
  return begin < size ? folded(begin, end < size ? end : size, node) : null;
}

/**
 * Hash the largest complete subtrees of the leaves from `begin` to `end`, from right to left, into their common parent.
 * `begin` is a multiple of a power of two that is not smaller than their number.
 * @param {bigint} begin
 * @param {bigint} end
 * @param {Node} node
 */
async function folded(begin, end, node) {
  /** @type {Uint8Array | null} */
  let head = null;
  for (let rest = end; begin < rest; ) {
    const level = trailingZeros(rest - begin);
    const peak = await node(level, (rest - 1n) >> BigInt(level));
    head = head ? await nodeHash(peak, head) : peak;
    rest -= 1n << BigInt(level);
  }
  return head;
}

/** @param {bigint} value  not 0 */
function trailingZeros(value) {
  let zeros = 0;
  for (let rest = value; !(rest & 1n); rest >>= 1n) zeros++;
  return zeros;
}
