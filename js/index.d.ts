/** The refs of Git repositories, for reading. */

/** A ref that names an object. */
export interface DirectRef {
    /** The full name. Bytes that are no UTF-8 are lone surrogates from U+DC80 to U+DCFF. */
    name: string;
    /** The object, in hexadecimal digits. */
    oid: string;
    /** The object that a tag leads to, where that is stored. */
    peeled?: string;
    symref?: undefined;
    broken?: undefined;
}

/** A ref that names another one. */
export interface SymbolicRef {
    name: string;
    /** The name of the other ref, as it is stored. */
    symref: string;
    oid?: undefined;
    peeled?: undefined;
    broken?: undefined;
}

/** Something that is there and can be no ref: its name breaks Git's rules, or its value is none. */
export interface BrokenRef {
    name: string;
    broken: "name" | "value";
    oid?: undefined;
    peeled?: undefined;
    symref?: undefined;
}

export type Ref = DirectRef | SymbolicRef | BrokenRef;

/** What is checked out. */
export interface Head {
    /** The branch; null if HEAD names an object itself. */
    ref: string | null;
    /** The object; null if the branch has none yet. */
    oid: string | null;
}

/** An entry of a reflog. */
export interface LogEntry {
    /** The objects before and after; all zeros for none. */
    old: string;
    new: string;
    /** Who did it. */
    name: string;
    email: string;
    /** Seconds since 1970-01-01 UTC. */
    time: number;
    /** The time zone, such as "+0130". */
    zone: string;
    message: string;
}

/** What can be asked of refs. Every call sees what others have written before it. */
export interface Refs {
    /** Returns what is checked out; null if there is no HEAD. */
    head(): Head | null;
    /** Returns a ref as it is stored; null if there is none. */
    read(name: string): Ref | null;
    /** Returns the ref in which symrefs end; null if they lead to no object. */
    resolve(name: string): DirectRef | null;
    /** Gives all refs whose names start with `prefix`, behind the name `after`, in the order of their bytes. */
    list(options?: { prefix?: string; after?: string }): Generator<Ref, void, undefined>;
    /** Gives the entries of a reflog, the newest first. */
    log(name: string): Generator<LogEntry, void, undefined>;
    /** Gives back the memory of tables at once; otherwise the garbage collector does. */
    close(): void;
}

/** The refs of a repository, as one of its worktrees sees them. */
export interface Repository extends Refs {
    /** The directory of this worktree. */
    readonly gitDir: string;
    /** The directory of the repository. */
    readonly commonDir: string;
    readonly format: "files" | "reftable";
    readonly hash: "sha1" | "sha256";
}

/** Opens the repository that is at a path, or around it. In Node alone. */
export function open(path?: string | URL): Repository;

/** The bytes of a table, and the name by which errors call it. */
export type Table = ArrayBuffer | ArrayBufferView | { name?: string; data: ArrayBuffer | ArrayBufferView };

/** Reads refs from tables, the oldest first. Without `logs` a smaller module is loaded, which has no reflogs. */
export function fromTables(tables: Iterable<Table>, options?: { logs?: boolean }): Promise<Refs>;

/** What every function here throws. */
export class RefdbError extends Error {
    /** What can be done about it. */
    readonly kind: "corrupt" | "io" | "memory" | "name" | "repository" | "unsafe" | "unsupported";
    /** The file that it is about. */
    readonly path?: string;
    /** Where in that file, in bytes. */
    readonly offset?: number;
}
