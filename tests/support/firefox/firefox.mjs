// Debian's Firefox, driven by the W3C's protocol (WebDriver BiDi): Playwright drives only a Firefox of its own making.
import puppeteer from "puppeteer-core";

/** A browser that has seen nothing. */
export const firefox = () =>
  puppeteer.launch({ browser: "firefox", executablePath: "/usr/bin/firefox-esr", headless: true, protocolTimeout: 600_000 });
