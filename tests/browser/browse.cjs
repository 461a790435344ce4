// What the browser does: `node browse.cjs OPTIONS`, where OPTIONS is JSON. It writes a line of JSON for each thing that it has found out.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const options = JSON.parse(process.argv[2]);
const { chromium } = require(path.join(options.modules, "playwright-core"));
const AXE = fs.readFileSync(path.join(options.modules, "axe-core", "axe.min.js"), "utf8");
const VIEWS = ["", "tree", "crashes", "sessions", "upstreams", "calls", "tools", "wire", "pools", "tasks", "questions", "loop", "faults"];
const BAD = new Set(["serious", "critical"]);
const TIME = 20000;

const tell = (what, wrong, more = {}) => process.stdout.write(`${JSON.stringify({ what, wrong, ...more })}\n`);
const trouble = [];
const requests = new Set();

const main = async () => {
  const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, serviceWorkers: "block", reducedMotion: "reduce" });
    context.setDefaultTimeout(TIME);
    const origin = new URL(options.link).origin;
    await context.route("**/*", (route) => (new URL(route.request().url()).origin === origin ? route.continue() : route.abort()));
    context.on("request", (request) => requests.add(new URL(request.url()).origin));
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
      window[`zz${"mark"}`] = () => console.error("a hostile text was run");
    });
    const open = async () => {
      const page = await context.newPage();
      page.on("console", (said) => ["error", "warning"].includes(said.type()) && trouble.push(`${page.url()}: ${said.text()}`));
      page.on("pageerror", (error) => trouble.push(`${page.url()}: ${error.message}`));
      page.on("dialog", (dialog) => trouble.push(`${page.url()}: a dialog: ${dialog.message()}`) && dialog.dismiss());
      return page;
    };
    const page = await open();
    const base = new URL("/observe/", origin).href;
    await page.goto(options.link);
    tell("sign in", page.url() === base ? [] : [`the address is ${page.url()}`]);
    const other = await open();

    await heals(page, other, base);
    const waiting = [
      ...VIEWS.map((view) => (lane) => look(lane, base, view)),
      async (lane) => look(lane, base, await firstLink(lane, base, "tree", 'a[href^="/observe/process"]', "clock"), "process"),
      async (lane) => look(lane, base, await firstLink(lane, base, "calls", 'a[href^="/observe/call?"]', "book_room"), "call"),
      (lane) => look(lane, base, "tools?tool=add&program=greenroom-demo", "tool"),
      async (lane) => look(lane, base, await firstLink(lane, base, "crashes", 'a[href*="crash="]', "RuntimeError"), "crash"),
      () => withoutScript(browser, context, base),
    ];
    const work = async (lane) => {
      while (waiting.length) await waiting.shift()(lane);
    };
    await Promise.all([page, other, await open()].map(work)); // most of the time is spent in waiting for the next second

    tell("requests", [...requests].filter((each) => each !== origin).map((each) => `a request to ${each}`));
    tell("console and content security policy", trouble);
  } finally {
    await browser.close();
  }
};

const see = async (page, view = "") => {
  await page.locator("[data-live]", { hasText: "live" }).first().waitFor();
  return view;
};

const firstLink = async (page, base, view, selector, text) => {
  await page.goto(base + view);
  await see(page);
  const href = await page.locator(selector, { hasText: text }).first().getAttribute("href");
  return href.replace("/observe/", "");
};

// --- what is told of each view

const look = async (page, base, view, name = view || "now") => {
  const wrong = [];
  await page.emulateMedia({ colorScheme: "light" });
  const response = await page.goto(base + view);
  if (response.status() !== 200) wrong.push(`status ${response.status()}`);
  await see(page);
  await page.waitForFunction(() => document.querySelectorAll("[data-curve] .plot canvas").length >= document.querySelectorAll("[data-curve]").length);
  if (name === "wire") await page.locator(".wire > details > summary").nth(2).click();
  await picture(page, name);
  await page.locator("#pause").click(); // what changes while it is judged proves nothing
  await page.locator("[data-live]", { hasText: "paused" }).waitFor();
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    wrong.push(...(await judged(page)).map((each) => `${colorScheme}: ${each}`));
    if (colorScheme === "dark" && ["now", "tree"].includes(name)) await picture(page, `${name}-dark`);
  }
  await page.emulateMedia({ colorScheme: "light" });
  wrong.push(...(await hostile(page)));
  const { missed, reached } = await tabbed(page);
  wrong.push(...missed);
  tell(`view ${name}`, wrong, { reached });
};

