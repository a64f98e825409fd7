// The types as a caller meets them; compiled and not run.

import { fromTables, open, RefdbError, type Head, type LogEntry, type Ref, type Refs } from "refdb";

const repository = open(new URL("file:///srv/repo.git"));
const format: "files" | "reftable" = repository.format;
const head: Head | null = repository.head();
const branch: string | null | undefined = head?.ref;

function value(ref: Ref): string {
    if (ref.broken !== undefined) return ref.broken;
    // What is neither broken nor a symref names an object.
    return ref.symref !== undefined ? ref.symref : ref.oid;
}

for (const ref of repository.list({ prefix: "refs/heads/", after: "refs/heads/a" })) value(ref);
const entries: LogEntry[] = [...repository.log("HEAD")];
const given: Promise<Refs> = fromTables([new Uint8Array(1), { name: "a.ref", data: new ArrayBuffer(1) }], { logs: false });
const peeled: string | undefined = repository.resolve("refs/tags/v1")?.peeled;

try {
    repository.read("HEAD");
} catch (error) {
    if (error instanceof RefdbError && error.kind === "corrupt") void `${error.path} ${error.offset}`;
}

// @ts-expect-error a ref has no such field
repository.read("HEAD")?.value;
// @ts-expect-error names are strings
repository.read(7);
// @ts-expect-error nothing is written
repository.update("HEAD");

export { branch, entries, format, given, peeled };
