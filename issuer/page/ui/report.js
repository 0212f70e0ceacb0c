// The drawing of reports: the verdict in words, the run and its caller, the tier, and every check with its evidence.
import { code, el, facts, link, moment, note, result, said, show, table } from "./dom.js";

const AT_ONCE = 20; // entries drawn at first, and with each press for more
const MOST_ROWS = 256;
const HUB = "https://huggingface.co";
const COMMIT = /^[0-9a-f]{40}([0-9a-f]{24})?$/;
const REPO = /^[A-Za-z0-9._-]{1,96}\/[A-Za-z0-9._-]{1,96}$/;

/** @type {Record<string, {word: string, kind: "good"|"bad"|"open"|"none", proves: string, not: string}>} */
const VERDICTS = {
  verified: {
    word: "Verified", kind: "good",
    proves: "The issuer's registered integration had exactly this run signed, for this repository.",
    not: "That the benchmark is sound, or that the run was honest.",
  },
  failed: {
    word: "Not verified", kind: "bad",
    proves: "The file and the token do not match, or the token does not count here.",
    not: "That the result is false. But no signature says that it is true.",
  },
  undecided: {
    word: "Undecided", kind: "open",
    proves: "Nothing yet. A check needs something that was unavailable, and no check failed.",
    not: "That the result is good. Try again when the missing part is available.",
  },
  good_when_issued: {
    word: "Good when issued", kind: "open",
    proves: "The file says what the token says, and the token was good when it was issued.",
    not: "That the file existed before the token expired. A party that received it then may have a receipt.",
  },
  unverified: { word: "Unverified", kind: "open", proves: "Nothing. No issuer vouches for this result.", not: "That the result is false." },
};
/** The words if only this check failed. @type {Record<number, Meaning>} */
const ONLY_FAILED = {
  5: {
    proves: "The file says what the token says, but the token does not count at this time: see check 5.",
    not: "That the result is false. Tokens are short-lived: a receipt from that time may help.",
  },
  10: {
    proves: "The file says what the token says, but not by a definition that your trust file accepts: see check 10.",
    not: "That the result is false. A result by a definition that you accept would count.",
  },
};
/** The words for a token alone: its verdict is never more than good, because no file was compared. */
const TOKEN = {
  proves: "If the first checks passed, that the issuer signed this.",
  not: "That a file says the same. Only a file that contains this token can be verified.",
};

/** The tiers from the strongest to the weakest, with the way to a higher one. @type {[string, string, string][]} */
const TIERS = [
  ["reproduced", "another signed run has the same numbers", ""],
  ["logged", "verified, and witnesses saw the token in the issuer's log", "A signed run by another party that reproduces it (run.reproduces)."],
  ["verified", "every check that is due passed", "A proof that the token is in the issuer's log, seen by witnesses: a trust file that names the log, and receipt of the file in time."],
  ["signed", "a good token binds it, and a check is unknown", "A receipt from a party that received the file before the token expired, or a proof from the issuer's log."],
  ["self-reported", "no issuer vouches for it", "A token: the job that ran it requests one from an issuer."],
  ["undecided", "it is not known here whether its token counts", "See the checks below that did not pass: each names the missing or wrong part."],
  ["refuted", "the token is forged or revoked, or signs another result", "Nothing can make this pair good. Ask the publisher for the file that was signed."],
];

/** @type {Record<string, [("good"|"bad"|"open"|"none"), string]>} */
const STATUS = { pass: ["good", "pass"], fail: ["bad", "FAIL"], unknown: ["open", "unknown"], skip: ["none", "skip"] };

/** @typedef {import("../verify/report.js").Report} Report */
/** @typedef {import("../verify/report.js").Said} Said */
/** The claims of an entry or a token that are drawn. @typedef {Pick<Said, "dataset" | "metrics" | "framework" | "model_revision" | "selection" | "completeness" | "value">} Shown */
/**
 * The context of the reports: whether they are about a token alone, the link that was followed, the audience, failed
 * fetches, documents of the trust file that were unavailable, and the digest of the definition that the person vouches for.
 * @typedef {{token: boolean, linked: {content: string} | null, audience: string, faults: import("./evidence.js").Got[],
 *   absent: import("../verify/trust.js").Absence[], definition: string}} Around
 */

