/**
 * The keys with which an issuer signs or once signed, and their times (contract section 6, `jwks-archive.json`).
 *
 * Files outlive tokens and key sets. An archive is a JWK set whose members also have `active_from`, `last_token_exp`
 * (absent while the key still signs) and `revoked_from`, in Unix seconds.
 */

import { FormatError } from "./errors.js";
import { isObject, readJson } from "./json.js";
import { parseKey } from "./keys.js";
import { integer, object, optional } from "./shape.js";
import { MAX_UNIX_S } from "./times.js";

/** @typedef {import("./keys.js").Key} Key */
/**
 * A key with its window. null: it has no end yet, or is not revoked.
 * @typedef {{key: Key, activeFrom: number, lastTokenExp: number | null, revokedFrom: number | null}} ArchivedKey
 */
/** By kid. @typedef {Map<string, ArchivedKey>} Archive */

const MAX_BYTES = 1024 * 1024;
const MAX_ARCHIVED = 1024;
const time = integer({ min: 0, max: MAX_UNIX_S });
const window = object({ active_from: time, last_token_exp: optional(time), revoked_from: optional(time) });

/**
 * Read an archive of at most 1 MiB and 1024 keys.
 *
 * Throws FormatError if it is malformed, repeats a kid, or has a key that must not verify or that has no valid window.
 * Bad keys are not skipped, because a skipped key could be a revoked one.
 * @param {Uint8Array} raw
 * @returns {Archive}
 */
export function parseArchive(raw) {
  const value = readJson(raw, { maxBytes: MAX_BYTES, maxDepth: 8 });
  const members = isObject(value) ? value.keys : undefined;
  if (!Array.isArray(members) || members.length > MAX_ARCHIVED)
    throw new FormatError("file.schema", `not a JWK set with a list \`keys\` of at most ${MAX_ARCHIVED}`);
  /** @type {Archive} */
  const found = new Map();
  members.forEach((member, index) => {
    const archived = readMember(member, `/keys/${index}`);
    if (found.has(archived.key.kid))
      throw new FormatError("file.rule", "this kid occurs twice", { pointer: `/keys/${index}/kid` });
    found.set(archived.key.kid, archived);
  });
  return found;
}

/**
 * @param {import("./json.js").Json} member
 * @param {string} pointer
 * @returns {ArchivedKey}
 */
function readMember(member, pointer) {
  try {
    window(member);
  } catch (error) {
    throw error instanceof FormatError ? error.within(pointer) : error;
  }
  const said = /** @type {Record<string, number | undefined>} */ (member);
  const key = parseKey(member);
  if (!key) throw new FormatError("file.rule", "this key must not verify anything", { pointer });
  const activeFrom = said.active_from ?? 0;
  const lastTokenExp = said.last_token_exp ?? null;
  if (lastTokenExp !== null && lastTokenExp < activeFrom)
    throw new FormatError("file.rule", "ends before it begins", { pointer: `${pointer}/last_token_exp` });
  return { key, activeFrom, lastTokenExp, revokedFrom: said.revoked_from ?? null };
}

/**
 * Say whether a moment is in the key's window; `leeway` (seconds) is how far the issuer's clock may run ahead.
 * @param {ArchivedKey} archived
 * @param {number} moment
 */
export const covers = ({ activeFrom, lastTokenExp }, moment, leeway = 0) =>
  activeFrom - leeway <= moment && (lastTokenExp === null || moment <= lastTokenExp);
