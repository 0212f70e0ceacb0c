// Opens a page in Debian's Chromium as a reader does, and prints as JSON what was seen there.
//   node look.mjs FILE SHOTS
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [file, shots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const seen = { looks: [], requests: [], said: [] };
for (const theme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    const page = await browser.newPage({ colorScheme: theme, viewport: { width, height: 900 } });
    page.on("console", (message) => seen.said.push(message.text()));
    page.on("pageerror", (error) => seen.said.push(String(error)));
    page.on("dialog", (dialog) => { seen.said.push(dialog.message()); dialog.dismiss(); });
    page.on("request", (request) => seen.requests.push(request.url()));
    await page.goto(`file://${file}`);
    await page.screenshot({ path: `${shots}/${theme}-${width}.png`, fullPage: true });
    const rows = () => page.locator("table.board tbody tr:visible").evaluateAll((all) => all.map((row) => row.cells[1].firstChild.textContent));
    const look = { theme, width, title: await page.title(), rows: await rows() };
    look.wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    await page.locator("table.board th button", { hasText: "Model" }).first().click();
    look.sorted = await rows();
    await page.selectOption("#tier", "reproduced logged verified");
    look.verified = await rows();
    look.points = await page.locator("use[data-tier]:visible").count();
    await page.selectOption("#tier", "");
    await page.selectOption("#framework", { index: 1 });
    look.framework = await rows();
    look.count = await page.locator("#count").textContent();
    await page.selectOption("#framework", "");
    await page.evaluate(axe);
    const found = await page.evaluate("axe.run()");
    look.axe = found.violations
      .filter((one) => ["serious", "critical"].includes(one.impact))
      .map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
    seen.looks.push(look);
    await page.close();
  }
}
// Without JavaScript: what is there to be read, and no control that would do nothing.
const still = await (await browser.newContext({ javaScriptEnabled: false })).newPage();
await still.goto(`file://${file}`);
seen.still = {
  rows: await still.locator("table.board tbody tr:visible").count(),
  points: await still.locator("use[data-tier]:visible").count(),
  controls: await still.locator("button:visible, select:visible, input:visible").count(),
};
await browser.close();
console.log(JSON.stringify(seen));
