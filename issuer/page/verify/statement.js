/**
 * Signed statements other than tokens: receipts and revocation lists (contract section 6).
 *
 * Both are compact JWS. Each kind has its own `typ`, and keys that never sign tokens. This file knows the form and the
 * signature; `receipt.js` and `revocation.js` read the payload.
 */

import { FormatError } from "./errors.js";
import { readJson } from "./json.js";
import { EDDSA_NAMES, parseCompact } from "./jws.js";
import { keyVerifies } from "./keys.js";

/**
 * Return the payload of a statement that one of the keys has signed, and the kid of that key.
 *
 * The header has exactly `alg` (EdDSA or Ed25519), `kid` and `typ`. Throws FormatError otherwise. The caller must still
 * judge every member of the payload.
 * @param {string} text
 * @param {string} typ
 * @param {import("./keys.js").KeySet} keys
 * @param {number} maxBytes
 */
export async function readStatement(text, typ, { keys }, maxBytes) {
  const { header, payload, signature, signingInput } = parseCompact(text, maxBytes);
  const { alg, kid, typ: named } = header;
  if (Object.keys(header).sort().join() !== "alg,kid,typ" || named !== typ)
    throw refused(`its header is not alg, kid and the typ ${typ}`);
  if (typeof alg !== "string" || !EDDSA_NAMES.has(alg)) throw refused("its algorithm is not EdDSA (Ed25519)");
  const key = typeof kid === "string" ? keys.get(kid) : undefined;
  if (!key) throw refused("its kid is not the kid of a listed key that never signs tokens");
  if (!(await keyVerifies(key, alg, signingInput, signature))) throw refused("its signature does not verify");
  return { payload: readJson(payload, { maxBytes, maxDepth: 8 }), kid: key.kid };
}

/**
 * Remove line breaks at the start and end of a statement's file.
 * @param {string} text
 */
export function withoutLineBreaks(text) {
  let [start, end] = [0, text.length];
  while (start < end && isLineBreak(text[start])) start++;
  while (start < end && isLineBreak(text[end - 1])) end--;
  return text.slice(start, end);
}

/** @param {string} sign */
const isLineBreak = (sign) => sign === "\r" || sign === "\n";

/** @param {string} detail */
const refused = (detail) => new FormatError("file.rule", detail);
