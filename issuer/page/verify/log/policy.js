/**
 * Reads the file that names the trusted logs and witnesses and their quorum (c2sp.org/tlog-policy).
 *
 * Refuses what cannot be verified here: a key that is skipped would be a lower quorum than the author of the file asked
 * for. What a policy then says of a checkpoint is in `quorum.js`.
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
const MAX_EACH = 32; // logs, witnesses and groups: what every reader of the format is asked to take
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f]/;
const THRESHOLD = /^[1-9][0-9]?$/;
const UNPRINTABLE = /[\p{C}\p{Z}]/u;
/** @type {ReadonlySet<number>} */
const LOG_KINDS = new Set([KIND.ED25519, KIND.COSIGNATURE_ML_DSA_44]);
/** @type {ReadonlySet<number>} */
const WITNESS_KINDS = new Set([KIND.COSIGNATURE, KIND.COSIGNATURE_ML_DSA_44]);

/**
 * Read a policy file. Throws FormatError(`log.policy`) with the line, and Beyond for one that asks for what no
 * browser verifies.
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
  // "quorum a" may be what is left of "quorum all-of-them"
  if (lines.pop() !== "" || !lines.length)
    throw fault("the last line does not end in a newline; the file may have been cut short");
  return lines;
}

/** What the lines so far have defined. A line can refer only to lines before it, so no group contains itself. */
class Reader {
  /** @type {WitnessPolicy} */
  #policy = { logs: [], witnesses: [], groups: [], quorum: "" };

  /**
   * Read one line. Throws FormatError.
   * @param {string} line
   */
  async read(line) {
    if (CONTROL.test(line))
      throw fault("a control character other than tab and newline; line ends are LF, not CRLF");
    const [word, ...rest] = line.split(/[ \t]+/).filter(Boolean);
    if (!word || word.startsWith("#")) return;
    if (word === "log" && (rest.length === 1 || rest.length === 2)) await this.#log(rest[0], rest[1] ?? "");
    else if (word === "witness" && (rest.length === 2 || rest.length === 3))
      await this.#witness(rest[0], rest[1], rest[2] ?? "");
    else if (word === "group" && rest.length >= 3) this.#group(rest[0], rest[1], rest.slice(2));
    else if (word === "quorum" && rest.length === 1) this.#decide(rest[0]);
    else
      throw fault(
        "a line is `log VKEY [URL]`, `witness NAME VKEY [URL]`, `group NAME all|any|K NAME...`, " +
          "`quorum NAME`, or a comment with #",
      );
  }

  /** Return the whole. Throws FormatError. */
  policy() {
    if (!this.#policy.quorum)
      throw fault("the policy has no `quorum` line; one that asks for no witness says `quorum none`");
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
      throw fault("a witness or group is a member once, in one group: else it would count twice");
    groups.push({ name, threshold: thresholdOf(word, members.length), members });
  }

  /** @param {string} name */
  #decide(name) {
    if (this.#policy.quorum) throw fault("a policy has one `quorum` line");
    if (name !== NO_QUORUM) this.#mustBeKnown(name);
    this.#policy.quorum = name;
  }

  /** @param {string} name */
  #define(name) {
    if (name === NO_QUORUM)
      throw fault(`\`${NO_QUORUM}\` is no name for a witness or a group: it means that none is asked for`);
    if (this.#isKnown(name)) throw fault(`\`${name}\` is defined twice`);
  }

  /** @param {string} name */
  #mustBeKnown(name) {
    if (!this.#isKnown(name)) throw fault(`\`${name}\` is no witness or group of a line before this one`);
  }

  /** @param {string} name */
  #isKnown(name) {
    return [...this.#policy.witnesses, ...this.#policy.groups].some((defined) => defined.name === name);
  }

  /**
   * @param {string} text
   * @param {ReadonlySet<number>} fit
   * @param {Verifier[]} others  those of the same kind of line
   */
  async #key(text, fit, others) {
    const verifier = await parseVkey(text);
    if (!fit.has(verifier.kind)) throw fault(`a key of type ${shownKind(verifier.kind)} does not belong on this line`);
    if (others.length === MAX_EACH) throw fault(`the policy has over ${MAX_EACH} logs, or as many witnesses`);
    if (others.some((other) => equal(other.publicKey, verifier.publicKey)))
      throw fault("this public key is on a line before: one key under two names would count twice");
    const all = [...this.#policy.logs, ...this.#policy.witnesses].map((each) => each.verifier);
    if (all.some((other) => other.name === verifier.name && equal(other.keyId, verifier.keyId)))
      throw fault(
        "a key of a line before has this name and this key id: their signatures could not be told apart",
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
    throw fault(`the threshold of a group is \`all\`, \`any\`, or a decimal number from 1 to its members: ${count}`);
  return Number(word);
}

/** @param {string} text */
function checkedUrl(text) {
  if (UNPRINTABLE.test(text)) throw fault("the URL has characters that no URL has");
  return text;
}

/** @param {string} detail */
const fault = (detail) => new FormatError("log.policy", detail);
