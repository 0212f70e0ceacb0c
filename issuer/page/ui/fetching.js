// Fetches of a page, after a person has seen the URL and agreed: bounded in bytes and time, and without cookies.

export const WAIT_MS = 15_000;
const MOST_PROBLEM = 64 * 1024;

/** Read an answer's body. Throws RangeError if it is larger than `most`. @param {Response} answer @param {number} most bytes */
export async function readBounded(answer, most) {
  const reader = answer.body?.getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let size = 0;
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new RangeError(`more than ${most.toLocaleString("en")} bytes`);
    }
    parts.push(value);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/**
 * Fetch one document. Never throws: `fault` has the error.
 * @param {string} url @param {number} most bytes @param {AbortSignal[]} signals that end the fetch early
 * @returns {Promise<{bytes: Uint8Array | null, status: number, fault: string, code: string, at: number}>} `at`: the
 *   time of the request, Unix seconds; `code`: from the problem document (RFC 9457) of a refusal
 */
export async function fetchDocument(url, most, ...signals) {
  const at = Math.floor(Date.now() / 1000);
  try {
    const answer = await fetch(url, {
      credentials: "omit", redirect: "error", cache: "no-cache", referrerPolicy: "no-referrer", signal: AbortSignal.any([AbortSignal.timeout(WAIT_MS), ...signals]),
    });
    if (answer.status !== 200) return { bytes: null, status: answer.status, fault: `it answered ${answer.status}`, code: await codeOf(answer), at };
    return { bytes: await readBounded(answer, most), status: 200, fault: "", code: "", at };
  } catch (error) {
    return { bytes: null, status: 0, fault: faultOf(error), code: "", at };
  }
}

/** @param {Response} answer */
async function codeOf(answer) {
  if (!(answer.headers.get("content-type") ?? "").startsWith("application/problem+json")) return "";
  try {
    /** @type {{code?: unknown}} */
    const { code } = JSON.parse(new TextDecoder().decode(await readBounded(answer, MOST_PROBLEM)));
    return typeof code === "string" ? code : "";
  } catch {
    return "";
  }
}

/** @param {unknown} error */
function faultOf(error) {
  if (error instanceof RangeError) return `the answer has ${error.message}`;
  if (error instanceof DOMException && error.name === "TimeoutError") return `no complete answer in ${WAIT_MS / 1000} s`;
  return "it could not be reached, redirects, or does not allow pages of other origins to read it";
}
