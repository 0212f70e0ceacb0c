// Sorts and filters rows. Without this script the page shows all rows in their order.
const rows = [...document.querySelectorAll("tbody tr[data-tier]")];
const points = [...document.querySelectorAll("use[data-tier]")];
const tier = document.getElementById("tier");
const framework = document.getElementById("framework");
const count = document.getElementById("count");

const chosen = (item) =>
  (tier.value === "" || tier.value.split(" ").includes(item.dataset.tier)) &&
  (framework.value === "" || framework.value === "=" + item.dataset.framework);

const choose = () => {
  for (const item of rows) item.hidden = !chosen(item);
  for (const item of points) item.toggleAttribute("hidden", !chosen(item));
  const left = rows.filter((row) => !row.hidden).length;
  count.textContent = `${left} of ${rows.length} rows`;
};

const order = (one, other) => {
  // A cell without a value is last in both directions.
  const [a, b] = [one.key, other.key];
  if (a === "" || b === "") return (a === "") - (b === "");
  const numbers = Number(a) - Number(b);
  return one.sign * (Number.isNaN(numbers) ? (a < b ? -1 : a > b ? 1 : 0) : numbers);
};

const sort = (head, column) => {
  const body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const keyed = [...body.rows].map((row) => ({ row, key: row.cells[column].dataset.key, sign: up ? 1 : -1 }));
  body.append(...keyed.sort(order).map((one) => one.row));
};

for (const head of document.querySelectorAll("table.board th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => sort(head, head.cellIndex));
}
for (const list of [tier, framework]) list.addEventListener("change", choose);
document.getElementById("choose").hidden = false;
choose();
