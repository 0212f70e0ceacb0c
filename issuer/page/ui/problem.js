// The drawing of a refusal: a problem document (RFC 9457) of this issuer, or an answer of /tokens/explain.
import { code, el, facts, moment, note, result, said, table } from "./dom.js";

const MOST_ROWS = 200;
/** The members of an answer. The type of each is checked when it is read. @typedef {{[name: string]: unknown}} Members */
const CODE = /^[a-z0-9_]{1,40}\.?[a-z0-9_.]{0,60}$/;

/** Find the JSON object in a text: all of it, or from the first brace to the last. @param {string} text */
export function findObject(text) {
  const begin = text.indexOf("{");
  const end = text.lastIndexOf("}");
  for (const part of [text, begin < 0 ? "" : text.slice(begin, end + 1)]) {
    try {
      /** @type {unknown} */
      const value = JSON.parse(part);
      if (isObject(value)) return value;
    } catch {
      // Try the other part.
    }
  }
  return null;
}

/** @param {unknown} value @returns {value is Members} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {unknown} value */
const text = (value) => (typeof value === "string" ? value : "");

/** @param {unknown} value @returns {Members[]} */
const objects = (value) => (Array.isArray(value) ? value.filter(isObject) : []);

/**
 * Draw an issuer's answer. Never throws: missing members are left out.
 * @param {Members} answer @param {{isPasted: boolean}} from whether a person pasted it: then anyone can have written it
 */
export function drawAnswer(answer, { isPasted }) {
  if (answer.verdict === "granted" || answer.verdict === "refused") return drawExplained(answer, isPasted);
  if (text(answer.code) || text(answer.title) || text(answer.type)) return [drawProblem(answer)];
  return [note("bad", el("p", "This is JSON, but not an issuer's answer: it has neither a "), code("code"), " nor a title.")];
}

/** @param {Members} problem */
function drawProblem(problem) {
  const undecided = problem.retryable === true;
  const name = text(problem.code) || text(problem.type);
  const word = undecided ? "Not decided" : "Refused";
  const checks = objects(problem.checks);
  return el(
    "div",
    el(
      `div.verdict.${undecided ? "open" : "bad"}`,
      el("h2", `${word}: ${text(problem.title) || name}`),
      facts([
        ["Code", errorCode(text(problem.code))],
        ["HTTP status", typeof problem.status === "number" ? problem.status : ""],
        ["Request", text(problem.request_id) ? code(problem.request_id) : ""],
      ]),
    ),
    nextStep(undecided, text(problem.detail), checks),
    checks.length ? drawChecks(checks) : drawFaults(objects(problem.errors)), // both list the failures, and checks have more detail
    drawWarnings(problem.warnings),
    text(problem.request_id) ? el("p.quiet", "The issuer's operator can find this answer in the audit by the request's id.") : "",
  );
}

/** @param {Members} answer @param {boolean} isPasted */
function drawExplained(answer, isPasted) {
  const granted = answer.verdict === "granted";
  const checks = objects(answer.checks);
  const standing = isObject(answer.standing) ? answer.standing : {};
  const attempt = isObject(standing.attempt) ? standing.attempt : {};
  return [
    el(
      `div.verdict.${!granted ? "bad" : isPasted ? "open" : "good"}`,
      el("h2", `${isPasted ? "What you pasted says: this" : "This"} would be ${granted ? "granted" : "refused"}`),
      facts([
        ["Code", errorCode(text(answer.code))],
        ["Integration", text(answer.integration)],
        ["Identity", text(answer.identity)],
        ["Audience", text(answer.audience)],
        ["A token would live", typeof answer.ttl_s === "number" ? `${answer.ttl_s.toLocaleString()} s` : ""],
        ["Attempt", typeof attempt.number === "number" ? attempt.number : ""],
        ["Throttled until", typeof standing.throttled_until === "number" ? moment(standing.throttled_until) : ""],
        ["Policy", text(answer.policy) ? code(answer.policy) : ""],
      ]),
    ),
    granted
      ? note("", el("p", "This does not say whether the credential is already used up. Nothing was signed, and no use was spent."))
      : nextStep(false, "", checks),
    drawChecks(checks),
    drawWarnings(answer.warnings),
  ].filter((part) => part !== "");
}

