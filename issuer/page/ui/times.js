// Shows each moment of a page that was written elsewhere in the reader's own zone, with UTC beside it.
import { moment } from "./dom.js";

for (const time of document.querySelectorAll("time[datetime]")) {
  const at = Date.parse(time.getAttribute("datetime") ?? "");
  if (!Number.isNaN(at)) time.replaceWith(moment(at / 1000));
}
