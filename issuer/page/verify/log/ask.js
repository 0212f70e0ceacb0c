/** The file name and the URL of a leaf's proof. This file fetches nothing. */

import { decodeBase64, hex, utf8 } from "../bytes.js";
import { readJson } from "../json.js";
import { MAX_TOKEN_BYTES, parseCompact } from "../jws.js";
import { integer, object, optional, text } from "../shape.js";
import { leafText, readLines } from "./leaf.js";

const named = object({ iss: text(), sub: text(), iat: integer(), exp: integer(), policy: text(), log: optional(text()) });

/**
 * Return the leaf of a token, and the token's claims for it, all unverified. Throws FormatError if it is not a token or
 * has no leaf.
 * @param {string} token
 */
export async function unverifiedLeaf(token) {
  const { header, payload, signingInput } = parseCompact(token);
  const said = readJson(payload, { maxBytes: MAX_TOKEN_BYTES, maxDepth: 16 });
  named(said);
  const claims = /** @type {import("../json.js").JsonObject & import("./leaf.js").LeafClaims & {log?: string}} */ (said);
  return { leaf: await leafText(claims, String(header.kid), signingInput), claims };
}

/** @param {string} leaf  the text of a token's leaf */
const tokenHex = (leaf) => hex(decodeBase64(readLines(utf8(leaf)).get("token") ?? "") ?? new Uint8Array());

/**
 * Return the name of a token's proof beside its result file.
 * @param {string} file
 * @param {string} leaf
 */
export const sidecarName = (file, leaf) => `${file}.${tokenHex(leaf).slice(0, 16)}.tlog-proof`;

/**
 * Return the URL of the proof of a leaf, for a log whose files are at `url`.
 * @param {string} url
 * @param {string} leaf
 */
export function proofUrl(url, leaf) {
  const iat = readLines(utf8(leaf)).get("iat");
  return `${url.replace(/\/$/, "")}/proof?iat=${iat}&token=${tokenHex(leaf)}`;
}
