// Shows times in the reader's zone, with UTC beside them: times in the page's markup, and times that scripts draw.

/** Show a time in its element. @param {Element} time @param {Date} at a valid date */
export function showTime(time, at) {
  const own = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const beside = document.createElement("span");
  beside.className = "utc";
  beside.textContent = `(${at.toISOString().slice(0, 19).replace("T", " ")} UTC)`;
  time.replaceChildren(`${own.replace(/\p{Zs}/gu, " ")} `, beside);
}

for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.getAttribute("datetime") ?? "");
  if (!Number.isNaN(at.getTime())) showTime(time, at);
}