const judged = async (page) => {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], preload: false }));
  return violations.filter((each) => BAD.has(each.impact)).map((each) => `axe: ${each.id} (${each.impact}): ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
};

const hostile = (page) =>
  page.evaluate((mark) => {
    const found = [];
    if (document.querySelector(mark)) found.push("a hostile text became an element");
    if (document.querySelector("script:not([src]), style, [style*=expression], [onerror], [onclick], iframe")) found.push("something is inline");
    for (const link of document.querySelectorAll("a[href], form[action]")) {
      const address = new URL(link.href ?? link.action, location.href);
      if (address.origin !== location.origin || !address.pathname.startsWith("/observe/")) found.push(`a link to ${address.href.slice(0, 80)}`);
    }
    if (/[\u202a-\u202e\u2066-\u2069]/.test(document.body.textContent)) found.push("a control of the writing direction");
    if (document.documentElement.scrollWidth > document.documentElement.clientWidth) found.push("the page is wider than the window");
    return found;
  }, options.mark);

// Tab through the whole page, from where the reader was. Everything that can be used has to be reached, and to be seen to be.
const tabbed = async (page) => {
  const wanted = await page.evaluate(() => {
    document.activeElement?.blur();
    scrollTo(0, 0);
    const usable = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter(
      (each) => each.tabIndex >= 0 && !each.disabled && each.type !== "hidden" && each.checkVisibility({ visibilityProperty: true }),
    );
    usable.forEach((each, number) => each.setAttribute("data-walk", String(number)));
    return usable.length;
  });
  const missed = [];
  const seen = new Set();
  for (let steps = 0; seen.size < wanted && steps < wanted + 10 && steps < options.steps; steps += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { walk: document.activeElement.getAttribute("data-walk"), isSeen: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2, html: document.activeElement.outerHTML.slice(0, 120) };
    });
    if (at.walk === null) continue; // the end of the page: the next is its beginning
    if (!at.isSeen) missed.push(`no visible focus: ${at.html}`);
    seen.add(at.walk);
  }
  const reached = seen.size;
  if (reached < Math.min(wanted, options.steps)) missed.push(`Tab reaches ${reached} of ${wanted}`);
  return { missed: missed.slice(0, 5), reached };
};

const picture = async (page, name) => {
  if (!options.pictures) return;
  await page.mouse.move(0, 799);
  await page.evaluate((folder) => {
    scrollTo(0, 0);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.nodeValue = texts.currentNode.nodeValue.replaceAll(folder, ""); // of the machine that made the picture
  }, `${options.root}/`);
  await page.screenshot({ path: path.join(options.pictures, `observe-${name}.png`) });
};

// --- what happens before the reader's eyes, without a reload

const heals = async (page, other, base) => {
  // A tool is crashed from another page; this one sees the crash, and the process that came after.
  await page.goto(`${base}pools`);
  await see(page);
  const first = await page.locator("tbody th").first().innerText();
  await page.evaluate(() => (window.isSame = true));
  await other.goto(`${base}tools?tool=segfault&program=greenroom-demo`);
  await other.locator("button", { hasText: "Call it" }).click();
  await other.locator("#confirm").waitFor();
  await page.waitForFunction((before) => !["–", before].includes(document.querySelector("tbody th").innerText), first);
  tell("a tool crashes, and its process is replaced", (await page.evaluate(() => window.isSame)) ? [] : ["the page was loaded again"]);

  // A supervised process is killed from a dialog, by the keyboard alone; the tree shows the next one in colour.
  await page.goto(`${base}tree?text=library/registry`);
  await see(page);
  await page.evaluate(() => (window.isSame = true));
  const row = page.locator("tr", { hasText: "CatalogueRegistrar" }).first();
  const pid = await row.locator("td").last().innerText();
  await other.goto(`${base}process?pid=${encodeURIComponent(pid.trim())}`);
  await other.locator("a[data-confirm]", { hasText: "Kill" }).focus();
  await other.keyboard.press("Enter");
  await other.locator("dialog[open] button", { hasText: "Kill" }).waitFor();
  const isCancelFocused = await other.evaluate(() => document.activeElement?.textContent === "Cancel");
  await other.keyboard.press("Tab");
  await other.keyboard.press("Enter");
  await other.locator("dialog[open] [role=status]", { hasText: "Done" }).waitFor();
  await other.keyboard.press("Escape");
  await page.locator("tr.fresh", { hasText: "CatalogueRegistrar" }).first().waitFor();
  const after = await row.locator("td").last().innerText();
  tell("a process is killed and restarted in colour", [
    ...((await page.evaluate(() => window.isSame)) ? [] : ["the page was loaded again"]),
    ...(isCancelFocused ? [] : ["the dialog does not begin at Cancel"]),
    ...(after === pid ? ["the pid is the same"] : []),
  ]);

  // The process of an upstream is killed by the system; the page sees it go and come back.
  await page.goto(`${base}upstreams`);
  await see(page);
  await page.evaluate(() => (window.isSame = true));
  const clock = page.locator("tr", { hasText: "clock" }).first();
  const old = Number(/OS process (\d+)/.exec(await clock.innerText())[1]);
  process.kill(old, "SIGKILL");
  await page.waitForFunction(
    (before) => {
      const text = [...document.querySelectorAll("tr")].find((each) => each.textContent.includes("clock"))?.innerText ?? "";
      const now = /OS process (\d+)/.exec(text);
      return now && Number(now[1]) !== before && text.includes("ready");
    },
    old,
  );
  tell("an upstream is killed and comes back", (await page.evaluate(() => window.isSame)) ? [] : ["the page was loaded again"]);

  // A call is cancelled.
  await page.goto(`${base}calls?text=wait`);
  await see(page);
  const cancel = page.locator("a[data-confirm]", { hasText: "Cancel" }).first();
  const call = new URL(await cancel.getAttribute("href"), base).searchParams.get("target");
  await cancel.click();
  await page.locator("dialog[open] button", { hasText: "Cancel" }).click();
  await page.locator("dialog[open] [role=status]", { hasText: "Done" }).waitFor();
  await page.locator("dialog[open] [data-close]").click();
  await page.waitForFunction((number) => !document.querySelector(`a[href="/observe/call?call=${number}"]`), call);
  await other.goto(`${base}call?call=${call}`);
  tell("a call is cancelled", (await other.locator("main").innerText()).includes("cancelled") ? [] : [`call ${call} does not say that it was cancelled`]);

  // A fault is injected, and what happened stands beside what was predicted.
  await page.goto(`${base}faults?text=library/subscriptions`);
  // Each link loads a page, whose script has to be there before the dialog can be: without it the link leads to a page that asks.
  await page.locator(".choose a", { hasText: "subscriptions" }).first().click();
  await page.waitForURL(/[?&]pid=/);
  await page.locator('.choose a[href*="kind="]').first().click();
  await page.waitForURL(/[?&]kind=/);
  await page.locator("#inject").click();
  await page.locator("dialog[open] button", { hasText: "Inject" }).click();
  await page.locator("dialog[open] [role=status]", { hasText: "Done" }).waitFor();
  await page.locator("dialog[open] [data-close]").click();
  await page.locator("#faults .state", { hasText: "as predicted" }).first().waitFor();
  await picture(page, "fault");
  tell("a fault does what was predicted", []);
};

// Without its script each page is whole, and an act is confirmed on a page of its own.
const withoutScript = async (browser, signedIn, base) => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: await signedIn.storageState() });
  context.setDefaultTimeout(TIME);
  const page = await context.newPage();
  await page.goto(`${base}tree?text=library/subscriptions`);
  await page.locator("a", { hasText: "subscriptions" }).last().click();
  await page.locator("a[data-confirm]", { hasText: "Kill" }).click();
  const wrong = page.url().includes("/act?") ? [] : [`the second step is at ${page.url()}`];
  await page.locator("main button", { hasText: "Kill" }).click();
  if (!(await page.locator("main").innerText()).includes("was killed")) wrong.push("it does not say that the process was killed");
  tell("without a script", wrong);
  await context.close();
};

main().catch((error) => {
  tell("the run", [String(error?.stack ?? error), ...trouble.slice(0, 5)]);
  process.exitCode = 1;
});