/** @param {Element} place @param {Report[]} reports @param {Around} around */
export function drawReports(place, reports, around) {
  const parts = [
    drawLink(reports, around.linked),
    drawFaults(around),
    around.definition ? note("", el("p", "By the benchmark's definition that you vouch for, an ", code("eval.yaml"), " with the digest ", code(around.definition), ".")) : "",
    reports.length > 1 ? drawSummary(reports) : "",
  ];
  show(place, ...parts);
  drawSome(place, reports, around, 0);
}

/** Draw the next reports, and a button for those after them. @param {Element} place @param {Report[]} reports @param {Around} around @param {number} from */
function drawSome(place, reports, around, from) {
  const until = from + AT_ONCE;
  const drawn = reports.slice(from, until).map((report) => drawReport(report, around));
  place.append(...drawn);
  if (until < reports.length) {
    const more = el("button.second", { type: "button" }, `Show more (${(reports.length - until).toLocaleString()} left)`);
    place.append(more);
    more.addEventListener("click", () => {
      more.remove();
      drawSome(place, reports, around, until).focus();
    });
  }
  drawn[0].tabIndex = -1; // the keyboard continues here after a press for more
  return drawn[0];
}

/** @param {Report[]} reports @param {{content: string} | null} linked */
function drawLink(reports, linked) {
  if (!linked) return "";
  const found = reports.find((report) => report.content_digest === linked.content);
  return found
    ? note("", el("p", `Entry ${found.pointer.slice(1)} is the one that the link names.`))
    : note("open", el("p", "No entry of this file has a good token with the digest in the link, so the link is about another result."));
}

/** @param {Around} around */
function drawFaults({ faults, absent }) {
  const rows = [
    ...faults.map((one) => el("li", code(one.url), ": ", said(one.fault))),
    ...absent.filter((one) => !faults.some((other) => other.pointer === one.pointer)).map((one) => el("li", code(one.pointer), ": ", said(one.reason))),
  ];
  return rows.length ? note("open", el("h3", "Unavailable"), el("ul", ...rows.slice(0, MOST_ROWS))) : "";
}

/** @param {Report[]} reports */
function drawSummary(reports) {
  const counts = Object.entries(VERDICTS).map(([name, { word }]) => [word, reports.filter((report) => report.verdict === name).length]);
  const rows = counts.filter(([, count]) => count).map(([word, count]) => [el("th", { scope: "row" }, word), el("td.number", count.toLocaleString())]);
  return el("div", table(`${reports.length.toLocaleString()} entries`, ["Verdict", "Entries"], rows));
}

// -- one entry ----------------------------------------------------------------------------------------------------------

/** @param {Report} report @param {Around} around */
const drawReport = (report, around) => (around.token ? drawToken(report, around) : drawEntry(report, around));

/** @param {Report} report @param {Around} around */
function drawEntry(report, { audience }) {
  const { word, kind } = VERDICTS[report.verdict];
  return el(
    "article",
    el(`div.verdict.${kind}`, el("h2", word), el("p", describe(report))),
    el("h3", "What the file says"),
    drawSaid(report.said, report.repo, audience),
    report.claims ? drawSigned(report) : el("p", "No good signature vouches for it."),
    drawTier(report),
    drawChecks(report),
    drawMeaning(meaningOf(report)),
    drawDigests(report, report.content_digest ? copyLink(report) : ""),
  );
}

/** @param {Report} report @param {Around} around */
function drawToken(report, { audience }) {
  const { claims, verdict } = report;
  const title = verdict === "failed" ? "Not a good token here" : claims ? "A token of this issuer" : "Undecided";
  return el(
    "article",
    el(`div.verdict.${verdict === "failed" ? "bad" : "open"}`, el("h2", title), el("p", "A token, without a file.")),
    el("h3", "What it says"),
    claims ? drawSaid(saidByToken(claims), claims.model_repo, audience) : el("p", "No good signature was found, so its content counts for nothing."),
    claims ? drawSigned(report) : "",
    drawChecks(report),
    drawMeaning(TOKEN),
    drawDigests(report, ""),
  );
}

