// The newest leaves of the log, each checked against the root that the log has signed; tokens by day and integration.
import { FormatError } from "../verify/errors.js";
import { readLines } from "../verify/log/leaf.js";
import { leafHash, verifyInclusion } from "../verify/log/merkle.js";
import { inclusionProof } from "../verify/log/prove.js";
import { readEntries, tilePath, tileWidth } from "../verify/log/tiles.js";
import { el, note, said, table } from "./dom.js";
import { drawDays } from "./log-drawing.js";
import { counted, read } from "./log-reading.js";

const BUNDLES = 4n;

/** Read and draw the newest leaves. Throws FormatError. @param {import("./log-reading.js").Good} shown */
export async function newestEntries(shown) {
  const { size } = shown.checkpoint;
  if (size === 0n) return [note("", el("p", "The log has no entry yet."))];
  const last = (size - 1n) / 256n;
  const first = last >= BUNDLES ? last - BUNDLES + 1n : 0n;
  const leaves = [];
  for (let index = first; index <= last; index += 1n) leaves.push(...(await checkedBundle(index, shown)));
  return drawEntries(leaves.map(readLines), size);
}

/**
 * Read an entry bundle, and check each leaf against the signed root.
 * @param {bigint} index @param {import("./log-reading.js").Good} under
 */
async function checkedBundle(index, { checkpoint: { size, root }, node }) {
  const width = tileWidth("entries", index, size);
  const leaves = readEntries(await read(tilePath("entries", index, width)));
  const isUnder = await Promise.all(
    leaves.map(async (leaf, at) => {
      const place = index * 256n + BigInt(at);
      return at < width && verifyInclusion(place, size, await leafHash(leaf), await inclusionProof(place, size, node), root);
    }),
  );
  if (leaves.length === width && isUnder.every(Boolean)) return leaves;
  throw new FormatError("log.unverified", "the log gives entries that are not under the root that it has signed");
}

/** @param {Map<string, string>[]} entries @param {bigint} size */
function drawEntries(entries, size) {
  /** @type {Map<string, Map<string, number>>} */
  const days = new Map();
  /** @type {Map<string, number>} */
  const kinds = new Map();
  for (const entry of entries) {
    const kind = (entry.get("first_line") ?? "").split("/")[1] ?? "?";
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const seconds = Number(entry.get("iat"));
    if (kind !== "token" || !Number.isSafeInteger(seconds)) continue;
    const day = new Date(seconds * 1000).toISOString().slice(0, 10);
    const of = days.get(day) ?? new Map();
    const who = entry.get("sub") ?? "?";
    days.set(day, of.set(who, (of.get(who) ?? 0) + 1));
  }
  const sorted = [...days].sort(([one], [other]) => (one < other ? 1 : -1));
  const rows = sorted.flatMap(([day, of]) =>
    [...of].sort(([, one], [, other]) => other - one).map(([who, count]) => [
      el("th", { scope: "row" }, day), el("td", said(who)), el("td.number", counted(count)),
    ]),
  );
  return [
    el("p", `${counted(entries.length)} of ${counted(size)} entries, each checked up to the root: `, [...kinds].map(([kind, count]) => `${counted(count)} × ${kind}`).join(", "), ". Days are UTC."),
    sorted.length ? drawDays(sorted.map(([day, of]) => ({ day, count: [...of.values()].reduce((sum, one) => sum + one, 0) })).reverse()) : "",
    rows.length ? table("Tokens by day and integration", ["Day", "Integration", "Tokens"], rows.slice(0, 400)) : "",
  ].filter((part) => part !== "");
}
