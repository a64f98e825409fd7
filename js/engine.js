// The other side of crates/refdb-wasm: tables, stacks and cursors by number.

import { RefdbError } from "./error.js";
import { fromAscii, fromBytes, toBytes } from "./text.js";

const KINDS = ["deleted", "direct", "peeled", "symref"];
const BATCH = 4096;
// How many bytes the fields of a record take.
const REF_LEN = 20;
const LOG_LEN = 44;

/** One instance of the WebAssembly module. */
export class Engine {
    #exports;
    /** Whether it came to an end that it cannot go on from: memory ran out. */
    isDead = false;

    constructor(module) {
        this.#exports = new WebAssembly.Instance(module, {}).exports;
    }

    /** Opens a table; returns its number. Errors call it by its label. */
    openTable(data, label) {
        this.#give(data, toBytes(label));
        return this.#number("refdb_table", data.length);
    }

    /** Makes a stack of tables, oldest first; returns its number. */
    stack(tables) {
        const numbers = new DataView(new ArrayBuffer(4 * tables.length));
        tables.forEach((table, index) => numbers.setUint32(4 * index, table, true));
        this.#give(new Uint8Array(numbers.buffer));
        return this.#number("refdb_stack");
    }

    /** Returns the record of the newest table that has the ref, be it deleted; undefined if none has. */
    find(stack, name) {
        this.#give(toBytes(name));
        return this.#refs(this.#count("refdb_find", stack))[0];
    }

    /** Gives the refs of a stack in their order. */
    refs(stack, { prefix = "", after = "", deleted = false, batch = BATCH } = {}) {
        const bytes = toBytes(prefix);
        this.#give(bytes, toBytes(after));
        const cursor = this.#number("refdb_refs", stack, bytes.length, deleted);
        return this.#all(cursor, batch, (count) => this.#refs(count));
    }

    /**
     * Gives the entries of a reflog, the newest first, or those of all names that start so; from the one on
     * that comes behind the entry of a name and an update index.
     */
    logs(stack, name, { isPrefix = false, after = "", index = 0n, deleted = false, batch = BATCH } = {}) {
        const bytes = toBytes(name);
        this.#give(bytes, toBytes(after));
        const cursor = this.#number("refdb_logs", stack, bytes.length, isPrefix, deleted, index);
        return this.#all(cursor, batch, (count) => this.#logs(count));
    }

    /**
     * Counts the refs of a stack, or the entries of its reflogs, and gives every so manieth of them, by which
     * a page finds its way among millions.
     */
    *marks(stack, what, { prefix = "", every = 1000, deleted = true } = {}) {
        const bytes = toBytes(prefix);
        this.#give(bytes);
        const cursor = what === "refs" ? this.#number("refdb_refs", stack, bytes.length, deleted)
            : this.#number("refdb_logs", stack, bytes.length, true, deleted, 0n);
        try {
            for (;;) {
                const passed = this.#count("refdb_skip", cursor, every);
                const last = what === "refs" ? this.#refs(passed === every ? 1 : 0)
                    : this.#logs(passed === every ? 1 : 0);
                yield { passed, name: last[0]?.name, updateIndex: last[0]?.updateIndex };
                if (passed < every) return;
            }
        } finally {
            this.close(cursor);
        }
    }

    /** Returns what header and footer of a table say. */
    describe(table) {
        this.#count("refdb_describe", table);
        const [version, hashLen, blockSize, minUpdateIndex, maxUpdateIndex, len, footer, objectIdLen, ...places] =
            this.#numbers(14);
        const [refs, refIndex, objects, objectIndex, logs, logIndex] = places.map((place) =>
            place === 0n ? undefined : Number(place - 1n));
        return {
            version: Number(version),
            hash: hashLen === 20n ? "sha1" : "sha256",
            blockSize: Number(blockSize),
            minUpdateIndex,
            maxUpdateIndex,
            len: Number(len),
            sections: { refs, refIndex, objects, objectIndex, logs, logIndex, footer: Number(footer) },
            objectIdLen: Number(objectIdLen),
        };
    }

