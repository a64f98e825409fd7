// Refs from tables that are given as bytes: for browsers, and wherever else there are no files.

import { Engine } from "./engine.js";
import { Refs, fromLogRecord, fromRecord, named } from "./refs.js";

/** The refs of a stack of tables, each of them there already. */
export class GivenRefs extends Refs {
    #engine;
    #stack;

    constructor(module, tables) {
        super();
        this.#engine = new Engine(module);
        const numbers = Array.from(tables, (table, index) => {
            const data = ArrayBuffer.isView(table) || table instanceof ArrayBuffer ? table : table.data;
            return this.#engine.openTable(bytes(data), table.name ?? `table ${index}`);
        });
        this.#stack = this.#engine.stack(numbers);
    }

    _read(name) {
        const record = this.#engine.find(this.#stack, name);
        return record === undefined ? null : fromRecord(record);
    }

    *_list(prefix, after) {
        for (const record of this.#engine.refs(this.#stack, { prefix, after })) yield named(fromRecord(record));
    }

    *_log(name) {
        for (const record of this.#engine.logs(this.#stack, name)) {
            const entry = fromLogRecord(record);
            if (entry !== null) yield entry;
        }
    }
}

function bytes(data) {
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (!ArrayBuffer.isView(data)) throw new TypeError("a table is given as bytes, or as { name, data }");
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
