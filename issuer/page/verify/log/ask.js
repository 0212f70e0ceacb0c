/** Where the proof of a leaf may lie, and how its log is asked for it. Names and addresses alone: nothing is fetched. */

import { decodeBase64, hex, utf8 } from "../bytes.js";
import { readLines } from "./leaf.js";

/** @param {string} leaf  the text of a token's leaf */
const tokenHex = (leaf) => hex(decodeBase64(readLines(utf8(leaf)).get("token") ?? "") ?? new Uint8Array());

/**
 * What the proof of a token is called beside its result file.
 * @param {string} file
 * @param {string} leaf
 */
export const sidecarName = (file, leaf) => `${file}.${tokenHex(leaf).slice(0, 16)}.tlog-proof`;

/**
 * The address of the proof of a leaf, of a log whose files are at `url`.
 * @param {string} url
 * @param {string} leaf
 */
export function proofUrl(url, leaf) {
  const iat = readLines(utf8(leaf)).get("iat");
  return `${url.replace(/\/$/, "")}/proof?iat=${iat}&token=${tokenHex(leaf)}`;
}
