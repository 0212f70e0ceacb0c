// Does in Debian's Firefox what a person does, with the steps of tests/support/browser/drive.mjs that are here, and prints what was seen:
//   node drive.mjs STEPS.json SHOTS
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { firefox } from "./firefox.mjs";

const [plan, shots] = process.argv.slice(2);
const steps = JSON.parse(readFileSync(plan, "utf8"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await firefox();
const texts = (page, place) => page.$$eval(place, (all) => all.map((one) => one.innerText));

const doing = {
  goto: (page, _look, url) => page.goto(url, { waitUntil: ["load", "networkidle0"] }),
  back: (page) => page.goBack({ waitUntil: "networkidle0" }),
  fill: (page, _look, place, text) => page.locator(place).fill(text),
  click: (page, _look, place) => page.locator(place).click(),
  press: (page, _look, key) => page.keyboard.press(key),
  files: async (page, _look, place, paths) => (await page.$(place)).uploadFile(...paths),
  // Playwright's `PLACE:has-text('...')` is the one form beyond CSS that steps use.
  wait: (page, _look, place) => {
    const [, where, text] = /^(.*?)(?::has-text\('(.*)'\))?$/.exec(place);
    const isThere = (selector, wanted) => [...document.querySelectorAll(selector)].some((one) => one.innerText.includes(wanted));
    return page.waitForFunction(isThere, { timeout: 60_000 }, where, text ?? "");
  },
  drop: (page, _look, place, name, text) => page.evaluate((where, file, content) => {
    const dropped = new DataTransfer();
    dropped.items.add(new File([content], file));
    const event = { dataTransfer: dropped, bubbles: true, cancelable: true };
    document.querySelector(where).dispatchEvent(new DragEvent("drop", event));
  }, place, name, text),
  text: async (page, look, name, place) => { [look[name]] = await texts(page, place); },
  texts: async (page, look, name, place) => { look[name] = await texts(page, place); },
  value: async (page, look, name, place) => { look[name] = await page.$eval(place, (one) => one.value); },
  count: async (page, look, name, place) => { look[name] = (await page.$$(place)).length; },
  evaluate: async (page, look, name, program) => { look[name] = await page.evaluate(program); },
  shot: (page, look, name) => page.screenshot({ path: `${shots}/${name}.png`, fullPage: true }),
  axe: async (page, look, name) => {
    await page.evaluate(axe);
    const found = await page.evaluate("axe.run()");
    look[name] = found.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => one.id);
    look.wider = Math.max(look.wider ?? 0, await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"));
  },
};

const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 900 });
const look = {};
const visit = { look, said: [], requests: [] };
page.on("console", (message) => visit.said.push(message.text()));
page.on("pageerror", (error) => visit.said.push(String(error)));
page.on("dialog", (dialog) => { visit.said.push(dialog.message()); void dialog.dismiss(); });
page.on("request", (request) => visit.requests.push([request.method(), request.url(), request.headers().authorization ?? ""]));
for (const [verb, ...given] of steps) {
  try {
    await doing[verb](page, look, ...given);
  } catch (error) {
    await page.screenshot({ path: `${shots}/failed.png`, fullPage: true });
    throw new Error(`${verb} ${JSON.stringify(given).slice(0, 300)}: ${error.message}\n${visit.said.join("\n")}`);
  }
}
visit.cookies = await page.cookies();
await browser.close();
console.log(JSON.stringify(visit));
