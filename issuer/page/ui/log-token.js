// A token's place in the log: its leaf, and the path of hashes from it to the root that the log has signed.
import { utf8 } from "../verify/bytes.js";
import { FormatError } from "../verify/errors.js";
import { proofUrl, unverifiedLeaf } from "../verify/log/ask.js";
import { parseCheckpoint } from "../verify/log/checkpoint.js";
import { objection } from "../verify/log/inclusion.js";
import { readLines } from "../verify/log/leaf.js";
import { climb, leafHash } from "../verify/log/merkle.js";
import { parseNote } from "../verify/log/note.js";
import { splitProof } from "../verify/log/proof.js";
import { nodeOfTiles } from "../verify/log/tiles.js";
import { el, facts, moment, note } from "./dom.js";
import { drawClimb } from "./log-drawing.js";
import { LOG, MOST_INFO, counted, isBeginning, judged, read } from "./log-reading.js";

/** @typedef {import("./log-reading.js").Checkpoint} Checkpoint */
/** @typedef {import("./log-reading.js").Good} Good */

/** The labels for the lines of a leaf. @type {Record<string, string>} */
const NAMES = {
  first_line: "Kind of entry", iss: "Issuer", sub: "Integration", kid: "Key", iat: "Signed", exp: "The token ends",
  policy: "Policy's digest", token: "Token's digest",
};

/**
 * Ask the log for a token, and draw the proof. Throws FormatError if the answer does not prove the leaf.
 * @param {string} text a token @param {Good} shown
 */
export async function findToken(text, shown) {
  const { leaf, claims } = await unverifiedLeaf(text);
  const raw = await read(proofUrl(LOG.href.replace(/\/$/, ""), leaf), MOST_INFO);
  const proof = splitProof(raw);
  const witnessed = parseNote(proof.checkpoint);
  const checkpoint = parseCheckpoint(witnessed.text);
  await judged(shown.policy, witnessed);
  const reason = await objection(proof, checkpoint, claims.log ?? checkpoint.origin, utf8(leaf));
  const hash = await leafHash(utf8(leaf));
  const steps = (await climb(proof.index, checkpoint.size, hash, proof.hashes)) ?? [];
  if (reason) throw new FormatError("log.unverified", `the log's proof is not usable: ${reason}`);
  if (!(await isOfOneTree(checkpoint, shown))) throw new FormatError("log.unverified", "the proof is of another tree than the one above: the log shows two histories");
  return [
    note("good", el("p", el("strong", `It is entry ${counted(proof.index + 1n)} of ${counted(checkpoint.size)}. `), `${steps.length} hashes lead from it to the root that the log has signed.`),
      el("p.quiet", "This shows that the log has the entry. The page that verifies a result checks the token's signature, and whether it matches the result.")),
    facts([...readLines(utf8(leaf))].map(([name, value]) => [NAMES[name] ?? name, name === "iat" || name === "exp" ? moment(Number(value)) : value])),
    drawClimb(proof.index, hash, steps, checkpoint.root),
  ];
}

/** Return whether a checkpoint and the shown one are of the same growing tree. @param {Checkpoint} checkpoint @param {Good} shown */
async function isOfOneTree(checkpoint, shown) {
  if (checkpoint.size <= shown.checkpoint.size) return isBeginning(checkpoint, shown);
  return isBeginning(shown.checkpoint, { checkpoint, node: nodeOfTiles((path) => read(path), checkpoint.size) });
}
