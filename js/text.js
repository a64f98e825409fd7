// Names and other texts: Git's are bytes, JavaScript's are strings. A byte that belongs to no UTF-8 is a
// lone surrogate from U+DC80 to U+DCFF, so that every text comes back as the bytes that it was.

import { RefdbError } from "./error.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns a text of bytes. */
export function fromBytes(bytes) {
    try {
        return decoder.decode(bytes);
    } catch {
        return fromMixed(bytes);
    }
}

/** Returns the text of bytes that are all ASCII; undefined if they are not. */
export function fromAscii(bytes) {
    try {
        const text = decoder.decode(bytes);
        // Whatever is not ASCII has fewer units than bytes.
        return text.length === bytes.length ? text : undefined;
    } catch {
        return undefined;
    }
}

function fromMixed(bytes) {
    const pieces = [];
    let sound = 0;
    let at = 0;
    while (at < bytes.length) {
        const len = sequence(bytes, at);
        if (len > 0) {
            at += len;
            continue;
        }
        if (sound < at) pieces.push(decoder.decode(bytes.subarray(sound, at)));
        pieces.push(String.fromCharCode(0xdc00 + bytes[at]));
        at += 1;
        sound = at;
    }
    if (sound < at) pieces.push(decoder.decode(bytes.subarray(sound, at)));
    return pieces.join("");
}

// Returns how many bytes the character at a place has; 0 if there is none.
function sequence(bytes, at) {
    const first = bytes[at];
    if (first < 0x80) return 1;
    const len = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    // Longer than need be, surrogates, and what is behind the last character.
    const least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
    const most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
    for (let next = 1; next < len; next++) {
        const byte = bytes[at + next];
        if (byte === undefined || byte < (next === 1 ? least : 0x80)) return 0;
        if (byte > (next === 1 ? most : 0xbf)) return 0;
    }
    return len;
}

/** Returns the bytes of a text. Throws if it has a surrogate that stands for no byte. */
export function toBytes(text) {
    const parts = String(text).split(/(\p{Surrogate})/u);
    if (parts.length === 1) return encoder.encode(parts[0]);
    const bytes = [];
    parts.forEach((part, index) => {
        const unit = part.charCodeAt(0);
        if (index % 2 === 0) {
            for (const byte of encoder.encode(part)) bytes.push(byte);
        } else if (unit >= 0xdc80 && unit <= 0xdcff) {
            bytes.push(unit - 0xdc00);
        } else {
            throw new RefdbError("name", "a surrogate stands for no byte");
        }
    });
    return Uint8Array.from(bytes);
}

/** Compares two texts by their bytes, as Git sorts names. */
export function compare(left, right) {
    if (left === right) return 0;
    if (isAscii(left) && isAscii(right)) return left < right ? -1 : 1;
    const [low, high] = [toBytes(left), toBytes(right)];
    const end = Math.min(low.length, high.length);
    let at = 0;
    while (at < end && low[at] === high[at]) at++;
    return at === end ? low.length - high.length : low[at] - high[at];
}

/** Tells whether a text has nothing but ASCII. */
export function isAscii(text) {
    return /^[\x00-\x7f]*$/.test(text);
}
