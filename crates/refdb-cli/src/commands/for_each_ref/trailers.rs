//! Trailers: lines such as `Signed-off-by: ...` at the end of a message.
//!
//! The last paragraph of a message is a block of trailers if it is not the first one, and either all
//! of its lines are trailers, or at least a quarter of them are and one is of a kind that Git writes
//! itself or that the configuration names.

use std::borrow::Cow;

use bstr::{BString, ByteSlice, ByteVec};
use refdb_git::repository::config::{Config, values};

/// What is shown of trailers, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrailerOptions {
    /// Keys of the trailers to show; empty for all.
    keys: Vec<BString>,
    /// Leaves out lines of the block that are no trailers.
    only: bool,
    /// Joins lines that belong together.
    unfold: bool,
    key_only: bool,
    value_only: bool,
    /// Stands between trailers; each ends with a line feed otherwise.
    separator: Option<BString>,
    key_value_separator: Option<BString>,
}

impl TrailerOptions {
    /// Reads a list of options.
    ///
    /// # Errors
    /// With the option that is not known, or without one for a key that is not named.
    pub(super) fn parse(list: &[u8]) -> Result<Self, Option<BString>> {
        let mut options = TrailerOptions::default();
        let mut rest = list;
        while !rest.is_empty() {
            if let Some((value, after)) = option(rest, "key") {
                let key = value.ok_or(None)?;
                let key = key.strip_suffix(b":").unwrap_or(key);
                options.keys.push(key.into());
                options.only = true;
                rest = after;
                continue;
            }
            if let Some((value, after)) = option(rest, "separator") {
                options.separator = Some(expand(value.unwrap_or_default()));
                rest = after;
                continue;
            }
            if let Some((value, after)) = option(rest, "key_value_separator") {
                options.key_value_separator = Some(expand(value.unwrap_or_default()));
                rest = after;
                continue;
            }
            rest = options.flag(rest)?;
        }
        Ok(options)
    }

    /// Reads an option that is on or off, and returns what follows.
    fn flag<'a>(&mut self, list: &'a [u8]) -> Result<&'a [u8], Option<BString>> {
        let mut rest = list;
        for (name, flag) in [
            ("only", &mut self.only),
            ("unfold", &mut self.unfold),
            ("keyonly", &mut self.key_only),
            ("valueonly", &mut self.value_only),
        ] {
            let Some((value, after)) = option(rest, name) else {
                continue;
            };
            let on = match value {
                None => Some(true),
                value => values::boolean(value),
            };
            match on {
                Some(on) => {
                    *flag = on;
                    return Ok(after);
                }
                // What follows is what Git names then.
                None => rest = after,
            }
        }
        let end = rest.find_byteset(b",)").unwrap_or(rest.len());
        Err(Some(rest.get(..end).unwrap_or(rest).into()))
    }

    /// Returns whether the block is to be shown as it stands.
    fn is_whole_block(&self) -> bool {
        *self == TrailerOptions::default()
    }

    fn wants(&self, key: &[u8]) -> bool {
        let is_key = |wanted: &BString| wanted.eq_ignore_ascii_case(key);
        self.keys.is_empty() || self.keys.iter().any(is_key)
    }
}

/// Returns the value of an option at the start of a list, if it is that option, and what follows.
fn option<'a>(list: &'a [u8], name: &str) -> Option<(Option<&'a [u8]>, &'a [u8])> {
    let rest = list.strip_prefix(name.as_bytes())?;
    let (value, rest) = match rest.strip_prefix(b"=") {
        Some(rest) => {
            let end = rest.find_byteset(b",)").unwrap_or(rest.len());
            let (value, rest) = rest.split_at(end);
            (Some(value), rest)
        }
        None => (None, rest),
    };
    match rest.strip_prefix(b",") {
        Some(rest) => Some((value, rest)),
        None => rest.is_empty().then_some((value, rest)),
    }
}

