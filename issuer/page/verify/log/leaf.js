/**
 * The leaf of a token in the transparency log: lines of text that the log has before the token is signed.
 *
 * A leaf is ASCII with one spelling, so a verifier rebuilds it from the token alone, and a proof for another leaf
 * cannot pass. It names the signer and the times, but never model, metrics, command or caller.
 */

import { concat, decodeUtf8, encodeBase64, sha256, utf8 } from "../bytes.js";
import { MAX_UNIX_S } from "../times.js";
import { malformed } from "./checkpoint.js";

const MAX_LEAF_BYTES = 4096;
const FIRST_LINE = "eval-token-issuer/token/v1";
const DIGEST_OF = "eval-token-issuer/token-digest/v1\n";

const TEXT = { words: "ASCII without spaces", grammar: /^[!-~]+$/ };
const TIME = { words: "Unix seconds, in decimal without leading zeros", grammar: /^(?:0|[1-9][0-9]{0,9})$/ };
// 43 characters carry two bits more than 32 bytes; these bits are zero.
const KEY = { words: "the canonical base64url of 32 bytes", grammar: /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/ };
const SHA256 = { words: "a sha256: digest", grammar: /^sha256:[0-9a-f]{64}$/ };

/**
 * The claims of a token that its leaf contains; times are Unix seconds.
 * @typedef {{iss: string, sub: string, iat: number, exp: number, policy: string}} LeafClaims
 */

/**
 * Return the digest by which a leaf names its token: 32 bytes over the JWS signing input, which exists before the
 * signature.
 * @param {Uint8Array} signingInput
 */
export const logDigest = (signingInput) => sha256(concat(utf8(DIGEST_OF), signingInput));

/**
 * Return the leaf of the token with these claims, by the key `kid`. The log hashes its UTF-8 bytes.
 *
 * Throws FormatError(`log.malformed`) if a value does not fit its line: such a token has no leaf.
 * @param {LeafClaims} claims
 * @param {string} kid
 * @param {Uint8Array} signingInput
 */
export async function leafText(claims, kid, signingInput) {
  /** @type {[string, string | number, {words: string, grammar: RegExp}][]} */
  const lines = [
    ["iss", claims.iss, TEXT],
    ["sub", claims.sub, TEXT],
    ["kid", kid, KEY],
    ["iat", claims.iat, TIME],
    ["exp", claims.exp, TIME],
    ["policy", claims.policy, SHA256],
  ];
  const text = [FIRST_LINE, ...lines.map(([name, value]) => `${name} ${value}`), ""].join("\n");
  const whole = `${text}token ${encodeBase64(await logDigest(signingInput))}\n`;
  if (whole.length > MAX_LEAF_BYTES) throw malformed(`a leaf may have at most ${MAX_LEAF_BYTES} bytes`);
  for (const [at, [name, value, { words, grammar }]] of lines.entries())
    if (!grammar.test(String(value)))
      throw malformed(`line ${at + 2} must be \`${name}\` and ${words}`, { pointer: `/${name}`, line: at + 2 });
  for (const seconds of [claims.iat, claims.exp])
    if (seconds > MAX_UNIX_S)
      throw malformed(`${seconds} is not a time in Unix seconds: the largest is ${MAX_UNIX_S}`);
  return whole;
}

/**
 * Return the lines of a leaf of any kind, by name; `first_line` is the kind. For display: a leaf of an unknown kind has
 * only that line. Throws FormatError(`log.malformed`) if the bytes are not a leaf.
 * @param {Uint8Array} raw
 * @returns {Map<string, string>}
 */
export function readLines(raw) {
  if (raw.length > MAX_LEAF_BYTES) throw malformed(`a leaf may have at most ${MAX_LEAF_BYTES} bytes`);
  const text = decodeUtf8(raw) ?? "";
  if (!/^[!-~]+\n(?:[!-~]+ [!-~]+\n)*$/.test(text))
    throw malformed("a leaf must have a first line, then lines of a name, a space and a value, each ended by LF");
  const [first, ...lines] = text.slice(0, -1).split("\n");
  return new Map([["first_line", first], ...lines.map(pairOf)]);
}

/**
 * @param {string} line
 * @returns {[string, string]}
 */
function pairOf(line) {
  const space = line.indexOf(" ");
  return [line.slice(0, space), line.slice(space + 1)];
}
