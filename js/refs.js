// What can be asked of refs, whatever they are read from.

import { check, isWellFormed } from "./names.js";

// How many symrefs are followed: four, and the ref in which they end.
const DEPTH = 5;

/** Refs for reading. Below it are `_read(name)`, `_list(prefix, after)` and `_log(name)`. */
export class Refs {
    /** Returns what is checked out: the branch, if it is one, and the object, if there is one. */
    head() {
        const head = this.read("HEAD");
        if (head === null) return null;
        const end = this.#follow(head);
        const ref = head.symref === undefined ? null : (end?.name ?? head.symref);
        return { ref, oid: end?.oid ?? null };
    }

    /** Returns a ref as it is stored; null if there is none. */
    read(name) {
        check(name);
        return this._read(name);
    }

    /** Returns the object that a ref leads to, symrefs followed; null if it leads to none. */
    resolve(name) {
        const ref = this.read(name);
        const end = ref === null ? null : this.#follow(ref);
        return end?.oid === undefined ? null : end;
    }

    /** Gives all refs whose names start with `prefix`, behind `after`, in the order of their bytes. */
    list({ prefix = "", after = "" } = {}) {
        return this._list(String(prefix), String(after));
    }

    /** Gives the entries of a reflog, the newest first; none if there is no reflog. */
    log(name) {
        check(name);
        return this._log(name);
    }

    /** Gives back what is held. */
    close() {}

    // Returns where symrefs end: at an object, or at a name that is no ref yet; null if nowhere.
    #follow(ref) {
        for (let left = DEPTH; left > 0; left--) {
            if (ref.broken !== undefined) return null;
            if (ref.symref === undefined) return ref;
            if (left === 1 || !isWellFormed(ref.symref)) return null;
            ref = this._read(ref.symref) ?? { name: ref.symref, oid: undefined };
            if (ref.oid === undefined && ref.symref === undefined && ref.broken === undefined) return ref;
        }
        return null;
    }
}

if (Symbol.dispose !== undefined) Refs.prototype[Symbol.dispose] = function dispose() { this.close(); };

/** Marks a ref whose value is none. */
export function sound(ref) {
    return ref.oid !== undefined && /^0*$/.test(ref.oid) ? { name: ref.name, broken: "value" } : ref;
}

/** Marks a listed ref whose name breaks Git's rules: who was not asked for it shall not take it for a path. */
export function named(ref) {
    return isWellFormed(ref.name) ? ref : { name: ref.name, broken: "name" };
}

/** Makes a ref of a table's record; null for a deleted one. */
export function fromRecord({ kind, name, value }) {
    if (kind === "deleted") return null;
    if (kind === "symref") return sound({ name, symref: value });
    if (kind === "direct") return sound({ name, oid: value });
    const half = value.length / 2;
    return sound({ name, oid: value.slice(0, half), peeled: value.slice(half) });
}

/** Makes an entry of a table's record; null for a deleted one, or one that only says that there is a log. */
export function fromLogRecord(record) {
    const isMark = /^0*$/.test(record.old) && /^0*$/.test(record.new);
    if (record.deleted || isMark) return null;
    const { old, new: new_, committer: name, email, time, zone } = record;
    const hours = String(Math.abs(zone)).padStart(4, "0");
    const message = record.message.replace(/\n$/, "");
    return { old, new: new_, name, email, time, zone: `${zone < 0 ? "-" : "+"}${hours}`, message };
}
