// The one error of this package.

/** What went wrong: `kind` says what can be done, `path` and `offset` where it is. */
export class RefdbError extends Error {
    constructor(kind, message, { path, offset, cause } = {}) {
        const where = offset === undefined ? "" : ` (at offset ${offset})`;
        super(`${path === undefined ? "" : `${path}: `}${message}${where}`, { cause });
        this.name = "RefdbError";
        this.kind = kind;
        this.path = path;
        this.offset = offset;
    }
}