/// Replaces `%n`, `%%` and `%x41`.
fn expand(text: &[u8]) -> BString {
    let mut out = BString::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once_str("%") {
        out.push_str(before);
        rest = after;
        let hex = after.strip_prefix(b"x").and_then(|hex| hex.get(..2));
        let byte = hex
            .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit))
            .and_then(|hex| u8::from_str_radix(hex.to_str().ok()?, 16).ok());
        let (byte, len) = match (after.first(), byte) {
            (Some(b'%'), _) => (b'%', 1),
            (Some(b'n'), _) => (b'\n', 1),
            (_, Some(byte)) => (byte, 3),
            _ => (b'%', 0),
        };
        out.push(byte);
        rest = rest.get(len..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// What the configuration says of trailers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrailerRules {
    /// The characters that may end a key.
    separators: BString,
    /// Configured trailers: the name, and how its key is written.
    configured: Vec<(BString, Option<BString>)>,
    /// What begins a comment.
    comment: BString,
}

impl Default for TrailerRules {
    fn default() -> Self {
        TrailerRules {
            separators: ":".into(),
            configured: Vec::new(),
            comment: "#".into(),
        }
    }
}

impl TrailerRules {
    /// Reads them.
    pub(super) fn new(config: &Config) -> Self {
        let mut rules = TrailerRules::default();
        for entry in config.entries() {
            let (key, value) = (entry.key(), entry.value().unwrap_or_default());
            if key == "trailer.separators" {
                rules.separators = value.into();
            } else if (key == "core.commentchar" || key == "core.commentstring")
                && !value.is_empty()
            {
                let is_auto = value.eq_ignore_ascii_case(b"auto");
                rules.comment = if is_auto { "#".into() } else { value.into() };
            } else if let Some(rest) = key.strip_prefix(b"trailer.") {
                rules.configure(rest, value);
            }
        }
        rules
    }

    fn configure(&mut self, rest: &[u8], value: &[u8]) {
        const VARIABLES: [&[u8]; 6] = [
            b"key",
            b"where",
            b"ifexists",
            b"ifmissing",
            b"command",
            b"cmd",
        ];
        let Some((name, variable)) = rest.rsplit_once_str(".") else {
            return;
        };
        if !VARIABLES.contains(&variable) {
            return;
        }
        let known = self.configured.iter().position(|(it, _)| it == name);
        let index = known.unwrap_or_else(|| {
            self.configured.push((name.into(), None));
            self.configured.len() - 1
        });
        if variable == b"key"
            && let Some((_, key)) = self.configured.get_mut(index)
        {
            *key = Some(value.into());
        }
    }

    /// Returns the configured trailer that a key is short for.
    fn configured(&self, key: &[u8]) -> Option<&(BString, Option<BString>)> {
        let begins = |name: &BString| {
            let start = name.get(..key.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(key))
        };
        self.configured
            .iter()
            .find(|(name, written)| begins(name) || written.as_ref().is_some_and(begins))
    }

    /// Returns where the character is that ends the key of a line.
    fn separator_of(&self, line: &[u8]) -> Option<usize> {
        let mut seen_blank = false;
        for (at, byte) in line.iter().enumerate() {
            if self.separators.contains(byte) {
                return Some(at);
            }
            match byte {
                b' ' | b'\t' if at > 0 => seen_blank = true,
                b'-' if !seen_blank => {}
                byte if byte.is_ascii_alphanumeric() && !seen_blank => {}
                _ => return None,
            }
        }
        None
    }

    /// Returns where the block of trailers of a message begins and ends.
    fn block(&self, message: &[u8]) -> (usize, usize) {
        let end = self.end_of_message(message);
        let text = message.get(..end).unwrap_or(message);
        (self.block_start(text), end)
    }

