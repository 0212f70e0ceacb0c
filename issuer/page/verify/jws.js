/** Compact JWS (RFC 7515 7.1), split into its parts. Trust no part before its signature has been verified. */

import { decodeBase64url, utf8 } from "./bytes.js";
import { FormatError } from "./errors.js";
import { isObject, readJson } from "./json.js";

/** @typedef {import("./json.js").JsonObject} JsonObject */
/** @typedef {{header: JsonObject, payload: Uint8Array, signature: Uint8Array, signingInput: Uint8Array}} Jws */

/** RFC 9864 renames `EdDSA` to `Ed25519`. Both names are accepted, for Ed25519 keys only. */
export const EDDSA_NAMES = new Set(["EdDSA", "Ed25519"]);
export const TOKEN_TYPE = "eval-verify+jwt";
export const MAX_TOKEN_BYTES = 16 * 1024;
const MAX_HEADER_BYTES = 4 * 1024;

/**
 * Split a compact JWS. Checks size, alphabet, canonical base64url, and a header object without duplicates.
 *
 * Throws FormatError (`jws.malformed`). The caller must still judge every header member, the payload and the signature.
 * @param {string} token
 * @param {number} [maxBytes]
 * @returns {Jws}
 */
export function parseCompact(token, maxBytes = MAX_TOKEN_BYTES) {
  if (token.length > maxBytes) throw malformed(`longer than ${maxBytes} bytes`);
  const segments = token.split(".");
  if (segments.length !== 3) throw malformed(`${segments.length} segments; a signed JWT has 3`);
  const [head, body, signature] = /** @type {[string, string, string]} */ (segments);
  if (head.length > MAX_HEADER_BYTES) throw malformed(`a header longer than ${MAX_HEADER_BYTES} bytes`);
  return {
    header: readHeader(decodeSegment(head)),
    payload: decodeSegment(body),
    signature: decodeSegment(signature),
    signingInput: utf8(`${head}.${body}`),
  };
}

/** @param {Uint8Array} raw */
function readHeader(raw) {
  let header;
  try {
    header = readJson(raw, { maxBytes: MAX_HEADER_BYTES, maxDepth: 8 });
  } catch (error) {
    throw error instanceof FormatError ? malformed(error.message, error.pointer) : error;
  }
  if (!isObject(header)) throw malformed("a header that is not a JSON object");
  return header;
}

/**
 * Decode unpadded base64url in its canonical spelling. Throws FormatError.
 * @param {string} segment
 */
export function decodeSegment(segment) {
  const raw = segment ? decodeBase64url(segment) : null;
  if (raw) return raw;
  throw malformed(
    !isBase64url(segment) || segment.length % 4 === 1
      ? "a segment is not base64url, or has an impossible length"
      : "a segment is empty, or is not the canonical base64url of its bytes",
  );
}

/** @param {string} segment */
const isBase64url = (segment) => /^[A-Za-z0-9_-]*$/.test(segment);

/**
 * @param {string} detail
 * @param {string} [pointer]
 */
const malformed = (detail, pointer = "") => new FormatError("jws.malformed", detail, { pointer });