/** @param {string} name a code; it becomes a link only if it has the form of our codes */
function errorCode(name) {
  if (!name) return "";
  return CODE.test(name) ? el("a", { href: new URL(`../errors/${name}`, document.baseURI).pathname }, code(name)) : code(name);
}

/** @param {boolean} undecided @param {string} detail @param {Members[]} checks */
function nextStep(undecided, detail, checks) {
  const hints = [...new Set(checks.filter((one) => one.passed === false).map((one) => text(one.hint)).filter(Boolean))];
  const steps = undecided ? ["Send the same request again, after the time that Retry-After named."] : hints;
  const list = steps.length > 1 ? el("ol", ...steps.slice(0, MOST_ROWS).map((step) => el("li", said(step)))) : steps.map((step) => el("p", said(step)))[0];
  return note("", el("h3", "What to do"), list, detail && !hints.length ? el("p", said(detail)) : "");
}

/** @param {Members[]} faults */
function drawFaults(faults) {
  if (!faults.length) return "";
  const rows = faults.slice(0, MOST_ROWS).map((one) => [
    el("td", code(text(one.pointer) || "the request")),
    el("th", { scope: "row" }, code(text(one.code))),
    el("td", said(text(one.detail))),
  ]);
  return el("div", table("What is wrong, and where in the request", ["Where", "Code", "What"], rows), more(faults));
}

/** Draw a policy's checks, failed ones first. @param {Members[]} checks */
function drawChecks(checks) {
  if (!checks.length) return "";
  const sorted = [...checks.filter((one) => one.passed !== true), ...checks.filter((one) => one.passed === true)];
  const failed = sorted.filter((one) => one.passed !== true).length;
  const rows = sorted.slice(0, MOST_ROWS).map((one) => [
    one.passed === true ? result("good", "passed") : result("bad", "failed"),
    el("th", { scope: "row" }, said(subject(one)), el("br"), one.passed === true ? "" : code(text(one.code))),
    el(
      "td",
      facts([
        ["Yours", text(one.actual)],
        ["Wanted", one.passed === true ? "" : text(one.expected) || (text(one.hint) ? "not disclosed by the policy" : "")],
        ["In the request", text(one.pointer) ? code(one.pointer) : ""],
        ["Rule of the policy", text(one.rule) ? code(one.rule) : ""],
        ["Next", one.passed === true ? "" : text(one.hint)],
      ]),
    ),
  ]);
  const caption = `Checks of the policy: ${failed} of ${checks.length} failed`;
  return el("div.checks", table(caption, ["Result", "Check", "What was found"], rows), more(checks));
}

/** Return the subject of a check. The code of a check names its failure, which would mislead for a passed one. @param {Members} check */
function subject(check) {
  const name = text(check.code);
  if (name.startsWith("policy.")) return name.slice("policy.".length);
  return text(check.rule).split(".").pop() || name || "check";
}

/** @param {unknown} warnings */
function drawWarnings(warnings) {
  /** @type {unknown[]} */
  const all = Array.isArray(warnings) ? warnings : [];
  const texts = all.filter((one) => typeof one === "string");
  return texts.length ? note("open", el("h3", "Warnings"), el("ul", ...texts.slice(0, MOST_ROWS).map((one) => el("li", said(one))))) : "";
}

/** @param {unknown[]} rows */
const more = (rows) => (rows.length > MOST_ROWS ? el("p.quiet", `${(rows.length - MOST_ROWS).toLocaleString()} more are not shown.`) : "");
