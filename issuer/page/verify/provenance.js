/**
 * A link to the run that requested a token, from the token's `caller`.
 *
 * `caller` has the permanent public ids of a workload identity, as the issuer verified them. A link also needs names.
 * So there are links only for GitHub Actions and GitLab, if the token's claims spell the names out. No check depends on
 * them.
 */

/** @typedef {Record<string, string | number | boolean>} Caller */

const GITHUB = /^https:\/\/token\.actions\.(?:githubusercontent\.com|([a-z0-9-]+)\.ghe\.com)(?:\/[A-Za-z0-9_-]+)?$/;
const GITHUB_SERVER = /^(https:\/\/[A-Za-z0-9.-]+(?::[0-9]+)?)\/_services\/token$/;
// A path segment `.` or `..` would make the link lead elsewhere than it reads.
const PART = "(?!\\.{1,2}(?:/|$))[A-Za-z0-9_.-]+";
// `[^\n]` is the `.` of Python; the `.` of JavaScript also excludes \r, U+2028 and U+2029.
const GITHUB_WORKFLOW = new RegExp(`^([A-Za-z0-9-]+/${PART})/\\.github/workflows/[^@]+@[^\\n]+$`);
const GITLAB = new RegExp(`^https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/${PART})*$`);
const GITLAB_CONFIG = new RegExp(`^(${PART}(?:/${PART})+)//[^@]+@[^\\n]+$`);
const NUMBER = /^[0-9]{1,20}$/;

/** The accounts of personal access tokens: those of an issuer, and those of Hugging Face. */
const PERSONAL = ["account", "id"];
/**
 * The ids of a workload's owner that outlive its name. An id of which one owner may have several, such as a subgroup's,
 * is not listed.
 */
const OWNERS = [
  "repository_owner_id",
  "organization_id",
  "oidc.circleci.com/org-id",
  "workspaceUuid",
  "tid",
  "https://sts.amazonaws.com/aws_account",
  "account_id",
  ...PERSONAL,
];

/**
 * Return a page about the run, or "" if the claims do not say.
 *
 * The repository's name comes from the path of the workflow file, which may be in another repository: the name counts
 * only if both have the same commit.
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
  // The reference begins with the instance's host and the path under which it is served.
  const prefix = `${issuer.replace(/^https:\/\//, "")}/`;
  const uri = text(caller, "ci_config_ref_uri");
  const config = uri.startsWith(prefix) ? GITLAB_CONFIG.exec(uri.slice(prefix.length)) : null;
  const commit = text(caller, "sha");
  const own = commit !== "" && text(caller, "ci_config_sha") === commit;
  return GITLAB.test(issuer) && config && own && NUMBER.test(job) ? `${issuer}/${config[1]}/-/jobs/${job}` : "";
}

/**
 * Return why two workloads may have one owner, or "" if one provider or two name two owners. Between two providers, the
 * account of a personal access token does not count: the owner of a workload easily gets such a token, too.
 * @param {Caller} first
 * @param {Caller} second
 */
export function doubtOfTwoOwners(first, second) {
  const [one, other] = [ownerMember(first), ownerMember(second)];
  if (one === undefined || other === undefined) return "the owner of a caller is unknown";
  if (providerOf(first) === providerOf(second))
    return String(first[one]) === String(second[other]) ? "both callers are workloads of one owner" : "";
  const personal = PERSONAL.includes(one) || PERSONAL.includes(other);
  return personal ? "the holder of a personal access token may also own the other caller" : "";
}

/** @param {Caller} caller */
const ownerMember = (caller) => OWNERS.find((each) => Object.hasOwn(caller, each));

/**
 * Return the provider whose ids are compared. An enterprise's issuer at github.com shares the ids of github.com.
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
