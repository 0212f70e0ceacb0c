// The page "Verify a result": the form for the file, its path and the trusted issuers; the fetches, with consent; the checks.
import { byId, code, el, note, onDrop, said, show, visible } from "./dom.js";
import { evidence, gather, isLeftOut, settled, wantedBy, whatIs } from "./evidence.js";
import { Fault } from "./fault.js";
import { REPO, beside, field, given, pasted, question, read, take } from "./given.js";
import { drawReports } from "./report.js";
import { work } from "./working.js";

/** @typedef {import("./checking.js").Plan} Plan */
/** @typedef {import("./checking.js").Question} Question */
/** @typedef {import("./given.js").Beside} Beside */
/** @typedef {import("./evidence.js").Wanted} Wanted */
/** A file that the trust file names, with the input for it. @typedef {{pointer: string, file: string, input: HTMLInputElement}} Asked */

const MOST_SUPPLIED = 4 * 1024 * 1024;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
let current = new AbortController();
let suggested = ""; // the path that the page has filled in after a file's name

/** End the current check: it sends no further request and shows nothing. Returns the signal of the next check. */
function begin() {
  current.abort();
  current = new AbortController();
  return current.signal;
}

/** Remove the answer: it belongs to other input. */
function forgetFound() {
  begin();
  show(byId("plan"));
  show(byId("answer"));
}

// -- input --------------------------------------------------------------------------------------------------------------

/** @param {File[]} files */
function choose(files) {
  forgetFound();
  const before = given.file;
  try {
    take(files);
    if (given.file !== before) nameAfter(given.file);
    showGiven();
  } catch (error) {
    given.file = null;
    show(byId("chosen"), el("span.result.bad", said(error instanceof Fault ? error.message : `The page failed: ${error}`)));
  }
}

/** Use a file in place of a pasted text, and of the path of the file before. @param {File | null} file */
function nameAfter(file) {
  pasted().value = "";
  const isOwn = field("path").value !== "" && field("path").value !== suggested;
  if (file && !isOwn) field("path").value = suggested = `.eval_results/${file.name}`;
}

function showGiven() {
  const { file, proofs } = given;
  const size = file ? `, ${file.size.toLocaleString()} bytes` : "";
  show(byId("chosen"), said(file ? file.name : "No result file yet"), size, proofs.size ? `; proofs of the log: ${proofs.size}` : "");
}

/** Use a pasted text in place of the file. */
function dropFile() {
  if (given.file) show(byId("chosen"), "The pasted text below is checked, not a file.");
  given.file = null;
}

// -- the plan -----------------------------------------------------------------------------------------------------------

async function look() {
  const own = begin();
  show(byId("answer"));
  show(byId("plan"), el("p.busy", "Reading …"));
  try {
    const [asked, around] = await Promise.all([question(), beside()]);
    const plan = await work("plan", { question: asked }, own);
    if (!own.aborted) offer(asked, around, plan);
  } catch (error) {
    if (!own.aborted) refuse(error);
  }
}

/** @param {unknown} error */
function refuse(error) {
  const fault = error instanceof Fault ? error : new Fault(`The page failed: ${error}`);
  const beyond = fault.code === "beyond";
  show(
    byId("plan"),
    note(
      beyond ? "open" : "bad",
      el("h2", beyond ? "This page cannot read all of it, so it gives no verdict" : "Not checked"),
      el("p", said(fault.message)),
      fault.code ? el("p", "Code: ", code(fault.code)) : "",
      fault.place ? el("p", "Where: ", code(fault.place)) : "",
    ),
  );
}

/** Show the documents to fetch, and wait for the person's consent. @param {Question} asked @param {Beside} around @param {Plan} plan */
function offer(asked, around, plan) {
  if (asked.file && !plan.entries) return show(byId("plan"), note("", el("p", "This file has no entries: there is nothing to check.")));
  const wanted = wantedBy(plan);
  const files = plan.needs.flatMap(({ pointer, file }, index) =>
    file ? [{ pointer, file, input: el("input", { type: "file", id: `need-${index}` }) }] : [],
  );
  const go = el("button", { type: "button", id: "go" }, wanted.length ? `Fetch ${wanted.length === 1 ? "this" : `these ${wanted.length}`}, and check` : "Check");
  show(byId("plan"), el("div.panel", el("h2", "What is needed"), el("p", countOf(asked, plan)), ...drawWanted(wanted), ...files.map(drawAsked), el("p.buttons", go)));
  go.focus();
  go.addEventListener("click", () => void check(asked, around, plan, wanted, files, go));
}

