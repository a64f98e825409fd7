//! Commands that write.

use bstr::{BString, ByteVec};

use super::words::{any, message, name, value};
use crate::rng::Rng;

/// What a command is called, its arguments, and its input in pieces.
pub(super) type Parts = (&'static str, Vec<BString>, Vec<BString>);

/// A single update.
pub(super) fn update_ref(rng: &mut Rng) -> Parts {
    let mut args: Vec<BString> = Vec::new();
    if rng.percent(25) {
        args.extend(["-m".into(), message(rng)]);
    }
    for option in ["--no-deref", "--create-reflog", "--deref"] {
        if rng.percent(12) {
            args.push(option.into());
        }
    }
    if rng.percent(2) {
        let odd = [
            "-z",
            "--batch-updates",
            "-q",
            "-md",
            "-0",
            "--no-stdin",
            "--no-create-reflog",
            "--no-batch-updates",
            "-dm",
            "-m",
            "--stdin",
            "--",
        ];
        args.push((*rng.pick(&odd)).into());
    }
    if rng.percent(30) {
        args.extend(["-d".into(), name(rng)]);
        if rng.percent(40) {
            args.push(value(rng));
        }
    } else {
        args.extend([
            name(rng),
            if rng.percent(20) {
                any(rng)
            } else {
                value(rng)
            },
        ]);
        if rng.percent(35) {
            args.push(value(rng));
        }
    }
    if rng.percent(2) {
        args.push(value(rng));
    }
    ("update-ref", args, Vec::new())
}

/// Many updates from standard input.
pub(super) fn stdin(rng: &mut Rng) -> Parts {
    let mut args: Vec<BString> = vec!["--stdin".into()];
    let records = rng.percent(30);
    if records {
        args.push("-z".into());
    }
    if rng.percent(25) {
        args.push("--batch-updates".into());
    }
    if rng.percent(20) {
        args.push("--no-deref".into());
    }
    if rng.percent(15) {
        args.push("--create-reflog".into());
    }
    if rng.percent(20) {
        args.extend(["-m".into(), message(rng)]);
    }
    let mut pieces = Vec::new();
    let dialogue = rng.percent(30);
    for _ in 0..1 + rng.below(6) {
        let at = pieces.len();
        if dialogue && rng.percent(45) {
            let words = ["start", "prepare", "commit", "abort", "start", "commit"];
            let word = (*rng.pick(&words)).into();
            pieces.push(line(rng, records, vec![word]));
        } else {
            let fields = edit(rng, records);
            pieces.push(line(rng, records, fields));
        }
        if rng.percent(3) {
            let odd: [&[u8]; 20] = [
                b"\n",
                b" ",
                b"\t",
                b"\0",
                b"\r\n",
                b"\"",
                b"x",
                b"option\n",
                b"update\n",
                b"update \n",
                b"create refs/heads/a\n",
                b"delete  refs/heads/a\n",
                b" update refs/heads/a {c1}\n",
                b"update refs/heads/a \"{c1}\" \"\"\n",
                b"update\trefs/heads/a {c1}\n",
                b"verify refs/heads/topic {zero}\n",
                b"updates refs/heads/a {c1}\n",
                b"UPDATE refs/heads/a {c1}\n",
                b"start x\n",
                b"commit\n",
            ];
            pieces.insert(at, (*rng.pick(&odd)).into());
        }
    }
    if rng.percent(5) {
        // Cut off before its end.
        if let Some(last) = pieces.last_mut() {
            let keep = rng.below(last.len());
            last.truncate(keep);
        }
    }
    ("update-ref", args, pieces)
}

/// The fields of one edit, the verb first.
fn edit(rng: &mut Rng, records: bool) -> Vec<BString> {
    let mut fields: Vec<BString> = Vec::new();
    let verbs = [
        "update",
        "create",
        "delete",
        "verify",
        "symref-update",
        "symref-create",
        "symref-delete",
        "symref-verify",
        "option",
        "update",
        "create",
        "delete",
    ];
    let verb = *rng.pick(&verbs);
    fields.push(verb.into());
    if verb == "option" {
        let options = [
            "no-deref",
            "no-deref",
            "no-deref",
            "deref",
            "",
            "no-deref x",
        ];
        fields.push((*rng.pick(&options)).into());
        return fields;
    }
    fields.push(name(rng));
    // In records a field that may be left out is there, and empty.
    let maybe = |rng: &mut Rng, field: fn(&mut Rng) -> BString| match rng.percent(50) {
        true => Some(field(rng)),
        false => records.then(BString::default),
    };
    match verb {
        "update" => {
            fields.push(value(rng));
            fields.extend(maybe(rng, value));
        }
        "create" => fields.push(value(rng)),
        "symref-create" => fields.push(name(rng)),
        "delete" | "verify" => fields.extend(maybe(rng, value)),
        "symref-delete" | "symref-verify" => fields.extend(maybe(rng, name)),
        _ => {
            fields.push(name(rng));
            match rng.below(4) {
                0 => fields.extend(["oid".into(), value(rng)]),
                1 => fields.extend(["ref".into(), name(rng)]),
                2 => fields.extend(records.then(BString::default)),
                _ => fields.push((*rng.pick(&["oid", "ref", "foo"])).into()),
            }
        }
    }
    if rng.percent(4) {
        let at = rng.below(fields.len());
        fields.remove(at);
    }
    if rng.percent(3) {
        fields.push(any(rng));
    }
    fields
}

/// Writes fields as a line or as a record.
fn line(rng: &mut Rng, records: bool, fields: Vec<BString>) -> BString {
    let mut text = BString::default();
    for (index, field) in fields.into_iter().enumerate() {
        let between: &[u8] = match (index, records) {
            (0, _) => b"",
            (1, _) => b" ",
            (_, true) => b"\0",
            (_, false) => b" ",
        };
        match rng.below(100) {
            0 => text.push_str(b"  "),
            1 => text.push_str(b"\t"),
            _ => text.push_str(between),
        }
        let odd = field.iter().any(|b| b" \"\t".contains(b));
        if !records && index > 0 && (rng.percent(6) || (odd && rng.percent(80))) {
            quote(rng, &field, &mut text);
        } else {
            text.push_str(field);
        }
    }
    text.push_str(if records { b"\0" } else { b"\n" });
    text
}

/// Writes a field in quotes, as C does.
fn quote(rng: &mut Rng, field: &[u8], text: &mut BString) {
    text.push(b'"');
    for &byte in field {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b'\t' => text.push_str("\\t"),
            // Names of objects are filled in later.
            b'{' | b'}' => text.push(byte),
            b if !(0x20..0x7f).contains(&b) => text.push_str(format!("\\{b:03o}")),
            b => text.push(b),
        }
    }
    if !rng.percent(4) {
        text.push(b'"');
    }
    if rng.percent(3) {
        text.push(b'x');
    }
}

/// Reading and writing symrefs.
pub(super) fn symbolic_ref(rng: &mut Rng) -> Parts {
    let mut args: Vec<BString> = Vec::new();
    for option in ["-q", "--short", "--no-recurse", "--recurse"] {
        if rng.percent(15) {
            args.push(option.into());
        }
    }
    for option in [
        "--quiet",
        "--delete",
        "--no-short",
        "--no-delete",
        "-qd",
        "-m",
        "-m=",
    ] {
        if rng.percent(2) {
            args.push(option.into());
        }
    }
    if rng.percent(15) {
        args.extend(["-m".into(), message(rng)]);
    }
    match rng.below(10) {
        0 | 1 => args.extend(["-d".into(), name(rng)]),
        2..6 => args.push(name(rng)),
        _ => args.extend([name(rng), name(rng)]),
    }
    if rng.percent(2) {
        args.push(name(rng));
    }
    ("symbolic-ref", args, Vec::new())
}
