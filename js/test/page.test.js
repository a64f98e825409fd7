// The page that shows tables, in a real browser: dropped files, the keyboard alone, narrow and wide, light and
// dark, damage, and many refs.

import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import test from "node:test";

import { chromium } from "playwright-core";

import { folder, git, make } from "./git.js";

const MANY = Number(process.env.REFDB_PAGE_REFS ?? 100_000);
const PAGE = process.env.REFDB_PAGE;
const places = (process.env.PATH ?? "").split(":").flatMap((dir) =>
    ["chromium", "chromium-browser", "google-chrome"].map((name) => join(dir, name)));
const executablePath = process.env.REFDB_CHROMIUM ?? places.find(existsSync);
const skip = executablePath === undefined && "there is no Chromium here: apt-get install chromium, or name one by REFDB_CHROMIUM";

/** Opens the page, and fails the test for whatever the page does not catch, says, or asks of others. */
async function opened(context, options = {}) {
    const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
    context.after(() => browser.close());
    const page = await browser.newPage({ viewport: { width: 1400, height: 850 }, ...options });
    const faults = [];
    page.on("pageerror", (error) => faults.push(error.stack));
    page.on("console", (message) => faults.push(message.text()));
    const url = options.url ?? `file://${PAGE}`;
    page.on("request", (request) => request.url() !== url && faults.push(request.url()));
    page.faults = faults;
    await page.goto(url);
    return page;
}

/** Returns where the page is on a server: a page that is opened from a disk may not read a dropped folder. */
async function served(context) {
    const server = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end(readFileSync(PAGE)));
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    context.after(() => server.close());
    return `http://127.0.0.1:${server.address().port}/`;
}

/** Chooses a folder by the button for that. */
async function choose(page, folder) {
    await page.setInputFiles("#folder", folder);
    await counted(page);
}

/** Drops files or folders as a user does. */
async function drop(page, ...files) {
    const session = await page.context().newCDPSession(page);
    for (const type of ["dragEnter", "dragOver", "drop"]) {
        const data = { items: [], files, dragOperationsMask: 1 };
        await session.send("Input.dispatchDragEvent", { type, x: 200, y: 300, data });
    }
    await counted(page);
}

async function counted(page) {
    await page.waitForFunction(() => document.getElementById("status").textContent !== "Reading…");
    await page.waitForFunction(() => /(refs|entries|damage)$/.test(document.getElementById("count").textContent), null, { timeout: 20_000 });
    return page.textContent("#count");
}

