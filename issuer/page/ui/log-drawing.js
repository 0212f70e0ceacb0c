// The drawings of the log's page: the path from a leaf to the root, and tokens by day. Each has its numbers beside it.
import { hex } from "../verify/bytes.js";
import { el, result, table } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {{[name: string]: string | number}} attributes @param {...(Node | string)} children */
function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

const ROW = 46;
const [LEFT, MIDDLE, RIGHT, WIDTH] = [80, 180, 280, 360];
/** @param {Uint8Array} hash */
const short = (hash) => `${hex(hash.subarray(0, 4))}…`;

/**
 * Draw the path from a leaf to the root, with the hash from the log at each step and its side.
 * @param {bigint} index @param {Uint8Array} leaf its hash @param {import("../verify/log/merkle.js").Step[]} steps
 * @param {Uint8Array} root the root that the log has signed
 */
export function drawClimb(index, leaf, steps, root) {
  const height = (steps.length + 1) * ROW + 20;
  const parts = [];
  for (const [at, { side, sibling }] of steps.entries()) {
    const y = height - 24 - at * ROW;
    const x = side === "left" ? LEFT : RIGHT;
    parts.push(shape("path", { class: "way", d: `M${MIDDLE} ${y}V${y - ROW}M${x} ${y}L${MIDDLE} ${y - ROW}` }));
    parts.push(node(x, y, short(sibling), "given"));
  }
  for (const [at, hash] of [leaf, ...steps.map((step) => step.hash)].entries()) {
    parts.push(node(MIDDLE, height - 24 - at * ROW, short(hash), at === steps.length ? "own root" : "own"));
  }
  const title = `Entry ${index}: ${steps.length} steps to the root ${short(root)}`;
  const rows = steps.map(({ side, sibling, hash }, at) => [
    el("th", { scope: "row" }, `Step ${at + 1}`),
    el("td", el("span.digest", hex(sibling)), ` on the ${side}`),
    at === steps.length - 1 ? result("good", `the root: ${short(hash)}`) : el("td", el("span.digest", short(hash))),
  ]);
  return el(
    "div.climb",
    el("figure", shape("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img" }, shape("title", {}, title), ...parts),
      el("figcaption.quiet", "From the entry, at the bottom, to the root. Your browser computed the hashes in the middle; the log gave those beside them.")),
    steps.length ? table("The same as a list", ["Step", "Given by the log", "Hashed here"], rows) : el("p", "It is the only entry: its hash is the root."),
  );
}

/** @param {number} x @param {number} y @param {string} text @param {string} kind */
function node(x, y, text, kind) {
  return shape("g", { class: kind }, shape("rect", { x: x - 42, y: y - 13, width: 84, height: 26, rx: 4 }), shape("text", { x, y: y + 4, "text-anchor": "middle" }, text));
}

/** Draw tokens by day as bars. The table beside them has the numbers. @param {{day: string, count: number}[]} days oldest first */
export function drawDays(days) {
  const shown = days.slice(-60);
  const most = Math.max(...shown.map(({ count }) => count));
  const width = 600 / shown.length;
  const bars = shown.map(({ day, count }, at) => {
    const tall = Math.max(1.5, (count / most) * 58);
    return shape("rect", { class: "bar", x: at * width, y: 60 - tall, width: Math.max(1, Math.min(width - 1, 60)), height: tall }, shape("title", {}, `${day}: ${count}`));
  });
  const said = `Tokens by day, ${shown[0].day} to ${shown[shown.length - 1].day}: at most ${most.toLocaleString("en")} in one`;
  return el("figure.bars", el("figcaption", said), shape("svg", { viewBox: "0 0 600 60", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars));
}
