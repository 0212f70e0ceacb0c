// Shows moments in the reader's own zone, with UTC beside them: those that a page was written with, and those that are drawn.

/** Show a moment in its element. @param {Element} time @param {Date} at a moment that is one */
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