const rowsOf = (page) => page.$$eval(".row", (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
const details = (page) => page.$$eval("#details > *", (all) => all.map((one) => one.textContent));

function tablesOf(dir) {
    const tables = join(dir, ".git", "reftable");
    return { tables, names: readFileSync(join(tables, "tables.list"), "utf8").trim().split("\n") };
}

test("a dropped folder is a stack: refs, tombstones, reflogs, blocks, header and footer", { skip }, async (context) => {
    const { dir, one, two } = make(context, "reftable", "sha256");
    git(dir, ["update-ref", "refs/heads/<img/src=x/onerror=alert(1)>", two]);
    git(dir, ["update-ref", "-d", "refs/heads/dir1/branch8"]);
    const { tables, names } = tablesOf(dir);
    const page = await opened(context, { url: await served(context) });
    await drop(page, tables);
    assert.match(await page.textContent("#status"), new RegExp(`^${names.length} tables`));
    const all = Number((await page.textContent("#count")).replace(/\D/g, ""));
    // What a drop has left of the mouse is not the page's.
    const click = (what) => page.$eval(what, (one) => one.click());
    await click("#deleted");
    const live = Number((await counted(page)).replace(/\D/g, ""));
    const listed = git(dir, ["for-each-ref", "--include-root-refs", "--format=%(refname)"]).split("\n").length;
    assert.equal(live, listed + 1, "Git leaves out the symref that leads nowhere");
    assert.ok(all > live);
    await click("#deleted");
    await page.fill("#prefix", "refs/heads/dir1/branch8");
    await page.waitForFunction(() => document.querySelectorAll(".row").length < 20);
    const rows = await rowsOf(page);
    assert.deepEqual(rows[0].slice(0, 3), ["refs/heads/dir1/branch8", "", "tombstone"]);
    assert.ok(await page.$(".row.gone"));
    await page.fill("#prefix", "refs/tags/");
    await page.waitForFunction(() => document.querySelector(".row")?.textContent.startsWith("refs/tags/v1"));
    await click(".row");
    assert.deepEqual((await details(page)).slice(-4), ["Object", git(dir, ["rev-parse", "v1"]), "Peeled", one]);
    await page.fill("#prefix", "refs/heads/<");
    await page.waitForFunction(() => document.querySelector(".row")?.textContent.includes("<img"));
    assert.equal((await rowsOf(page))[0][0], "refs/heads/<img/src=x/onerror=alert(1)>", "a name is text");
    await page.fill("#prefix", "refs/heads/main");
    await click("#tab-logs");
    await counted(page);
    const messages = (await rowsOf(page)).map(([name, message]) => `${name} ${message}`);
    assert.deepEqual(messages, ["refs/heads/main moved twice", "refs/heads/main many"]);
    await click("#tab-blocks");
    assert.match((await rowsOf(page))[0][0], /Choose/);
    await page.locator(".table", { hasText: names[0] }).evaluate((one) => one.click());
    const blocks = await rowsOf(page);
    assert.deepEqual(blocks[0].slice(0, 2), ["refs", "at 0"]);
    assert.ok(blocks.some(([kind]) => kind.startsWith("logs")));
    await click("#tab-table");
    const fields = Object.fromEntries(await rowsOf(page));
    assert.equal(fields.Hash, "sha256");
    assert.equal(fields.Version, "2");
    assert.deepEqual(page.faults, []);
});

test("the package in a browser reads tables, with reflogs and without", { skip }, async (context) => {
    const { dir, two } = make(context, "reftable", "sha1");
    const { tables, names } = tablesOf(dir);
    const from = dirname(createRequire(import.meta.url).resolve("refdb/package.json"));
    const types = { ".js": "text/javascript", ".wasm": "application/wasm" };
    const server = createServer(({ url }, answer) => {
        const path = url.startsWith("/tables/") ? join(tables, url.slice(8)) : join(from, url);
        // A browser asks for an icon too.
        const isThere = url !== "/" && existsSync(path);
        answer.writeHead(isThere || url === "/" ? 200 : 404, { "Content-Type": types[extname(path)] ?? "text/html" });
        answer.end(isThere ? readFileSync(path) : "");
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    context.after(() => server.close());
    const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
    context.after(() => browser.close());
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    const answers = await page.evaluate(async (names) => {
        const { fromTables, open, RefdbError } = await import("/browser.js");
        const data = await Promise.all(names.map(async (name) => (await fetch(`/tables/${name}`)).arrayBuffer()));
        const answers = [];
        for (const logs of [true, false]) {
            const refs = await fromTables(data, { logs });
            answers.push(refs.head(), [...refs.list({ prefix: "refs/heads/dir3/" })].length);
            if (logs) answers.push([...refs.log("refs/heads/main")].length);
        }
        try {
            open(".");
        } catch (error) {
            answers.push(error instanceof RefdbError && error.kind);
        }
        return answers;
    }, names);
    const head = { ref: "refs/heads/main", oid: two };
    assert.deepEqual(answers, [head, 158, 2, head, 158, "unsupported"]);
});

test("single tables, dropped without their list", { skip }, async (context) => {
    const { dir } = make(context, "reftable", "sha1");
    const { tables, names } = tablesOf(dir);
    const page = await opened(context);
    await drop(page, ...names.map((name) => join(tables, name)));
    assert.match(await page.textContent("#errors"), names.length > 1 ? /order of their names/ : /^$/);
    await drop(page, join(tables, names[0]));
    assert.equal(await page.isVisible("#errors"), false);
    assert.match(await page.textContent("#status"), /^1 table,/);
    await choose(page, join(dir, ".git"));
    assert.match(await page.textContent("#status"), new RegExp(`^${names.length} table`));
    assert.deepEqual(page.faults, []);
});

test("everything can be done with the keyboard", { skip }, async (context) => {
    const { dir } = make(context, "reftable", "sha1");
    const { tables, names } = tablesOf(dir);
    const page = await opened(context);
    const focused = () => page.evaluate(() => document.activeElement.id);
    const press = async (...keys) => {
        for (const key of keys) await page.keyboard.press(key);
    };
    await press("Tab");
    assert.equal(await focused(), "open-files");
    const choosing = page.waitForEvent("filechooser");
    await page.waitForTimeout(200);
    await press("Enter");
    await (await choosing).setFiles(readdirSync(tables).map((name) => join(tables, name)));
    await counted(page);
    assert.equal(await focused(), "rows");
    await press("ArrowDown");
    assert.deepEqual((await details(page)).slice(0, 2), ["Name", "HEAD"]);
    await press("PageDown", "ArrowDown", "ArrowUp", "End");
    const last = await page.evaluate(() => document.getElementById(document.getElementById("rows").getAttribute("aria-activedescendant")).textContent);
    assert.match(last, /^refs\/tags\/v1/);
    const box = await page.locator("#rows").boundingBox();
    const row = await page.locator('.row[aria-selected="true"]').boundingBox();
    assert.ok(row.y >= box.y && row.y + row.height <= box.y + box.height + 1, "the chosen row is in sight");
    await press("Home");
    assert.equal((await details(page))[1], "HEAD");
    await press("Shift+Tab", "Shift+Tab");
    assert.equal(await focused(), "prefix");
    await page.keyboard.type("refs/remotes/");
    await page.waitForFunction(() => document.getElementById("count").textContent === "2 refs");
    await press("Tab");
    assert.equal(await focused(), "deleted");
    await press("Space");
    assert.equal(await page.isChecked("#deleted"), false);
    await press("Shift+Tab", "Shift+Tab");
    assert.equal(await focused(), "tab-refs");
    await press("ArrowRight", "ArrowRight");
    assert.equal(await focused(), "tab-blocks");
    await press("Shift+Tab");
    assert.equal(await focused(), "tables");
    await press("End");
    assert.match(await page.textContent('.table[aria-selected="true"] b'), new RegExp(names[0]));
    assert.equal((await rowsOf(page))[0][0], "refs");
    await press("Tab", "ArrowLeft", "End");
    assert.equal(await focused(), "tab-table");
    // Wherever the focus is, it is seen.
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid");
    assert.deepEqual(page.faults, []);
});

test("narrow and wide, light and dark", { skip }, async (context) => {
    const { dir } = make(context, "reftable", "sha1");
    const { tables } = tablesOf(dir);
    for (const width of [400, 1400]) {
        const grounds = [];
        for (const colorScheme of ["light", "dark"]) {
            const page = await opened(context, { viewport: { width, height: 800 }, colorScheme });
            await choose(page, tables);
            for (const tab of ["refs", "logs", "blocks", "table"]) {
                await page.click(`#tab-${tab}`);
                const wide = await page.evaluate(() => document.documentElement.scrollWidth);
                assert.ok(wide <= width, `${tab} is ${wide} wide`);
                assert.ok((await page.locator("#rows").boundingBox()).height >= 80);
            }
            const contrast = await page.evaluate(() => {
                const light = (color) => {
                    const parts = color.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255)
                        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
                    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
                };
                const style = getComputedStyle(document.body);
                const probe = document.body.appendChild(document.createElement("i"));
                const ratios = {};
                for (const ground of ["--back", "--raised", "--chosen"]) {
                    for (const ink of ["--text", "--dim", "--gone", "--mark"]) {
                        probe.style.color = style.getPropertyValue(ink);
                        probe.style.backgroundColor = style.getPropertyValue(ground);
                        const { color, backgroundColor } = getComputedStyle(probe);
                        const [low, high] = [light(color), light(backgroundColor)].sort((a, b) => a - b);
                        ratios[`${ink} on ${ground}`] = (high + 0.05) / (low + 0.05);
                    }
                }
                return { ratios, ground: style.backgroundColor };
            });
            for (const [what, ratio] of Object.entries(contrast.ratios)) assert.ok(ratio >= 4.5, `${colorScheme}: ${what}: ${ratio}`);
            grounds.push(contrast.ground);
            assert.deepEqual(page.faults, []);
        }
        assert.notEqual(grounds[0], grounds[1]);
    }
});

test("damage is shown with its place, and the rest all the same", { skip }, async (context) => {
    const { dir } = make(context, "reftable", "sha1");
    const { tables, names } = tablesOf(dir);
    const copy = join(folder(context), "reftable");
    const page = await opened(context);
    const damage = (change) => {
        mkdirSync(copy, { recursive: true });
        cpSync(tables, copy, { recursive: true });
        const bytes = readFileSync(join(copy, names[0]));
        writeFileSync(join(copy, names[0]), change(bytes) ?? bytes);
    };
    damage((bytes) => void bytes.fill(0xff, 4096, 4200));
    await choose(page, copy);
    assert.match(await page.textContent("#count"), /damage$/);
    const shown = Number((await page.textContent("#count")).replace(/\D/g, ""));
    assert.ok(shown > 50, "what stands before it is there");
    await page.focus("#rows");
    await page.keyboard.press("End");
    assert.match((await details(page)).join(" "), /Error .*at offset 4096/);
    await page.click(`.table >> text=${names[0]}`);
    await page.click("#tab-blocks");
    assert.match((await rowsOf(page)).at(-1).join(" "), /^damaged .*at offset 4096/);
    await page.click("#tab-refs");
    damage((bytes) => bytes.subarray(0, bytes.length - 1));
    await choose(page, copy);
    assert.match(await page.textContent("#errors"), /at offset \d+/);
    assert.ok(await page.$(".table.bad"));
    damage(() => Buffer.alloc(0));
    writeFileSync(join(copy, "tables.list"), `../${names[0]}\nmissing.ref\n${names[0]}\n`);
    await choose(page, copy);
    const errors = await page.textContent("#errors");
    for (const what of [`../${names[0]}`, "missing.ref", "does not start with REFT"]) assert.ok(errors.includes(what), errors);
    // Anything at all.
    for (let round = 0; round < 40; round++) {
        damage((bytes) => void bytes.fill(round * 37, (round * 7919) % bytes.length, ((round * 7919) % bytes.length) + 3));
        await choose(page, copy);
        for (const tab of ["logs", "blocks", "table", "refs"]) await page.click(`#tab-${tab}`);
    }
    assert.deepEqual(page.faults, []);
});

test(`${MANY.toLocaleString("en")} refs`, { skip }, async (context) => {
    const dir = join(folder(context), "repo");
    git(".", ["init", "--quiet", "--ref-format=reftable", dir]);
    const commit = git(dir, ["commit-tree", "-m", "one", git(dir, ["hash-object", "-w", "-t", "tree", "/dev/null"])]);
    const lines = Array.from({ length: MANY }, (_, at) => `create refs/heads/branch${String(at).padStart(8, "0")} ${commit}\n`);
    git(dir, ["update-ref", "--stdin"], lines.join(""));
    const page = await opened(context);
    const start = performance.now();
    await choose(page, join(dir, ".git", "reftable"));
    const taken = performance.now() - start;
    assert.equal(await page.textContent("#count"), `${(MANY + 1).toLocaleString("en")} refs`);
    await page.focus("#rows");
    await page.keyboard.press("End");
    assert.equal((await details(page))[1], `refs/heads/branch${String(MANY - 1).padStart(8, "0")}`);
    await page.keyboard.press("ArrowUp");
    assert.equal((await details(page))[1], `refs/heads/branch${String(MANY - 2).padStart(8, "0")}`);
    // The middle, by the bar.
    await page.$eval("#rows", (rows) => { rows.scrollTop = rows.scrollHeight / 2; });
    await page.waitForTimeout(200);
    const middle = await rowsOf(page);
    const at = Number(middle[0][0].replace(/\D/g, ""));
    assert.ok(Math.abs(at - MANY / 2) < MANY / 20 + 60, middle[0][0]);
    assert.ok(middle.length < 80, "only rows in sight are there");
    await page.fill("#prefix", "refs/heads/branch0000001");
    await page.waitForFunction(() => document.getElementById("count").textContent === "10 refs");
    context.diagnostic(`${MANY} refs in the page: counted in ${taken.toFixed(0)} ms`);
    assert.deepEqual(page.faults, []);
});