    /// Returns where a message ends: before comments, and before a list of conflicts.
    fn end_of_message(&self, message: &[u8]) -> usize {
        let cut = [
            self.comment.as_slice(),
            b" ------------------------ >8 ------------------------\n",
        ]
        .concat();
        let cut_at = if message.starts_with(&cut) {
            0
        } else {
            let line = [b"\n", cut.as_slice()].concat();
            message.find(&line).map_or(message.len(), |at| at + 1)
        };
        let mut comments = None;
        let mut conflicts = false;
        let mut at = 0;
        for line in message.lines_with_terminator() {
            if at >= cut_at {
                break;
            }
            if line.starts_with(&self.comment) || line.starts_with(b"\n") {
                comments.get_or_insert(at);
            } else if line.starts_with(b"Conflicts:\n") {
                conflicts = true;
                comments.get_or_insert(at);
            } else if !(conflicts && line.starts_with(b"\t")) && comments.is_some() {
                comments = None;
                conflicts = false;
            }
            at += line.len();
        }
        match comments {
            Some(start) => start,
            None => cut_at,
        }
    }

    /// Returns where the block begins, or the length if there is none.
    fn block_start(&self, text: &[u8]) -> usize {
        let is_comment = |line: &[u8]| line.starts_with(&self.comment);
        let title = text
            .lines_with_terminator()
            .take_while(|line| is_comment(line) || !is_blank(line));
        let title: usize = title.map(<[u8]>::len).sum();
        let mut at = text.len();
        let (mut trailers, mut others, mut continuations) = (0_usize, 0_usize, 0_usize);
        let mut recognized = false;
        let mut only_blank = true;
        // The lines from the last one on are found one by one: there may be very many.
        while at > title {
            let rest = text.get(..at).unwrap_or(text);
            let before = rest.get(..at - 1).unwrap_or_default();
            at = before.rfind_byte(b'\n').map_or(0, |end| end + 1);
            let line = rest.get(at..).unwrap_or_default();
            if is_comment(line) {
                others += std::mem::take(&mut continuations);
                continue;
            }
            if is_blank(line) {
                if only_blank {
                    continue;
                }
                others += continuations;
                let mixed = recognized && trailers * 3 >= others;
                let pure = trailers > 0 && others == 0;
                return if mixed || pure {
                    at + line.len()
                } else {
                    text.len()
                };
            }
            only_blank = false;
            let by_git = line.starts_with(b"Signed-off-by: ")
                || line.starts_with(b"(cherry picked from commit ");
            if by_git {
                trailers += 1;
                continuations = 0;
                recognized = true;
                continue;
            }
            let starts_blank = line.first().is_some_and(is_space);
            match self.separator_of(line).filter(|at| *at > 0) {
                Some(end) if !starts_blank => {
                    trailers += 1;
                    continuations = 0;
                    let key = line.get(..end).unwrap_or_default();
                    recognized = recognized || self.configured(key).is_some();
                }
                _ if starts_blank => continuations += 1,
                _ => others += 1 + std::mem::take(&mut continuations),
            }
        }
        text.len()
    }

    /// Appends the trailers of a message.
    pub(super) fn push(&self, message: &[u8], options: &TrailerOptions, out: &mut Vec<u8>) {
        let (start, end) = self.block(message);
        let block = message.get(start..end).unwrap_or_default();
        if options.is_whole_block() {
            out.extend_from_slice(block);
            return;
        }
        let begin = out.len();
        let separate = |out: &mut Vec<u8>| {
            if let Some(separator) = options.separator.as_ref().filter(|_| out.len() > begin) {
                out.extend_from_slice(separator);
            }
        };
        for line in self.joined_lines(block) {
            if line.starts_with(&self.comment) {
                continue;
            }
            match self.separator_of(line).filter(|at| *at > 0) {
                Some(at) => {
                    let (key, value) = self.key_and_value(line, at, options.unfold);
                    if options.wants(key) {
                        separate(out);
                        self.push_trailer(key, &value, options, out);
                    }
                }
                None if options.only => {}
                None => {
                    separate(out);
                    out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
                    match options.separator {
                        Some(_) => out.truncate(trim_end(out).len()),
                        None => out.push(b'\n'),
                    }
                }
            }
        }
    }

