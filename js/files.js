// The format `files`: a file for each ref, and packed-refs.

import { RefdbError } from "./error.js";
import { entries, read, stat } from "./disk.js";
import { isRoot, isWellFormed } from "./names.js";
import { named, sound } from "./refs.js";
import { compare, fromBytes, toBytes } from "./text.js";

const LOOSE_MAX = 1 << 20;
const PACKED_MAX = 1 << 28;
const LOG_MAX = 1 << 28;

/** The refs in one directory, by the names that they have there. */
export class Files {
    #dir;
    #hexLen;
    #packed = null;

    constructor(dir, hash) {
        this.#dir = dir;
        this.#hexLen = hash === "sha256" ? 64 : 40;
    }

    read(name) {
        // Who packs a ref removes its file afterwards, so that it is in one of the two when asked in this order.
        return this.#loose(name) ?? this.#fromPacked(name);
    }

    *list(prefix, after) {
        const names = this.#looseNames(prefix);
        const packed = this.#readPacked().refs(prefix, after);
        let next = packed.next();
        for (const name of names) {
            if (after !== "" && compare(name, after) <= 0) continue;
            while (!next.done && compare(next.value.name, name) < 0) {
                yield named(sound(next.value));
                next = packed.next();
            }
            const loose = this.#loose(name);
            const isPacked = !next.done && next.value.name === name;
            // One that went since its directory was read was packed, perhaps, or is in its packed form here.
            const ref = loose ?? (isPacked ? sound(next.value) : this.#fromPacked(name));
            if (isPacked) next = packed.next();
            if (ref !== null) yield named(ref);
        }
        for (; !next.done; next = packed.next()) yield named(sound(next.value));
    }

    *log(name) {
        const found = read(this.#dir, `logs/${name}`, LOG_MAX);
        if (found?.content === undefined) return;
        const text = found.content.latin1Slice();
        let end = text.length;
        while (end > 0) {
            const start = text.lastIndexOf("\n", end - 2) + 1;
            const entry = this.#entry(text.slice(start, text[end - 1] === "\n" ? end - 1 : end));
            if (entry !== null) yield entry;
            end = start;
        }
    }

    close() {}

    // Returns the ref that a file is; null if there is none.
    #loose(name) {
        const found = read(this.#dir, name, LOOSE_MAX);
        if (found === null) return null;
        if (found.link !== undefined) {
            const isRef = found.link.startsWith("refs/") && isWellFormed(found.link);
            return sound(isRef ? { name, symref: found.link } : { name, broken: "value" });
        }
        const content = found.content?.latin1Slice() ?? "";
        const [, symref] = /^ref:[ \t\n\v\f\r]*([^]*?)[ \t\n\v\f\r]*$/.exec(content) ?? [];
        if (symref !== undefined) return sound({ name, symref: text(symref) });
        const oid = content.slice(0, this.#hexLen);
        const isId = this.#isId(oid) && /^[ \t\n\v\f\r]|^$/.test(content.slice(this.#hexLen));
        return sound(isId ? { name, oid: oid.toLowerCase() } : { name, broken: "value" });
    }

    #isId(oid) {
        return oid.length === this.#hexLen && /^[0-9a-fA-F]*$/.test(oid);
    }

    // Returns the names of files that may be refs, in the order of their bytes.
    #looseNames(prefix) {
        const names = [];
        const walk = (dir) => {
            for (const entry of entries(this.#dir, dir)) {
                const name = `${dir}/${entry.name}`;
                if (entry.isDirectory) {
                    // Nothing below it may have the prefix.
                    const below = `${name}/`;
                    if (below.startsWith(prefix) || prefix.startsWith(below)) walk(name);
                } else if (name.startsWith(prefix) && isOfRef(entry, name, this.#dir)) {
                    names.push(name);
                }
            }
        };
        if ("refs/".startsWith(prefix) || prefix.startsWith("refs/")) walk("refs");
        if (!prefix.includes("/")) {
            const roots = entries(this.#dir, "").filter(({ name }) => isRoot(name) && name.startsWith(prefix));
            for (const { name, isDirectory } of roots) {
                const loose = isDirectory ? null : this.#loose(name);
                // What is no ref there may be anything.
                if (loose !== null && (loose.broken === undefined || name === "HEAD")) names.push(name);
            }
        }
        return names.sort(compare);
    }

    #fromPacked(name) {
        const found = this.#readPacked().find(name);
        return found === null ? null : sound(found);
    }

    // Returns what packed-refs says now.
    #readPacked() {
        const now = stat(this.#dir, "packed-refs");
        if (now === null) return (this.#packed = new Packed("", this.#hexLen, this.#dir));
        if (this.#packed?.isOf(now)) return this.#packed;
        const found = read(this.#dir, "packed-refs", PACKED_MAX);
        const path = `${this.#dir}/packed-refs`;
        if (found?.link !== undefined) throw new RefdbError("unsafe", "is a link, which is not followed", { path });
        if (found?.odd) throw new RefdbError("corrupt", "is no file, or one that is too long", { path });
        const content = found?.content.latin1Slice() ?? "";
        return (this.#packed = new Packed(content, this.#hexLen, this.#dir, found?.stat));
    }

    // Reads a line of a reflog; null if it is none.
    #entry(line) {
        const hex = this.#hexLen;
        const [old, new_, rest] = [line.slice(0, hex), line.slice(hex + 1, 2 * hex + 1), line.slice(2 * hex + 2)];
        const isEntry = this.#isId(old) && this.#isId(new_) && line[hex] === " " && line[2 * hex + 1] === " ";
        const close = rest.indexOf("> ");
        const [all, time, zone] = /^(\d+) ([+-]\d{4})/.exec(rest.slice(close + 2)) ?? [];
        if (!isEntry || close < 0 || all === undefined || rest.indexOf(">") < close) return null;
        const who = rest.slice(0, close);
        const open = who.indexOf("<");
        const name = text((open < 0 ? who : who.slice(0, open)).replace(/ $/, ""));
        const email = text(open < 0 ? "" : who.slice(open + 1));
        const message = text(rest.slice(close + 2 + all.length).replace(/^\t/, ""));
        return { old: old.toLowerCase(), new: new_.toLowerCase(), name, email, time: Number(time), zone, message };
    }
}

// Tells whether what lies below refs may be a ref: locks and what is still written are none.
function isOfRef(entry, name, dir) {
    if (entry.name.endsWith(".lock")) return false;
    if (!entry.isLink) return true;
    // A link is a ref if it names one; anything else may be a directory of refs, which would be missed.
    const found = read(dir, name, LOOSE_MAX);
    if (found?.link?.startsWith("refs/") && isWellFormed(found.link)) return true;
    throw new RefdbError("unsafe", "is a link, which is not followed", { path: `${dir}/${name}` });
}

function text(binary) {
    return fromBytes(Buffer.from(binary, "latin1"));
}

/** packed-refs, each byte of which is a character here, so that order is that of bytes. */
class Packed {
    #text;
    #hexLen;
    #path;
    #stat;

    constructor(content, hexLen, dir, stat) {
        this.#hexLen = hexLen;
        this.#path = `${dir}/packed-refs`;
        this.#stat = stat;
        if (content !== "" && !content.endsWith("\n")) throw this.#corrupt(content.length, "the last line has no end");
        const [header] = /^#[^\n]*\n/.exec(content) ?? [""];
        this.#text = content.slice(header.length);
        if (!/ sorted /.test(header.replace("\n", " "))) this.#sort();
    }

    isOf(stat) {
        const own = this.#stat;
        return own !== undefined && ["ino", "dev", "size", "mtimeNs", "ctimeNs"].every((field) => own[field] === stat[field]);
    }

    /** Returns the ref of this name; null if it is not packed. */
    find(name) {
        const wanted = Buffer.from(toBytes(name)).latin1Slice();
        const at = this.#seek(wanted);
        if (at >= this.#text.length) return null;
        const { ref } = this.#record(at);
        return ref.name === wanted ? { ...ref, name } : null;
    }

    /** Gives the refs with a prefix, behind a name. */
    *refs(prefix, after) {
        const [start, behind] = [prefix, after].map((name) => Buffer.from(toBytes(name)).latin1Slice());
        let at = this.#seek(behind > start ? behind : start);
        while (at < this.#text.length) {
            const { ref, next } = this.#record(at);
            if (!ref.name.startsWith(start)) return;
            if (ref.name !== behind || behind === "") yield { ...ref, name: text(ref.name) };
            at = next;
        }
    }

    // Returns where the first record is whose name is not less than this one.
    #seek(name) {
        let [low, high] = [0, this.#text.length];
        while (low < high) {
            let at = this.#text.lastIndexOf("\n", low + ((high - low) >> 1) - 1) + 1;
            // The line of a tag's object belongs to the record above it.
            while (at > low && this.#text[at] === "^") at = this.#text.lastIndexOf("\n", at - 2) + 1;
            if (at < low) at = low;
            const { ref, next } = this.#record(at);
            if (ref.name < name) low = next;
            else high = at;
        }
        return low;
    }

    #record(at) {
        const end = this.#text.indexOf("\n", at);
        const oid = this.#text.slice(at, at + this.#hexLen);
        const name = this.#text.slice(at + this.#hexLen + 1, end);
        const isRecord = /^[0-9a-fA-F]+$/.test(oid) && oid.length === this.#hexLen;
        if (!isRecord || this.#text[at + this.#hexLen] !== " " || name === "") {
            throw this.#corrupt(at, "a line is no ref");
        }
        if (this.#text[end + 1] !== "^") return { ref: { name, oid: oid.toLowerCase() }, next: end + 1 };
        const peeledEnd = this.#text.indexOf("\n", end + 1);
        const peeled = this.#text.slice(end + 2, peeledEnd);
        if (!/^[0-9a-fA-F]+$/.test(peeled) || peeled.length !== this.#hexLen) {
            throw this.#corrupt(end + 1, "a line is no object of a tag");
        }
        return { ref: { name, oid: oid.toLowerCase(), peeled: peeled.toLowerCase() }, next: peeledEnd + 1 };
    }

    // Puts the records in order, which other programs need not have done.
    #sort() {
        const records = [];
        for (let at = 0; at < this.#text.length; ) {
            const { ref, next } = this.#record(at);
            records.push([ref.name, this.#text.slice(at, next)]);
            at = next;
        }
        records.sort(([low], [high]) => (low < high ? -1 : low > high ? 1 : 0));
        this.#text = records.map(([, lines]) => lines).join("");
    }

    #corrupt(offset, what) {
        return new RefdbError("corrupt", what, { path: this.#path, offset });
    }
}
