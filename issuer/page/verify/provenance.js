/**
 * Where people can look at the run that asked for a token: a link from a token's `caller`.
 *
 * The caller is what the issuer verified of a workload identity: ids that are public and stay. A link needs names, too,
 * so there is one only where what is bound spells them out, for GitHub Actions and GitLab; no check rests on it.
 */

/** @typedef {Record<string, string | number | boolean>} Caller */

const GITHUB = /^https:\/\/token\.actions\.(?:githubusercontent\.com|([a-z0-9-]+)\.ghe\.com)(?:\/[A-Za-z0-9_-]+)?$/;
const GITHUB_SERVER = /^(https:\/\/[A-Za-z0-9.-]+(?::[0-9]+)?)\/_services\/token$/;
// No part of a path is `.` or `..`, by which a link would lead elsewhere than it reads.
const PART = "(?!\\.{1,2}(?:/|$))[A-Za-z0-9_.-]+";
const GITHUB_WORKFLOW = new RegExp(`^([A-Za-z0-9-]+/${PART})/\\.github/workflows/[^@]+@.+$`);
const GITLAB = new RegExp(`^https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/${PART})*$`);
const GITLAB_CONFIG = new RegExp(`^(${PART}(?:/${PART})+)//[^@]+@.+$`);
const NUMBER = /^[0-9]{1,20}$/;

/** The owner of a workload, by the id that outlives its name; not what one owner may have several of, as subgroups. */
const OWNERS = [
  "repository_owner_id",
  "organization_id",
  "oidc.circleci.com/org-id",
  "workspaceUuid",
  "tid",
  "https://sts.amazonaws.com/aws_account",
  "account_id",
  "account",
  "id",
];

/**
 * Where people can look at the run, or "" where what is bound does not say.
 *
 * The name of its repository is in that of the workflow's file, which may lie in another repository: it counts where
 * both are of one commit.
 * @param {Caller} caller
 */
export const runUrl = (caller) => github(caller) || gitlab(caller);

/** @param {Caller} caller */
function github(caller) {
  const site = githubSite(text(caller, "issuer"));
  const workflow = GITHUB_WORKFLOW.exec(text(caller, "job_workflow_ref"));
  const commit = text(caller, "workflow_sha");
  const run = text(caller, "run_id");
  if (!site || !workflow || !commit || text(caller, "job_workflow_sha") !== commit || !NUMBER.test(run)) return "";
  const attempt = text(caller, "run_attempt");
  return `${site}/${workflow[1]}/actions/runs/${run}${NUMBER.test(attempt) ? `/attempts/${attempt}` : ""}`;
}

/** @param {string} issuer */
function githubSite(issuer) {
  const found = GITHUB.exec(issuer);
  if (found) return found[1] ? `https://${found[1]}.ghe.com` : "https://github.com";
  return GITHUB_SERVER.exec(issuer)?.[1] ?? "";
}

/** @param {Caller} caller */
function gitlab(caller) {
  const [issuer, job] = [text(caller, "issuer"), text(caller, "job_id")];
  // What it begins by is the instance, with the path below which that lies.
  const prefix = `${issuer.replace(/^https:\/\//, "")}/`;
  const uri = text(caller, "ci_config_ref_uri");
  const config = uri.startsWith(prefix) ? GITLAB_CONFIG.exec(uri.slice(prefix.length)) : null;
  const commit = text(caller, "sha");
  const own = commit !== "" && text(caller, "ci_config_sha") === commit;
  return GITLAB.test(issuer) && config && own && NUMBER.test(job) ? `${issuer}/${config[1]}/-/jobs/${job}` : "";
}

/**
 * Why two workloads may be one owner's, or "": they are at two providers, or at one of two owners.
 * @param {Caller} first
 * @param {Caller} second
 */
export function doubtOfTwoOwners(first, second) {
  if (providerOf(first) !== providerOf(second)) return "";
  const [one, other] = [ownerOf(first), ownerOf(second)];
  if (one === null || other === null)
    return "both were asked for at one provider, and whether by two owners cannot be told";
  return one === other ? "both were asked for by workloads of one owner" : "";
}

/** @param {Caller} caller */
function ownerOf(caller) {
  const name = OWNERS.find((each) => Object.hasOwn(caller, each));
  return name === undefined ? null : String(caller[name]);
}

/**
 * Within what an id is one owner's. An enterprise's own issuer at github.com has the ids of github.com.
 * @param {Caller} caller
 */
function providerOf(caller) {
  const issuer = text(caller, "issuer");
  return githubSite(issuer) || issuer;
}

/**
 * @param {Caller} caller
 * @param {string} name
 */
const text = (caller, name) => (Object.hasOwn(caller, name) && typeof caller[name] === "string" ? caller[name] : "");