    /** Returns the blocks of a table up to the first damaged one, and what is wrong with that. */
    blocks(table) {
        const count = this.#count("refdb_blocks", table);
        const numbers = this.#numbers(6 * count);
        const blocks = [];
        for (let at = 0; at < numbers.length; at += 6) {
            const [kind, offset, lenOnDisk, len, records, restarts] = numbers.slice(at, at + 6).map(Number);
            blocks.push({ kind: String.fromCharCode(kind), offset, lenOnDisk, len, records, restarts });
        }
        return { blocks, error: this.#error() };
    }

    /** Forgets a table, a stack or a cursor. */
    close(number) {
        if (!this.isDead) this.#call("refdb_close", number);
    }

    *#all(cursor, batch, decode) {
        try {
            for (;;) {
                const count = this.#count("refdb_next", cursor, batch);
                if (count === 0) return;
                yield* decode(count);
            }
        } finally {
            this.close(cursor);
        }
    }

    #give(...parts) {
        const len = parts.reduce((sum, part) => sum + part.length, 0);
        let at = this.#call("refdb_input", len) >>> 0;
        const memory = new Uint8Array(this.#exports.memory.buffer);
        for (const part of parts) {
            memory.set(part, at);
            at += part.length;
        }
    }

    #output() {
        const at = this.#exports.refdb_output() >>> 0;
        return new Uint8Array(this.#exports.memory.buffer, at, this.#exports.refdb_output_len() >>> 0);
    }

    #numbers(count) {
        const output = this.#output();
        const view = new DataView(output.buffer, output.byteOffset, output.length);
        return Array.from({ length: count }, (_, index) => view.getBigUint64(8 * index, true));
    }

    #call(name, ...parameters) {
        if (this.isDead) throw new RefdbError("memory", "the tables take more memory than there is");
        const call = this.#exports[name];
        if (call === undefined) throw new RefdbError("unsupported", "this build has no reflogs: logs was false");
        try {
            return call(...parameters);
        } catch (cause) {
            this.isDead = true;
            throw new RefdbError("memory", "the tables take more memory than there is", { cause });
        }
    }

    #number(name, ...parameters) {
        const number = this.#call(name, ...parameters) >>> 0;
        if (number === 0) throw this.#error();
        return number;
    }

    #count(name, ...parameters) {
        const count = this.#call(name, ...parameters);
        if (count < 0) throw this.#error();
        return count;
    }

    #error() {
        const len = this.#exports.refdb_error_len() >>> 0;
        if (len === 0) return undefined;
        const at = this.#exports.refdb_error() >>> 0;
        const view = new DataView(this.#exports.memory.buffer, at, len);
        const place = view.getBigUint64(0, true);
        const label = view.getUint32(8, true);
        const text = new Uint8Array(this.#exports.memory.buffer, at + 12, len - 12);
        const path = label === 0 ? undefined : fromBytes(text.subarray(0, label));
        const offset = place === 0n ? undefined : Number(place - 1n);
        return new RefdbError("corrupt", fromBytes(text.subarray(label)), { path, offset });
    }

    // Returns what takes the next text off an answer, given its length.
    #texts(output, from) {
        const bytes = output.subarray(from);
        const text = fromAscii(bytes);
        let at = 0;
        return (len) => {
            at += len;
            if (text !== undefined) return text.slice(at - len, at);
            return fromBytes(bytes.subarray(at - len, at));
        };
    }

    #refs(count) {
        const output = this.#output();
        const view = new DataView(output.buffer, output.byteOffset, output.length);
        const take = this.#texts(output, REF_LEN * count);
        const refs = new Array(count);
        for (let index = 0; index < count; index++) {
            const at = REF_LEN * index;
            const kind = KINDS[view.getUint32(at, true)];
            const name = take(view.getUint32(at + 4, true));
            const value = take(view.getUint32(at + 8, true));
            refs[index] = { kind, name, value, updateIndex: view.getBigUint64(at + 12, true) };
        }
        return refs;
    }

    #logs(count) {
        const output = this.#output();
        const view = new DataView(output.buffer, output.byteOffset, output.length);
        const take = this.#texts(output, LOG_LEN * count);
        const entries = new Array(count);
        for (let index = 0; index < count; index++) {
            const field = (number) => view.getUint32(LOG_LEN * index + 4 * number, true);
            const name = take(field(1));
            const updateIndex = view.getBigUint64(LOG_LEN * index + 24, true);
            const deleted = field(0) === 0;
            const [old, new_, committer, email, message] = [2, 2, 3, 4, 5].map((number) => take(field(number)));
            const time = Number(view.getBigUint64(LOG_LEN * index + 32, true));
            const zone = view.getInt32(LOG_LEN * index + 40, true);
            entries[index] = { name, updateIndex, deleted, old, new: new_, committer, email, time, zone, message };
        }
        return entries;
    }
}
