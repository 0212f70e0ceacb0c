/**
 * The parser of witness policies, which name the trusted logs and witnesses and their quorum (c2sp.org/tlog-policy).
 *
 * It refuses keys that it cannot verify, because skipping one would lower the quorum that the author of the file asked
 * for. `quorum.js` applies the policy to a checkpoint.
 */

import { decodeUtf8, equal } from "../bytes.js";
import { Beyond, FormatError } from "../errors.js";
import { NO_QUORUM } from "./quorum.js";
import { KIND, parseVkey, shownKind } from "./vkey.js";

/**
 * @typedef {import("./vkey.js").Verifier} Verifier
 * @typedef {import("./quorum.js").WitnessPolicy} WitnessPolicy
 */

const MAX_POLICY_BYTES = 256 * 1024;
const MAX_EACH = 32; // logs, witnesses or groups: the number that every reader of the format must support
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/;
const THRESHOLD = /^[1-9][0-9]?$/;
const UNPRINTABLE = /[\p{C}\p{Z}]/u;
/** @type {ReadonlySet<number>} */
const LOG_KINDS = new Set([KIND.ED25519, KIND.COSIGNATURE_ML_DSA_44]);
/** @type {ReadonlySet<number>} */
const WITNESS_KINDS = new Set([KIND.COSIGNATURE, KIND.COSIGNATURE_ML_DSA_44]);

/**
 * Read a policy file. Throws FormatError(`log.policy`) with the line, and Beyond if it needs a key type that no browser
 * verifies.
 * @param {Uint8Array} raw
 * @returns {Promise<WitnessPolicy>}
 */
export async function parsePolicy(raw) {
  const reader = new Reader();
  for (const [index, text] of linesOf(raw).entries()) {
    try {
      await reader.read(text);
    } catch (error) {
      if (!(error instanceof FormatError) || error instanceof Beyond) throw error;
      throw new FormatError("log.policy", error.message, { line: index + 1, column: 1 });
    }
  }
  return reader.policy();
}

/** @param {Uint8Array} raw */
function linesOf(raw) {
  if (raw.length > MAX_POLICY_BYTES) throw fault(`the policy has over ${MAX_POLICY_BYTES} bytes`);
  const text = decodeUtf8(raw);
  if (text === null) throw new Beyond("the policy is not UTF-8");
  const lines = text.split("\n");
  // "quorum a" may be the start of "quorum all-of-them"
  if (lines.pop() !== "" || !lines.length)
    throw fault("the last line does not end in a newline; the file may have been cut short");
  return lines;
}

/** The definitions of the lines so far. A line can refer only to lines before it, so a group cannot contain itself. */
class Reader {
  /** @type {WitnessPolicy} */
  #policy = { logs: [], witnesses: [], groups: [], quorum: "" };

  /**
   * Read one line. Throws FormatError.
   * @param {string} line
   */
  async read(line) {
    if (CONTROL.test(line))
      throw fault("a control character other than tab and newline; line ends must be LF, not CRLF");
    const [word, ...rest] = line.split(/[ \t]+/).filter(Boolean);
    if (!word || word.startsWith("#")) return;
    if (word === "log" && (rest.length === 1 || rest.length === 2)) await this.#log(rest[0], rest[1] ?? "");
    else if (word === "witness" && (rest.length === 2 || rest.length === 3))
      await this.#witness(rest[0], rest[1], rest[2] ?? "");
    else if (word === "group" && rest.length >= 3) this.#group(rest[0], rest[1], rest.slice(2));
    else if (word === "quorum" && rest.length === 1) this.#decide(rest[0]);
    else
      throw fault(
        "a line must be `log VKEY [URL]`, `witness NAME VKEY [URL]`, `group NAME all|any|K NAME...`, " +
          "`quorum NAME`, or a comment with #",
      );
  }

