// Does in Debian's Chromium what a person does, and prints as JSON what was seen.
//   node drive.mjs STEPS.json SHOTS
// STEPS: {themes, widths, steps: [[verb, ...arguments], ...]}; each step that looks adds to `looks`, by its name.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [plan, shots] = process.argv.slice(2);
const { themes, widths, steps } = JSON.parse(readFileSync(plan, "utf8"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const seen = { visits: [] };

// A busy machine can be idle on the network for half a second before it runs the page's modules: "load" comes after them.
const loaded = async (page, going) => {
  await going({ waitUntil: "load" });
  await page.waitForLoadState("networkidle");
};

const doing = {
  goto: (page, _look, url) => loaded(page, (until) => page.goto(url, until)),
  reload: (page) => loaded(page, (until) => page.reload(until)),
  back: (page) => loaded(page, (until) => page.goBack(until)),
  fill: (page, _look, place, text) => page.fill(place, text),
  click: (page, _look, place) => page.click(place),
  press: (page, _look, key) => page.keyboard.press(key),
  files: (page, _look, place, paths) => page.setInputFiles(place, paths),
  wait: (page, _look, place) => page.waitForSelector(place, { timeout: 60_000 }),
  // As a person drops them: by the event, with files of these names and texts.
  drop: (page, _look, place, ...files) => page.evaluate(([where, ...given]) => {
    const dropped = new DataTransfer();
    for (let at = 0; at < given.length; at += 2) dropped.items.add(new File([given[at + 1]], given[at]));
    const event = { dataTransfer: dropped, bubbles: true, cancelable: true };
    document.querySelector(where).dispatchEvent(new DragEvent("drop", event));
  }, [place, ...files]),
  // From "clock" on the page's own timers can be put forward; what runs in workers, and the network, has the real time.
  clock: (page) => page.clock.install(),
  forward: (page, _look, ms) => page.clock.fastForward(ms),
  // How many workers there are; where it is said how many there have to be, once there are, or after ten seconds. The
  // browser tells of the end of one a moment later.
  workers: async (page, look, name, wanted) => {
    for (let left = 100; left && wanted !== undefined && page.workers().length !== wanted; left--)
      await new Promise((resolve) => setTimeout(resolve, 100));
    look[name] = page.workers().length;
  },
  // Milliseconds since the last look at the time, or since the visit began.
  took: (_page, look, name) => { [look[name], look.began] = [performance.now() - look.began, performance.now()]; },
  // The most memory, in MiB, that a process which draws pages has had since it began (Linux: VmHWM); workers run in it.
  memory: async (_page, look, name) => {
    const { processInfo } = await (await browser.newBrowserCDPSession()).send("SystemInfo.getProcessInfo");
    const most = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${id}/status`, "utf8"))[1]));
    look[name] = Math.max(...most) / 1024;
  },
  text: async (page, look, name, place) => { look[name] = await page.locator(place).first().innerText(); },
  texts: async (page, look, name, place) => { look[name] = await page.locator(place).allInnerTexts(); },
  value: async (page, look, name, place) => { look[name] = await page.inputValue(place); },
  links: async (page, look, name, place) => { look[name] = await page.locator(place).evaluateAll((all) => all.map((one) => one.href)); },
  count: async (page, look, name, place) => { look[name] = await page.locator(place).count(); },
  evaluate: async (page, look, name, program) => { look[name] = await page.evaluate(program); },
  focused: async (page, look, name) => { look[name] = await page.evaluate("document.activeElement.id || document.activeElement.textContent"); },
  shot: (page, look, name) => page.screenshot({ path: `${shots}/${name}-${look.theme}-${look.width}.png`, fullPage: true }),
  // How many bytes the view took, had no cache held any of them.
  weigh: async (page, look, name) => {
    look[name] = await page.evaluate(() => performance.getEntries().reduce((sum, one) => sum + (one.encodedBodySize ?? 0), 0));
  },
  // What a person without a mouse finds: what Tab never comes to, and where it is on something and nobody sees that.
  tab: async (page, look, name) => {
    const most = await page.evaluate(() => {
      const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
      const isReached = (one) => one.checkVisibility() && !one.disabled && !(one.type === "radio" && !one.checked);
      globalThis.left = new Set([...all].filter(isReached));
      globalThis.unseen = [];
      return globalThis.left.size;
    });
    for (let presses = 0; presses < most + 3; presses += 1) {
      await page.keyboard.press("Tab");
      await page.evaluate(() => {
        const one = document.activeElement;
        const { right, bottom, width } = one.getBoundingClientRect();
        const isDrawn = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
        const isSeen = right > 0 && bottom > 0 && width > 0 && (isDrawn(getComputedStyle(one)) || isDrawn(getComputedStyle(one, "::after")));
        if (globalThis.left.delete(one) && !isSeen) globalThis.unseen.push(one.outerHTML.slice(0, 200));
      });
    }
    look[name] = await page.evaluate(() => ({ never: [...globalThis.left].map((one) => one.outerHTML.slice(0, 200)), unseen: globalThis.unseen }));
  },
  axe: async (page, look, name) => {
    await page.evaluate(axe);
    const found = await page.evaluate("axe.run()");
    look[name] = found.violations
      .filter((one) => ["serious", "critical"].includes(one.impact))
      .map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
    look.wider = Math.max(look.wider ?? 0, await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"));
  },
};

for (const theme of themes) {
  for (const width of widths) {
    const context = await browser.newContext({ colorScheme: theme, viewport: { width, height: 900 }, timezoneId: "Europe/Berlin", locale: "en-GB" });
    const page = await context.newPage();
    const look = { theme, width, began: performance.now() };
    const visit = { look, said: [], requests: [], bytes: 0 };
    page.on("console", (message) => visit.said.push(message.text()));
    page.on("pageerror", (error) => visit.said.push(String(error)));
    page.on("dialog", (dialog) => { visit.said.push(dialog.message()); dialog.dismiss(); });
    page.on("request", (request) => visit.requests.push([request.method(), request.url(), request.headers().authorization ?? ""]));
    page.on("response", async (answer) => { visit.bytes += (await answer.body().catch(() => "")).length; });
    for (const [verb, ...given] of steps) {
      try {
        await doing[verb](page, look, ...given);
      } catch (error) {
        await page.screenshot({ path: `${shots}/failed-${theme}-${width}.png`, fullPage: true });
        throw new Error(`${verb} ${JSON.stringify(given).slice(0, 300)}: ${error.message}\n${visit.said.join("\n")}`);
      }
    }
    visit.cookies = await context.cookies();
    seen.visits.push(visit);
    await context.close();
  }
}
await browser.close();
console.log(JSON.stringify(seen));