/** @param {import("../verify/claims.js").RunClaims} claims @returns {Shown} */
const saidByToken = (claims) => ({
  dataset: { id: claims.benchmark_repo, task_id: claims.task_id, revision: claims.benchmark_revision },
  metrics: claims.metrics, framework: claims.framework, model_revision: claims.model_revision, selection: {}, completeness: "",
});

/** @param {Report} report */
function describe({ verdict, reason, said: entry, repo, pointer, path, line }) {
  const place = `${path}, entry ${pointer.slice(1)}${line ? ` (line ${line})` : ""}`;
  const first = entry.metrics[0];
  const score = first ? `${metricName(first)} ${first.value}${entry.metrics.length > 1 ? `, and ${entry.metrics.length - 1} more` : ""}` : "no metric";
  const why = verdict === "good_when_issued" || verdict === "unverified" ? `. ${reason}` : "";
  return said(`${repo} on ${entry.dataset.id}: ${score}. ${place}${why}`);
}

/** @param {Said["metrics"][number]} metric */
const metricName = (metric) => (metric.slice ? `${metric.metric_id} (${metric.slice})` : metric.metric_id);

/** @param {Shown} entry @param {string} repo @param {string} audience */
function drawSaid(entry, repo, audience) {
  const revision = entry.model_revision ?? "";
  const onHub = audience === HUB && REPO.test(repo) && COMMIT.test(revision);
  const commit = onHub ? link(`${HUB}/${repo}/commit/${revision}`, revision) : revision && code(revision);
  const chosen = entry.metrics.some((metric) => entry.selection[metricName(metric)]);
  const rows = entry.metrics.slice(0, MOST_ROWS).map((metric) => [
    el("th", { scope: "row" }, said(metricName(metric))),
    ...(chosen ? [el("td", said(entry.selection[metricName(metric)] ?? ""))] : []),
    el("td.number", said(metric.value)),
  ]);
  return el(
    "div",
    rows.length ? table("Scores", chosen ? ["Metric", "Chosen as", "Value"] : ["Metric", "Value"], rows) : el("p", entry.value === undefined ? "No metric." : `${entry.value}, of a metric without a name.`),
    facts([
      ["Model", repo], ["Model's commit", commit], ["Benchmark", entry.dataset.id], ["Task", entry.dataset.task_id ?? ""],
      ["Benchmark's commit", entry.dataset.revision ? code(entry.dataset.revision) : ""],
      ["Framework", [entry.framework.name, entry.framework.version].filter(Boolean).join(" ")],
      ["Command", entry.framework.command ? code(entry.framework.command) : ""],
      ["Part of the benchmark", entry.completeness === "partial" ? "a partial run" : ""],
    ]),
  );
}

/** @param {Report} report */
function drawSigned(report) {
  const counts = report.verdict === "verified" || report.verdict === "good_when_issued";
  const { caller } = report;
  const ids = Object.entries(caller).filter(([name]) => !["provider", "issuer"].includes(name)).slice(0, 40);
  const many = report.attempt?.number === 64 ? "64 or more" : report.attempt?.number;
  return el(
    "div",
    el("h3", counts ? "Who ran it, and who vouches for it" : "What its token says"),
    facts([
      ["Run by", `${caller.provider ?? "an unnamed provider"}${caller.workflow_ref || caller.job_workflow_ref ? `, workflow ${caller.job_workflow_ref ?? caller.workflow_ref}` : ""}`],
      ["The run", report.run_url ? link(report.run_url, report.run_url) : "the token gives no link to it"],
      ["The run's commit", commitOfRun(report.run_url, caller)],
      ["Signed by", said(report.issuer)], ["For its integration", report.integration],
      ["Signed", moment(report.issued_at)], ["The token's end", moment(report.expires_at)],
      ["Seen by witnesses", moment(report.witnessed_at)],
      ["Attempt", report.attempt ? el("span", `${many}, since `, moment(report.attempt.since)) : ""],
    ]),
    el("details", el("summary", "All that the issuer says about the caller"), facts(ids.map(([name, value]) => [name, code(value)]))),
  );
}

