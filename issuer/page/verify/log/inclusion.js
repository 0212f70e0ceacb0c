/**
 * Check 11 of contract section 6: is the token in its issuer's transparency log, and since when?
 *
 * The leaf is rebuilt from the token, so a proof for another leaf cannot pass. Proofs beside a file are not trusted,
 * because anyone may put one there: an unusable proof counts like a missing one. Only the token itself or the log's
 * answer can make this check fail.
 */

import { hex, sha256, utf8 } from "../bytes.js";
import { Beyond, FormatError } from "../errors.js";
import { showSpan, showTime } from "../times.js";
import { leafText } from "./leaf.js";
import { leafHash, verifyInclusion } from "./merkle.js";
import { parseNote } from "./note.js";
import { splitProof } from "./proof.js";
import { checkNote } from "./quorum.js";

const LEEWAY_S = 60; // how far the issuer's clock may run ahead of the witnesses'
const MAX_REMEMBERED = 1000;

/**
 * The evidence for one token: the bytes of a tlog-proof, or the reason (`fault`) why the proof cannot be read.
 * `denied`: the log answered that it has no such leaf.
 * @typedef {{proof?: Uint8Array, fault?: string, denied?: boolean}} AtHand
 */

/**
 * The evidence by the text of the leaf (`leafText`).
 * @typedef {ReadonlyMap<string, AtHand>} Proofs
 */

/**
 * An issuer's log. `digest` is the digest of the policy file: a checkpoint that passed under one policy may fail under
 * another.
 * @typedef {{policy: import("./quorum.js").WitnessPolicy, digest: string, url: string}} TrustedLog
 */

/**
 * The result of looking for a token in its log. `witnessed` (Unix seconds) is a time by which witnesses had seen the
 * token; null if unknown or not usable. `origin` is the log that the token names, if it is not a trusted one. `leaf` is
 * the token's leaf, "" if it cannot have one.
 * @typedef {{status: "pass" | "fail" | "unknown", evidence: string, witnessed: number | null, origin: string, leaf: string}} Inclusion
 */

/**
 * A cache of signed checkpoints that passed: many tokens share one, and tokens are judged concurrently. A checkpoint
 * that failed is checked again, because the times of more witnesses may have passed since.
 */
export class CheckedNotes {
  /** @type {Map<string, Promise<import("./quorum.js").Witnessed>>} */
  #good = new Map();

  /**
   * Check a checkpoint by the log's policy. Throws FormatError that says whether signature or quorum failed.
   * @param {Uint8Array} raw
   * @param {TrustedLog} log
   * @param {number} now  the verifier's clock; witnesses may be a minute ahead of it
   */
  async check(raw, log, now) {
    const key = `${log.digest} ${hex(await sha256(raw))}`;
    const known = this.#good.get(key);
    if (known) return known;
    const found = check(raw, log, now);
    const [oldest] = this.#good.keys();
    if (this.#good.size >= MAX_REMEMBERED) this.#good.delete(oldest);
    this.#good.set(key, found);
    found.catch(() => this.#good.delete(key));
    return found;
  }
}

/**
 * @param {Uint8Array} raw
 * @param {TrustedLog} log
 * @param {number} now
 */
const check = async (raw, log, now) => checkNote(log.policy, parseNote(raw), now);

/**
 * Look for a token in the proofs at hand, then in the answers of logs (`asked`). The caller has verified the token's
 * signature.
 * @param {{claims: import("./leaf.js").LeafClaims & {log?: string}, kid: string, signingInput: Uint8Array,
 *   log: TrustedLog | null, proofs: Proofs, asked: Proofs, notes: CheckedNotes, now: number}} search
 * @returns {Promise<Inclusion>}
 */
export async function findInclusion({ claims, kid, signingInput, log, proofs, asked, notes, now }) {
  if (!log) return outcome("unknown", "the trust file names no log of this issuer");
  const origin = claims.log;
  if (origin === undefined) return outcome("fail", "the token names no log");
  if (!log.policy.logs.some(({ verifier }) => verifier.name === origin))
    return { ...outcome("fail", "the token names another log than its issuer's"), origin };
  let leaf;
  try {
    leaf = await leafText(claims, kid, signingInput);
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    return outcome("fail", `the token does not fit into a leaf: ${error.message}`);
  }
  let found = outcome("unknown", "no proof was found");
  for (const atHand of [proofs.get(leaf), asked.get(leaf)])
    if (found.status === "unknown" && atHand) found = await judge(atHand, { claims, leaf, origin, log, notes, now });
  return { ...found, leaf };
}

/**
 * @param {AtHand} atHand
 * @param {{claims: import("./leaf.js").LeafClaims, leaf: string, origin: string, log: TrustedLog, notes: CheckedNotes,
 *   now: number}} sought
 * @returns {Promise<Inclusion>}
 */
async function judge({ proof: raw, fault, denied }, { claims, leaf, origin, log, notes, now }) {
  if (denied) return outcome("fail", "the log answered that it has no such leaf");
  if (fault) return unusable(fault);
  try {
    const proof = splitProof(raw ?? new Uint8Array());
    const witnessed = await notes.check(proof.checkpoint, log, now);
    const reason = await objection(proof, witnessed.checkpoint, origin, utf8(leaf));
    return reason ? unusable(reason) : includedAt(proof.index, witnessed, claims);
  } catch (error) {
    if (!(error instanceof FormatError) || error instanceof Beyond) throw error;
    return unusable(error.message);
  }
}

/**
 * Return why a proof does not show a leaf in the log `origin` at its checkpoint, or "". The signatures on the
 * checkpoint are not checked here.
 * @param {import("./proof.js").Proof} proof
 * @param {import("./checkpoint.js").Checkpoint} checkpoint
 * @param {string} origin
 * @param {Uint8Array} leaf
 */
export async function objection(proof, checkpoint, origin, leaf) {
  if (checkpoint.origin !== origin) return `its checkpoint is of the log ${checkpoint.origin}`;
  if (!(await verifyInclusion(proof.index, checkpoint.size, await leafHash(leaf), proof.hashes, checkpoint.root)))
    return "its hashes do not lead from this token's leaf to the root of its checkpoint";
  return "";
}

/**
 * @param {bigint} index
 * @param {import("./quorum.js").Witnessed} witnessed
 * @param {import("./leaf.js").LeafClaims} claims
 */
function includedAt(index, { checkpoint, time }, { iat, exp }) {
  const evidence = `leaf ${index} of the ${checkpoint.size} of ${checkpoint.origin}`;
  if (time === null) return outcome("pass", `${evidence}; the policy requires no witness, so this proves no time`);
  if (time > exp) return outcome("pass", `${evidence}; logged late: witnessed ${showSpan(time - exp)} after it expired`);
  if (time < iat - LEEWAY_S) {
    const alarm = `alarm: witnessed ${showSpan(iat - time)} before the time of issue that the token states`;
    return outcome("pass", `${evidence}; ${alarm}`);
  }
  return { ...outcome("pass", `${evidence}, witnessed at ${showTime(time)}`), witnessed: time };
}

/** @param {string} reason */
const unusable = (reason) => outcome("unknown", `the proof at hand is not usable: ${reason}`);

/**
 * @param {Inclusion["status"]} status
 * @param {string} evidence
 * @returns {Inclusion}
 */
const outcome = (status, evidence) => ({ status, evidence, witnessed: null, origin: "", leaf: "" });