/** @param {Question} asked @param {Plan} plan */
function countOf({ file }, { entries, tokens }) {
  if (!file) return "One token.";
  return `${entries.toLocaleString()} ${entries === 1 ? "entry" : "entries"}, ${tokens.toLocaleString()} with a token.`;
}

/** @param {Wanted[]} wanted */
function drawWanted(wanted) {
  if (!wanted.length) return [el("p", "No document needs to be fetched.")];
  const why = "To judge this, the page fetches these public documents. Their servers see your IP address and these URLs, and nothing else of the file:";
  return [el("p", why), el("ul", ...wanted.map((each) => el("li", code(each.url), " ", el("span.quiet", `(${whatIs(each)})`))))];
}

/** @param {Asked} asked */
const drawAsked = ({ pointer, file, input }) =>
  el("div", el("label", { for: input.id }, "Your trust file names ", code(file), `: ${whatIs({ pointer })}`), input);

// -- the checks ---------------------------------------------------------------------------------------------------------

/** @param {Question} asked @param {Beside} around @param {Plan} plan @param {Wanted[]} wanted @param {Asked[]} files @param {HTMLButtonElement} go */
async function check(asked, around, plan, wanted, files, go) {
  const own = begin();
  show(byId("answer"));
  const busy = el("p.busy", "Reading …");
  go.disabled = true;
  go.after(busy);
  try {
    const supplied = await Promise.all(files.map(readSupplied));
    const got = await gather(wanted, (done) => { busy.textContent = `Fetched ${done} of ${wanted.length} …`; }, own);
    busy.textContent = "Checking …";
    const judged = await work("judge", { question: settled(asked, got), evidence: evidence(plan, got, supplied, around) }, own);
    if (own.aborted) return;
    const faults = got.filter((one) => one.fault && !isLeftOut(asked, one));
    drawReports(byId("answer"), judged.reports, { token: !asked.file, linked: linked(), audience: plan.audience, faults, absent: judged.absent, definition: judged.definition });
    byId("answer").focus();
  } catch (error) {
    if (!own.aborted) refuse(error);
  } finally {
    go.disabled = false;
    busy.remove();
  }
}

/** @param {Asked} asked @returns {Promise<[string, Uint8Array | null]>} */
async function readSupplied({ pointer, input }) {
  const file = input.files?.[0];
  return [pointer, file ? await read(file, MOST_SUPPLIED) : null];
}

// -- links --------------------------------------------------------------------------------------------------------------

/** Read the page's URL: digests and the path of the file. It never names trusted issuers: only the person chooses those. */
function linked() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const content = parts.get("content") ?? "";
  const repo = parts.get("repo") ?? "";
  const path = parts.get("path") ?? "";
  return DIGEST.test(content) && REPO.test(repo) ? { content, repo, path: visible(path) === path ? path.slice(0, 300) : "" } : null;
}

function showLinked() {
  const asked = linked();
  if (!asked) return show(byId("linked"));
  field("repo").value = asked.repo;
  field("path").value = asked.path;
  return show(byId("linked"), note("", el("p", "The link that you followed is about the entry with this digest, of ", said(asked.repo), ":"), el("p", code(asked.content)), el("p.quiet", "A link proves nothing, and contains no token. Drop the file here to check it.")));
}

// -- the form -----------------------------------------------------------------------------------------------------------

function showFields() {
  byId("issuer-fields").hidden = field("by-file").checked;
  byId("file-fields").hidden = !field("by-file").checked;
  byId("at-field").hidden = byId("received", HTMLSelectElement).value !== "stated";
}

byId("verify").addEventListener("submit", (event) => {
  event.preventDefault();
  void look();
});
byId("verify").addEventListener("input", () => {
  forgetFound();
  showFields();
});
byId("plan").addEventListener("input", () => { // another file that the trust file names
  begin();
  show(byId("answer"));
});
field("file").addEventListener("change", () => choose([...(field("file").files ?? [])]));
pasted().addEventListener("input", dropFile);
onDrop(byId("what"), choose);
addEventListener("hashchange", () => {
  forgetFound();
  showLinked();
});
field("issuer").value = document.body.dataset.issuer ?? "";
if (!globalThis.crypto?.subtle) show(byId("plan"), note("bad", el("p", "This browser checks signatures only on a page that came by https, or from this machine. Open the page that way, or use ", code("issuer verify"), ".")));
showFields();
showLinked();
byId("late").remove();