    /// Returns the lines of a block, each trailer with the lines that go on with it.
    fn joined_lines<'a>(&self, block: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = block;
        std::iter::from_fn(move || {
            let mut lines = rest.lines_with_terminator();
            let mut len = lines.next()?.len();
            if self.separator_of(rest).is_some_and(|at| at > 0) {
                let goes_on = lines.take_while(|line| line.first().is_some_and(is_space));
                len += goes_on.map(<[u8]>::len).sum::<usize>();
            }
            let (line, after) = rest.split_at(len);
            rest = after;
            Some(line)
        })
    }

    fn key_and_value<'a>(
        &'a self,
        line: &'a [u8],
        at: usize,
        unfold: bool,
    ) -> (&'a [u8], Cow<'a, [u8]>) {
        let (key, value) = line.split_at(at);
        let key = trim(key);
        let value = trim(value.get(1..).unwrap_or_default());
        let key = match self.configured(key) {
            Some((_, Some(written))) => written,
            _ => key,
        };
        match unfold {
            true => (key, unfolded(value).into()),
            false => (key, value.into()),
        }
    }

    fn push_trailer(&self, key: &[u8], value: &[u8], options: &TrailerOptions, out: &mut Vec<u8>) {
        if !options.value_only {
            out.extend_from_slice(key);
        }
        if !options.key_only && !options.value_only {
            let last = trim_end(key).last();
            if let Some(separator) = &options.key_value_separator {
                out.extend_from_slice(separator);
            } else if let (Some(last), Some(separator)) = (last, self.separators.first())
                && !self.separators.contains(last)
            {
                out.extend_from_slice(&[*separator, b' ']);
            }
        }
        if !options.key_only {
            out.extend_from_slice(value);
        }
        if options.separator.is_none() {
            out.push(b'\n');
        }
    }
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns a text without the blanks behind it.
fn trim_end(text: &[u8]) -> &[u8] {
    let last = text.iter().rposition(|byte| !is_space(byte));
    text.get(..last.map_or(0, |last| last + 1)).unwrap_or(text)
}

fn trim_start(text: &[u8]) -> &[u8] {
    let first = text.iter().position(|byte| !is_space(byte));
    text.get(first.unwrap_or(text.len())..).unwrap_or(text)
}

fn trim(text: &[u8]) -> &[u8] {
    trim_start(trim_end(text))
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(is_space)
}

/// Makes one line of several: a line feed and the blanks behind it become one blank.
fn unfolded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once_str("\n") {
        out.push_str(before);
        out.push(b' ');
        rest = trim_start(after);
    }
    out.push_str(rest);
    trim(&out).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "title\n\nbody\n\nAcked-by: A\n  B\nno trailer\nSigned-off-by: C\n";

    fn show(options: &str) -> String {
        let options = TrailerOptions::parse(options.as_bytes()).unwrap();
        let mut out = Vec::new();
        TrailerRules::default().push(MESSAGE.as_bytes(), &options, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn options_choose_and_shape() {
        assert_eq!(show(""), &MESSAGE["title\n\nbody\n\n".len()..]);
        assert_eq!(show("only"), "Acked-by: A\n  B\nSigned-off-by: C\n");
        assert_eq!(show("only,unfold"), "Acked-by: A B\nSigned-off-by: C\n");
        assert_eq!(show("key=acked-BY,valueonly,unfold"), "A B\n");
        assert_eq!(
            show("keyonly,separator=%x2c"),
            "Acked-by,no trailer,Signed-off-by"
        );
        assert_eq!(
            show("key=Signed-off-by:,key_value_separator==>"),
            "Signed-off-by=>C\n"
        );
    }

    #[test]
    fn mistakes() {
        let mistake = |text: &str| TrailerOptions::parse(text.as_bytes()).unwrap_err();
        assert_eq!(mistake("key"), None);
        assert_eq!(mistake("foo,only"), Some("foo".into()));
        assert_eq!(mistake("onlyx"), Some("onlyx".into()));
    }

    #[test]
    fn a_paragraph_of_text_is_no_block() {
        let rules = TrailerRules::default();
        for text in ["Acked-by: A\n", "t\n\na: b\nc\n", "t\n\ntext\n", ""] {
            let (start, end) = rules.block(text.as_bytes());
            assert_eq!(start, end, "{text}");
        }
        let commented = "t\n\na: b\n# comment\n\n";
        assert_eq!(rules.block(commented.as_bytes()), (3, 8));
    }
}
