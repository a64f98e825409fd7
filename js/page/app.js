// The page itself: opens tables, and shows what is in them.

const $ = (id) => document.getElementById(id);
// How many records lie between two that are known by name.
const PAGE = 500;
const TABS = ["refs", "logs", "blocks", "table"];
const KIND_NAMES = { r: "refs", o: "objects", i: "index", g: "logs, compressed" };
const COLUMNS = {
    refs: ["minmax(12em, 5fr)", "minmax(10em, 6fr)", "7em", "5em"],
    logs: ["minmax(9em, 3fr)", "minmax(9em, 4fr)", "minmax(7em, 2fr)", "13em"],
    blocks: ["11em", "9em", "11em", "1fr"],
    table: ["14em", "1fr"],
};
const HEADS = {
    refs: ["Name", "Value", "Kind", "Update"],
    logs: ["Ref", "Message", "Who", "When"],
    blocks: ["Kind", "Offset", "In the file", "Records"],
    table: ["Field", "Value"],
};

const state = { engine: null, tables: [], stack: 0, chosen: 0, tab: "refs", records: [], marks: [], pages: new Map(), run: 0 };

/** Shows what cannot be seen, or would be seen as something else, as what it is. */
function visible(text) {
    return text.replace(/[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\p{Surrogate}/gu, (character) => {
        const code = character.codePointAt(0);
        if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
        return code === 10 ? "\\n" : code === 9 ? "\\t" : `\\u{${code.toString(16)}}`;
    });
}

function element(tag, text, classes = "") {
    const made = document.createElement(tag);
    made.textContent = text;
    made.className = classes;
    return made;
}

function tell(problems) {
    $("errors").replaceChildren(...problems.map((problem) => element("li", problem)));
    $("errors").hidden = problems.length === 0;
}

function describeError(error) {
    return visible(error instanceof RefdbError ? error.message : `A fault of this page: ${error}`);
}

const number = (value) => value.toLocaleString("en");

// --- Opening

async function open(files) {
    const run = ++state.run;
    $("status").textContent = "Reading…";
    const { tables, problems } = await stackOf(files);
    const module = await (state.module ??= WebAssembly.compile(Uint8Array.from(atob(WASM), (c) => c.charCodeAt(0))));
    const engine = new Engine(module);
    const opened = [];
    for (const { path, file } of tables) {
        const name = visible(path.slice(path.lastIndexOf("/") + 1));
        try {
            const id = engine.openTable(new Uint8Array(await file.arrayBuffer()), name);
            opened.push({ name, id, size: file.size, stack: engine.stack([id]), about: engine.describe(id) });
        } catch (error) {
            opened.push({ name, size: file.size, error: describeError(error) });
            problems.push(`${describeError(error)}. All tables are shown without it.`);
        }
        if (run !== state.run) return;
    }
    const sound = opened.filter((table) => table.error === undefined);
    let stack = 0;
    try {
        stack = engine.stack(sound.map((table) => table.id));
    } catch (error) {
        problems.push(describeError(error));
    }
    if (tables.length === 0) problems.push("There is no table among these files.");
    Object.assign(state, { engine, tables: opened, stack, chosen: 0 });
    tell(problems);
    $("empty").hidden = true;
    $("opened").hidden = false;
    const bytes = opened.reduce((sum, table) => sum + table.size, 0);
    $("status").textContent = `${number(opened.length)} ${opened.length === 1 ? "table" : "tables"}, ${number(bytes)} bytes`;
    drawTables();
    show();
    $("rows").focus();
}

// --- Tables

function drawTables() {
    // The stack as a whole, and its tables from the newest on.
    const entries = [{ name: "All tables", text: "per ref what the newest one says" },
        ...state.tables.toReversed().map((table) => ({
            name: table.name,
            text: table.error ?? `${number(table.size)} bytes, updates ${table.about.minUpdateIndex} to ${table.about.maxUpdateIndex}`,
            bad: table.error !== undefined,
        }))];
    $("tables").replaceChildren(...entries.map(({ name, text, bad }, index) => {
        const option = element("div", "", bad ? "table bad" : "table");
        option.append(element("b", name), element("span", text));
        option.id = `table-${index}`;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", String(index === state.chosen));
        option.addEventListener("click", () => choose(index));
        return option;
    }));
    $("tables").setAttribute("aria-activedescendant", `table-${state.chosen}`);
    $(`table-${state.chosen}`).scrollIntoView({ block: "nearest" });
}

function choose(index) {
    state.chosen = index;
    drawTables();
    show();
}

const chosenTable = () => (state.chosen === 0 ? undefined : state.tables.at(-state.chosen));

// --- What is shown of it

function show() {
    for (const tab of TABS) {
        const isChosen = tab === state.tab;
        $(`tab-${tab}`).setAttribute("aria-selected", String(isChosen));
        $(`tab-${tab}`).tabIndex = isChosen ? 0 : -1;
    }
    $("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
    const run = ++state.run;
    Object.assign(state, { records: [], marks: [], pages: new Map(), failure: undefined });
    $("details").replaceChildren();
    $("filter").hidden = state.tab === "blocks" || state.tab === "table";
    document.body.style.setProperty("--columns", COLUMNS[state.tab].join(" "));
    $("head").replaceChildren(...HEADS[state.tab].map((head) => element("span", head)));
    $("count").textContent = "";
    rows.show(0);
    const table = chosenTable();
    if (table?.error !== undefined) return list([{ bad: true, cells: ["damaged", table.error], details: { Error: table.error } }]);
    if (state.tab === "blocks" || state.tab === "table") {
        if (table === undefined) return list([{ cells: ["Choose one of the tables"], details: {} }]);
        return list(state.tab === "blocks" ? blocksOf(table) : fieldsOf(table));
    }
    count(run);
}

function list(records) {
    state.records = records;
    rows.show(records.length);
}

const stackShown = () => chosenTable()?.stack ?? state.stack;
const asked = () => ({ prefix: $("prefix").value, deleted: $("deleted").checked });

// Counts the records, a part at a time, so that the page answers meanwhile.
async function count(run) {
    let total = 0;
    let drawn = performance.now();
    const finish = (text) => {
        $("count").textContent = text;
        rows.show(total + (state.failure === undefined ? 0 : 1), true);
    };
    try {
        for (const mark of state.engine.marks(stackShown(), state.tab, { ...asked(), every: PAGE })) {
            total += mark.passed;
            state.marks.push(mark);
            if (performance.now() - drawn < 30) continue;
            finish(`${number(total)} …`);
            await new Promise((done) => setTimeout(done));
            if (run !== state.run) return;
            drawn = performance.now();
        }
        state.total = total;
        finish(`${number(total)} ${state.tab === "refs" ? "refs" : "entries"}`);
    } catch (error) {
        // Records between the last known one and the damage are shown as far as they can be read.
        total += recordsBehindLastMark();
        state.total = total;
        state.failure = describeError(error);
        finish(`${number(total)} and damage`);
    }
}

function recordsBehindLastMark() {
    let more = 0;
    try {
        for (const _ of cursorAt(state.marks.length)) more += 1;
    } catch {
        // It was told already.
    }
    return more;
}

// Returns a cursor over the records of a page.
function cursorAt(page) {
    const { prefix, deleted } = asked();
    const mark = page === 0 ? undefined : state.marks[page - 1];
    const after = mark?.name ?? "";
    if (state.tab === "refs") return state.engine.refs(stackShown(), { prefix, after, deleted, batch: PAGE });
    return state.engine.logs(stackShown(), prefix, { isPrefix: true, after, index: mark?.updateIndex, deleted, batch: PAGE });
}

function record(index) {
    if (state.records.length > 0) return state.records[index];
    if (index === state.total && state.failure !== undefined) {
        return { bad: true, cells: ["damaged", state.failure], details: { Error: state.failure } };
    }
    const page = Math.floor(index / PAGE);
    if (!state.pages.has(page)) {
        if (state.pages.size > 40) state.pages.delete(state.pages.keys().next().value);
        const some = [];
        try {
            for (const one of cursorAt(page)) if (some.push(one) === PAGE) break;
        } catch {
            // The row behind the last one that can be read says why.
        }
        state.pages.set(page, some);
    }
    const one = state.pages.get(page)[index % PAGE];
    if (one === undefined) return { cells: [""], details: {} };
    return state.tab === "refs" ? ofRef(one) : ofLog(one);
}

function ofRef({ name, kind, value, updateIndex }) {
    const half = value.slice(0, value.length / 2);
    const shown = { deleted: "", direct: value, symref: `→ ${visible(value)}`, peeled: half }[kind];
    const details = { Name: visible(name), Kind: kind === "peeled" ? "tag" : kind, "Update index": String(updateIndex) };
    if (kind === "symref") details["Leads to"] = visible(value);
    if (kind === "direct" || kind === "peeled") details.Object = shown;
    if (kind === "peeled") details["Peeled"] = value.slice(value.length / 2);
    const label = { deleted: "tombstone", direct: "", peeled: "tag", symref: "symref" }[kind];
    return { gone: kind === "deleted", cells: [visible(name), shown, label, String(updateIndex)], tag: 2, details };
}

function ofLog({ name, deleted, old, new: new_, committer, email, time, zone, message, updateIndex }) {
    const zoneText = `${zone < 0 ? "-" : "+"}${String(Math.abs(zone)).padStart(4, "0")}`;
    // In the zone of who did it, as Git shows it.
    const minutes = Math.sign(zone) * (Math.trunc(Math.abs(zone) / 100) * 60 + (Math.abs(zone) % 100));
    const date = new Date((time + 60 * minutes) * 1000);
    const when = Number.isNaN(date.getTime()) ? `${time}` : date.toISOString().slice(0, 19).replace("T", " ");
    if (deleted) {
        const details = { Ref: visible(name), Kind: "tombstone", "Update index": String(updateIndex) };
        return { gone: true, cells: [visible(name), `of update ${updateIndex}`, "tombstone", ""], tag: 2, details };
    }
    const details = {
        Ref: visible(name), Message: visible(message.replace(/\n$/, "")), Old: old, New: new_,
        Who: visible(`${committer} <${email}>`), When: `${when} ${zoneText}`, "Update index": String(updateIndex),
    };
    return { cells: [visible(name), details.Message, visible(committer), `${when} ${zoneText}`], details };
}

function blocksOf(table) {
    const { blocks, error } = state.engine.blocks(table.id);
    const shown = blocks.map(({ kind, offset, lenOnDisk, len, records, restarts }) => ({
        cells: [KIND_NAMES[kind], `at ${number(offset)}`, `${number(lenOnDisk)} bytes`, number(records)],
        details: {
            Kind: KIND_NAMES[kind], Offset: number(offset), "Bytes in the file": number(lenOnDisk),
            "Bytes of the block": number(len), Records: number(records), "Restart points": number(restarts),
        },
    }));
    if (error !== undefined) {
        const text = describeError(error);
        shown.push({ bad: true, cells: ["damaged", text, "", ""], details: { Error: text } });
    }
    return shown;
}

function fieldsOf({ name, about }) {
    const place = (value) => (value === undefined ? "none" : `at offset ${number(value)}`);
    const { sections } = about;
    const fields = {
        File: name, Length: `${number(about.len)} bytes`, Version: String(about.version), Hash: about.hash,
        "Block size": about.blockSize === 0 ? "unaligned" : `${number(about.blockSize)} bytes`,
        "Least update index": String(about.minUpdateIndex), "Greatest update index": String(about.maxUpdateIndex),
        Refs: place(sections.refs), "Index of refs": place(sections.refIndex), Objects: place(sections.objects),
        "Index of objects": place(sections.objectIndex), "Bytes of an object's key": String(about.objectIdLen),
        Logs: place(sections.logs), "Index of logs": place(sections.logIndex), Footer: place(sections.footer),
    };
    return Object.entries(fields).map(([field, value]) => ({ cells: [field, value], details: { [field]: value } }));
}

function drawRow(index) {
    const { cells, gone, bad, tag } = record(index);
    const row = element("div", "", gone ? "gone" : bad ? "bad" : "");
    row.append(...cells.map((cell, at) => element("span", cell, at === tag ? "tag" : "")));
    return row;
}

function drawDetails(index) {
    const { details } = record(index);
    $("details").replaceChildren(...Object.entries(details).flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
}

// --- What the user does

const rows = new Rows($("rows"), drawRow, drawDetails);

function openOrTell(files) {
    return open(files).catch((error) => tell([describeError(error)]));
}

for (const [button, input] of [["open-files", "files"], ["open-folder", "folder"]]) {
    $(button).addEventListener("click", () => $(input).click());
    $(input).addEventListener("change", () => {
        const files = filesOfInput($(input));
        if (files.length > 0) openOrTell(files);
        $(input).value = "";
    });
}
let dragged = 0;
addEventListener("dragenter", () => { dragged += 1; $("drop").hidden = false; });
addEventListener("dragleave", () => { dragged -= 1; $("drop").hidden = dragged <= 0; });
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
    event.preventDefault();
    dragged = 0;
    $("drop").hidden = true;
    filesOfDrop(event.dataTransfer).then(openOrTell, (error) => {
        tell([`What was dropped cannot be read (${error.message}): the buttons above open the same.`]);
    });
});
$("tables").addEventListener("keydown", (event) => {
    const last = state.tables.length;
    const to = { ArrowDown: state.chosen + 1, ArrowUp: state.chosen - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(Math.min(last, Math.max(0, to)));
});
for (const [index, tab] of TABS.entries()) {
    const button = $(`tab-${tab}`);
    const go = (to) => {
        state.tab = TABS[(to + TABS.length) % TABS.length];
        show();
        $(`tab-${state.tab}`).focus();
    };
    button.addEventListener("click", () => go(index));
    button.addEventListener("keydown", (event) => {
        const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: TABS.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        go(to);
    });
}
let typed;
$("prefix").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(show, 120);
});
$("deleted").addEventListener("change", show);
$("filter").addEventListener("submit", (event) => event.preventDefault());
