/**
 * The tree as static files (c2sp.org/tlog-tiles): paths and contents of tiles and entry bundles, and the tree's nodes
 * from them.
 *
 * A tile of level L has up to 256 hashes of subtrees of 256^L leaves; an entry bundle has the leaves under a tile of
 * level 0. Tiles are not verified here, so a proof built from them must be checked against a root.
 */

import { malformed } from "./checkpoint.js";
import { HASH_BYTES, nodeHash } from "./merkle.js";

export const WIDTH = 256;
const HEIGHT = 8;

/**
 * Maps (level, index) to the hash of the index-th complete subtree of 2^level leaves, from the left and from 0. It is
 * called only for subtrees that the tree has.
 * @typedef {(level: number, index: bigint) => Promise<Uint8Array>} Node
 */

/**
 * Return the path of a tile or an entry bundle under the log's prefix, such as `tile/0/x001/x234/067.p/8`.
 * @param {number | "entries"} level
 * @param {bigint} index
 * @param {number} [width]
 */
export function tilePath(level, index, width = WIDTH) {
  const digits = String(index);
  const groups = digits.padStart(Math.ceil(digits.length / 3) * 3, "0").match(/.{3}/g) ?? [];
  const place = groups.map((group, at) => (at < groups.length - 1 ? `x${group}` : group)).join("/");
  return `tile/${level}/${place}${width === WIDTH ? "" : `.p/${width}`}`;
}

/**
 * Return how many items the tile has in a tree of `size` leaves.
 * @param {number | "entries"} level
 * @param {bigint} index
 * @param {bigint} size
 */
export function tileWidth(level, index, size) {
  const items = size >> BigInt(level === "entries" ? 0 : HEIGHT * level);
  const left = items - index * BigInt(WIDTH);
  return left >= WIDTH ? WIDTH : Math.max(0, Number(left));
}

/**
 * Read an entry bundle: 1 to 256 leaves. The caller must check how many. Throws FormatError(`log.malformed`).
 * @param {Uint8Array} raw
 */
export function readEntries(raw) {
  const entries = [];
  for (let at = 0; at < raw.length; ) {
    const begin = at + 2;
    at = begin + ((raw[at] ?? 0) << 8) + (raw[at + 1] ?? 0);
    if (at > raw.length) throw malformed(`an entry bundle ends within its leaf ${entries.length}`);
    entries.push(raw.subarray(begin, at));
  }
  if (!entries.length || entries.length > WIDTH)
    throw malformed(`an entry bundle of ${entries.length} leaves: it must have 1 to ${WIDTH}`);
  return entries;
}

/**
 * Return the nodes of the tree of `size` leaves, read from its tiles, each at most once.
 *
 * `read` gets the path of the widest tile that this size has. A node throws the errors of `read`, and FormatError
 * (`log.malformed`) if a tile has another width.
 * @param {(path: string) => Promise<Uint8Array>} read
 * @param {bigint} size
 * @returns {Node}
 */
export function nodeOfTiles(read, size) {
  /** @type {Map<string, Promise<Uint8Array[][]>>} */
  const kept = new Map();
  return async (level, index) => {
    const [tileLevel, height] = [Math.floor(level / HEIGHT), level % HEIGHT];
    const perTile = BigInt(WIDTH >> height);
    const tile = index / perTile;
    const width = tileWidth(tileLevel, tile, size);
    const path = tilePath(tileLevel, tile, width);
    const rows = kept.get(path) ?? readRows(read, path, width);
    kept.set(path, rows);
    return (await rows)[height][Number(index % perTile)];
  };
}

/**
 * Return the hashes of a tile, then those above them, row by row: 8 rows, without the root of a full tile.
 * @param {(path: string) => Promise<Uint8Array>} read
 * @param {string} path
 * @param {number} width
 */
async function readRows(read, path, width) {
  const raw = await read(path);
  if (raw.length !== width * HASH_BYTES)
    throw malformed(`${path} has ${raw.length} bytes: it must have ${width} hashes`);
  let row = Array.from({ length: width }, (_, at) => raw.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES));
  const rows = [];
  for (let height = 0; height < HEIGHT; height++) {
    rows.push(row);
    const lower = row;
    const pairs = Array.from({ length: lower.length >> 1 }, (_, at) => nodeHash(lower[2 * at], lower[2 * at + 1]));
    row = await Promise.all(pairs);
  }
  return rows;
}