/** Return a link to the workflow's commit, if the URL of the run shows where its repository is. @param {string} url @param {Report["caller"]} caller */
function commitOfRun(url, caller) {
  const sha = typeof caller.sha === "string" ? caller.sha : typeof caller.workflow_sha === "string" ? caller.workflow_sha : "";
  if (!COMMIT.test(sha)) return "";
  const found = /^(https:\/\/[^?#]+?)(\/actions\/runs\/|\/-\/jobs\/)/.exec(url);
  return found ? link(`${found[1]}${found[2].startsWith("/-") ? "/-" : ""}/commit/${sha}`, sha) : code(sha);
}

/** @param {Report} report */
function drawTier({ tier, tier_reason: reason, verdict }) {
  const own = TIERS.find(([name]) => name === tier);
  const ranks = TIERS.slice(0, 5).map(([name, what]) => el("li", name === tier ? { "aria-current": "true" } : "", `${name}: ${what}`));
  const apart = own && TIERS.indexOf(own) > 4 ? el("p", el("strong", `${own[0]}: `), own[1]) : "";
  return el(
    `section.${VERDICTS[verdict].kind}`,
    el("h3", "How strong the evidence is"), apart,
    el("ol.ladder", ...ranks),
    el("p", el("strong", "Why: "), said(reason)),
    own?.[2] ? el("p", el("strong", "What would make it stronger: "), own[2]) : "",
  );
}

/** @param {Report} report */
function drawChecks({ checks }) {
  const rows = checks.map((check) => {
    const [kind, word] = STATUS[check.status];
    return [
      result(kind, word),
      el("th", { scope: "row" }, `${check.number}. ${check.name}`),
      el("td", said(check.evidence), check.token || check.file ? facts([["In the token", code(check.token || "–")], ["Here", code(check.file || "–")]]) : ""),
    ];
  });
  const counted = Object.entries(STATUS).map(([name, [, word]]) => [checks.filter((check) => check.status === name).length, word]);
  const caption = `All ${checks.length} checks: ${counted.filter(([count]) => count).map(([count, word]) => `${count} ${word}`).join(", ")}`;
  return el("div.checks", table(caption, ["Result", "Check", "Evidence"], rows));
}

/** @typedef {{proves: string, not: string}} Meaning */

/** @param {Report} report @returns {Meaning} */
function meaningOf({ checks, verdict }) {
  const failed = checks.filter(({ status }) => status === "fail");
  const rest = checks.every(({ number, status }) => status === "fail" || number > 9 || status === "pass");
  return (failed.length === 1 && rest && ONLY_FAILED[failed[0].number]) || VERDICTS[verdict];
}

/** @param {Meaning} meaning */
const drawMeaning = (meaning) =>
  note("", facts([["This proves", el("span", meaning.proves)], ["It does not prove", el("span", meaning.not)]]));

/** @param {Report} report @param {Node | string} link */
function drawDigests(report, link) {
  const digests = facts([
    ["The token", report.token_digest ? code(report.token_digest) : ""], ["The content", report.content_digest ? code(report.content_digest) : ""],
    ["jti", report.jti ? code(report.jti) : ""], ["Key", report.kid ? code(report.kid) : ""],
  ]);
  return digests ? el("details", el("summary", "Digests, and a link"), digests, link) : "";
}

/** Return a link with digests and the path of the file, but without the token. @param {Report} report */
function copyLink(report) {
  const parts = new URLSearchParams({ repo: report.repo, path: report.path, content: report.content_digest });
  const address = `${location.origin}${location.pathname}#${parts}`;
  const said_ = el("span.quiet", { role: "status" });
  const button = el("button.second", { type: "button" }, "Copy a link to this result");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(address);
      said_.textContent = "Copied. It has digests and no token.";
    } catch {
      said_.textContent = `Not copied; it is ${address}`;
    }
  });
  return el("p.buttons", button, said_);
}
