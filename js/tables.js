// The format `reftable`: a list of tables, and the tables.

import { entries, read, stat } from "./disk.js";
import { Engine } from "./engine.js";
import { RefdbError } from "./error.js";
import { fromLogRecord, fromRecord, named } from "./refs.js";
import { fromBytes } from "./text.js";

const LIST = "reftable/tables.list";
const LIST_MAX = 1 << 20;
const TABLE_MAX = 1 << 29;
// How often the list is read again because a table of it is gone.
const TRIES = 8;

// One engine for all stacks, with reflogs or without; another one once its memory ran out.
const engines = new Map();

function engine(module, logs) {
    if (engines.get(logs)?.isDead ?? true) engines.set(logs, new Engine(module(logs)));
    return engines.get(logs);
}

// Stacks that nobody can ask any more give back their tables.
const forgotten = new FinalizationRegistry((held) => held.close());

/** The refs of one stack. */
export class Tables {
    #views;

    constructor(dir, hash, module) {
        this.#views = [false, true].map((logs) => new View(dir, hash, () => engine(module, logs)));
        const views = this.#views;
        forgotten.register(this, { close: () => views.forEach((view) => view.close()) }, this);
    }

    read(name) {
        const { engine, stack } = this.#views[0].now();
        const record = engine.find(stack, name);
        return record === undefined ? null : fromRecord(record);
    }

    *list(prefix, after) {
        const { engine, stack } = this.#views[0].now();
        for (const record of engine.refs(stack, { prefix, after })) yield named(fromRecord(record));
    }

    *log(name) {
        const { engine, stack } = this.#views[1].now();
        for (const record of engine.logs(stack, name)) {
            const entry = fromLogRecord(record);
            if (entry !== null) yield entry;
        }
    }

    close() {
        forgotten.unregister(this);
        for (const view of this.#views) view.close();
    }
}

/** The tables of a stack in an engine, and the list that named them. */
class View {
    #dir;
    #hash;
    #make;
    #engine = null;
    #stat = null;
    #tables = new Map();
    #stack = 0;

    constructor(dir, hash, make) {
        this.#dir = dir;
        this.#hash = hash;
        this.#make = make;
    }

    /** Returns the engine and the stack as the list has it now. */
    now() {
        if (this.#engine?.isDead ?? true) this.#forget();
        const now = stat(this.#dir, LIST);
        const fields = ["ino", "dev", "size", "mtimeNs", "ctimeNs"];
        const isSame = this.#stat !== null && now !== null && fields.every((field) => this.#stat[field] === now[field]);
        if (!isSame) this.#load();
        return { engine: this.#engine, stack: this.#stack };
    }

    close() {
        if (this.#engine === null) return;
        for (const number of [this.#stack, ...this.#tables.values()]) this.#engine.close(number);
        this.#forget();
    }

    #forget() {
        [this.#engine, this.#stat, this.#tables, this.#stack] = [null, null, new Map(), 0];
    }

    #load() {
        this.#engine ??= this.#make();
        let missing;
        for (let tries = 0; tries < TRIES; tries++) {
            if (tries > 1) pause(2 ** tries);
            const { names, stat } = this.#list();
            // Who merges everything away publishes an empty file, and removes the tables then.
            if (stat.size === 0n && entries(this.#dir, "reftable").some(({ name }) => mayBeListed(name))) {
                missing = undefined;
                continue;
            }
            const tables = new Map();
            missing = names.find((name) => !this.#open(name, tables));
            if (missing === undefined) return this.#take(names, tables, stat);
            // Somebody merged it with others meanwhile, and then the list is another one.
            this.#drop(tables);
        }
        const what = missing === undefined ? "is empty, but there are tables" : `names the table ${missing}, which is missing`;
        throw new RefdbError("corrupt", what, { path: this.#path(LIST) });
    }

    // Puts a table that a list names into `tables`; false if it is not there.
    #open(name, tables) {
        const held = this.#tables.get(name);
        if (held !== undefined) return tables.set(name, held) && true;
        const found = read(this.#dir, `reftable/${name}`, TABLE_MAX);
        if (found === null) return false;
        const path = this.#path(`reftable/${name}`);
        const fail = (kind, what) => {
            this.#drop(tables);
            throw new RefdbError(kind, what, { path });
        };
        if (found.link !== undefined) fail("unsafe", "is a link, which is not followed");
        if (found.odd) fail("corrupt", "is no file, or one that is too long");
        const { content } = found;
        const isSha256 = content[4] === 2 && content.latin1Slice(24, 28) === "s256";
        let number;
        try {
            number = this.#engine.openTable(content, path);
        } catch (error) {
            this.#drop(tables);
            throw error;
        }
        tables.set(name, number);
        if (isSha256 !== (this.#hash === "sha256")) fail("corrupt", `has other object ids than ${this.#hash}`);
        return true;
    }

    #take(names, tables, stat) {
        const stack = this.#engine.stack(names.map((name) => tables.get(name)));
        if (this.#stack !== 0) this.#engine.close(this.#stack);
        for (const [name, number] of this.#tables) if (!tables.has(name)) this.#engine.close(number);
        [this.#stack, this.#tables, this.#stat] = [stack, tables, stat];
    }

    // Closes what was opened and is not held.
    #drop(tables) {
        for (const [name, number] of tables) if (!this.#tables.has(name)) this.#engine.close(number);
    }

    #list() {
        const found = read(this.#dir, LIST, LIST_MAX);
        const path = this.#path(LIST);
        if (found === null) throw new RefdbError("corrupt", "the list of tables is missing", { path });
        if (found.link !== undefined) throw new RefdbError("unsafe", "is a link, which is not followed", { path });
        if (found.odd) throw new RefdbError("corrupt", "is no file, or one that is too long", { path });
        const lines = found.content.latin1Slice().split("\n");
        if (lines.at(-1) !== "") throw new RefdbError("corrupt", "the last line has no end", { path });
        const bad = lines.findIndex((line) => line !== "" && !mayBeListed(line));
        if (bad >= 0) throw new RefdbError("corrupt", `line ${bad + 1} is not the name of a table`, { path });
        // A list of one empty line says that there is no table.
        const names = lines.filter((line) => line !== "");
        if (new Set(names).size < names.length) throw new RefdbError("corrupt", "names a table twice", { path });
        return { names, stat: found.stat };
    }

    #path(name) {
        return `${this.#dir}/${name}`;
    }
}

function pause(ms) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Tells whether a list may name a table so: a file beside it that is no other one of a stack. */
export function mayBeListed(name) {
    const isPlain = name.length <= 255 && !/[\x00-\x1f\x7f/]/.test(name) && !name.startsWith(".");
    return isPlain && /\.(ref|log)$/i.test(name) && fromBytes(Buffer.from(name, "latin1")) === name;
}