  /** Return the complete policy. Throws FormatError. */
  policy() {
    if (!this.#policy.quorum)
      throw fault("the policy has no `quorum` line; write `quorum none` to require no witness");
    return this.#policy;
  }

  /**
   * @param {string} vkey
   * @param {string} url
   */
  async #log(vkey, url) {
    const { logs } = this.#policy;
    const verifier = await this.#key(vkey, LOG_KINDS, logs.map((log) => log.verifier));
    logs.push({ verifier, url: checkedUrl(url) });
  }

  /**
   * @param {string} name
   * @param {string} vkey
   * @param {string} url
   */
  async #witness(name, vkey, url) {
    this.#define(name);
    const { witnesses } = this.#policy;
    const verifier = await this.#key(vkey, WITNESS_KINDS, witnesses.map((witness) => witness.verifier));
    witnesses.push({ name, verifier, url: checkedUrl(url) });
  }

  /**
   * @param {string} name
   * @param {string} word
   * @param {string[]} members
   */
  #group(name, word, members) {
    this.#define(name);
    const { groups } = this.#policy;
    if (groups.length === MAX_EACH) throw fault(`the policy has over ${MAX_EACH} groups`);
    for (const member of members) this.#mustBeKnown(member);
    const taken = [...groups.flatMap((group) => group.members), ...members];
    if (new Set(taken).size < taken.length)
      throw fault("a witness or group may be a member only once, of one group: otherwise it would count twice");
    groups.push({ name, threshold: thresholdOf(word, members.length), members });
  }

  /** @param {string} name */
  #decide(name) {
    if (this.#policy.quorum) throw fault("a policy may have only one `quorum` line");
    if (name !== NO_QUORUM) this.#mustBeKnown(name);
    this.#policy.quorum = name;
  }

  /** @param {string} name */
  #define(name) {
    if (name === NO_QUORUM)
      throw fault(`\`${NO_QUORUM}\` cannot name a witness or a group: it means that no witness is required`);
    if (this.#isKnown(name)) throw fault(`\`${name}\` is defined twice`);
  }

  /** @param {string} name */
  #mustBeKnown(name) {
    if (!this.#isKnown(name)) throw fault(`\`${name}\` is not a witness or group of an earlier line`);
  }

  /** @param {string} name */
  #isKnown(name) {
    return [...this.#policy.witnesses, ...this.#policy.groups].some((defined) => defined.name === name);
  }

  /**
   * @param {string} text
   * @param {ReadonlySet<number>} fit
   * @param {Verifier[]} others  verifiers of earlier lines of this kind
   */
  async #key(text, fit, others) {
    const verifier = await parseVkey(text);
    if (!fit.has(verifier.kind)) throw fault(`a key of type ${shownKind(verifier.kind)} does not belong on this line`);
    if (others.length === MAX_EACH) throw fault(`the policy has over ${MAX_EACH} logs, or over ${MAX_EACH} witnesses`);
    if (others.some((other) => equal(other.publicKey, verifier.publicKey)))
      throw fault("an earlier line has this public key: one key under two names would count twice");
    const all = [...this.#policy.logs, ...this.#policy.witnesses].map((each) => each.verifier);
    if (all.some((other) => other.name === verifier.name && equal(other.keyId, verifier.keyId)))
      throw fault(
        "a key of an earlier line has this name and key id: their signatures would look alike",
      );
    return verifier;
  }
}

/**
 * @param {string} word
 * @param {number} count
 */
function thresholdOf(word, count) {
  if (word === "all" || word === "any") return word === "all" ? count : 1;
  if (!THRESHOLD.test(word) || Number(word) > count)
    throw fault(`the threshold of a group must be \`all\`, \`any\`, or a decimal number from 1 to ${count}`);
  return Number(word);
}

/** @param {string} text */
function checkedUrl(text) {
  if (UNPRINTABLE.test(text)) throw fault("the URL has characters that a URL cannot have");
  return text;
}

/** @param {string} detail */
const fault = (detail) => new FormatError("log.policy", detail);
