//! The grammar of a configuration file: bytes to keys and values, in the order of the file.
//!
//! Keys come out in their canonical form: section and variable in lower case, the subsection in
//! between as it was written.
//!
//! A line may have two bytes, and there may be millions: what is kept of one is small, and none has an allocation of its
//! own.

use std::collections::HashMap;

use bstr::{BStr, BString, ByteSlice};
use refdb::internals::is_space;

/// The keys and values of a file are no longer than this: a long section's name stands in each of its keys.
const TEXT_MAX: usize = 1 << 30;

/// The variables of one source, in its order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Variables {
    /// Keys and values; a key stands there once for each section that has it.
    text: Vec<u8>,
    list: Vec<Variable>,
}

impl Variables {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX)
    }

    /// Returns the canonical key: `section.variable` or `section.subsection.variable`.
    pub(super) fn key(&self, at: u32) -> &BStr {
        let variable = self.list.get(at as usize);
        variable.map_or(b"".into(), |it| it.key.of(&self.text))
    }

    /// Returns the value; `None` for a key without `=`.
    pub(super) fn value(&self, at: u32) -> Option<&BStr> {
        Some(self.list.get(at as usize)?.value?.of(&self.text))
    }

    /// Returns the line on which the value ends, counted from 1; 0 if it stands in no file.
    pub(super) fn line(&self, at: u32) -> usize {
        self.list.get(at as usize).map_or(0, |it| it.line as usize)
    }

    /// Adds one that stands in no file; `None` if there is no room for it.
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<()> {
        let mut add = |text| {
            let from = self.text.len();
            self.text.extend_from_slice(text);
            Span::since(from, &self.text)
        };
        let key = add(key)?;
        let value = match value {
            Some(value) => Some(add(value)?),
            None => None,
        };
        let line = 0;
        self.list.push(Variable { key, value, line });
        Some(())
    }
}

/// A part of the text of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Returns all of a text behind `from`; `None` if it is too long.
    fn since(from: usize, text: &[u8]) -> Option<Span> {
        let start = u32::try_from(from).ok()?;
        let len = u32::try_from(text.len().checked_sub(from)?).ok()?;
        (text.len() <= TEXT_MAX).then_some(Span { start, len })
    }

    pub(super) fn of(self, text: &[u8]) -> &BStr {
        let from = text.get(self.start as usize..).unwrap_or_default();
        from.get(..self.len as usize).unwrap_or_default().as_bstr()
    }
}

/// One variable of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) key: Span,
    value: Option<Span>,
    line: u32,
}

impl Variable {
    /// Returns whether this is its value.
    pub(super) fn is(&self, value: &[u8], text: &[u8]) -> bool {
        self.value.is_some_and(|it| it.of(text) == value)
    }
}

/// A part of a file, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: PartKind,
    pub(super) start: usize,
    /// Behind the line feed of a variable or a comment, behind the `]` of a header.
    pub(super) end: usize,
}

/// What a part of a file is; white space is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// The header of a section, with its canonical name.
    Header(Span),
    Variable(Variable),
    Comment,
}

/// Reads a file.
///
/// # Errors
/// The number of the line that breaks the grammar, counted from 1.
pub(super) fn parse(content: &[u8]) -> Result<Variables, usize> {
    let mut list = Vec::new();
    let text = parts(content, |part| {
        if let PartKind::Variable(variable) = part.kind {
            list.push(variable);
        }
    })?;
    Ok(Variables { text, list })
}

/// Takes a file apart; returns the text in which the names of its sections and its keys and values stand.
///
/// # Errors
/// The number of the line that breaks the grammar, counted from 1.
pub(super) fn parts(content: &[u8], mut each: impl FnMut(Part)) -> Result<Vec<u8>, usize> {
    let mark = if content.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let mut reader = Reader {
        content,
        position: mark,
        line: 1,
        text: Vec::new(),
        section: Span::default(),
        keys: HashMap::new(),
    };
    loop {
        let start = reader.position;
        let Some(byte) = reader.next() else {
            return Ok(reader.text);
        };
        let kind = match byte {
            b'\n' => continue,
            byte if is_space(byte) => continue,
            b'#' | b';' => {
                reader.skip_line();
                Some(PartKind::Comment)
            }
            b'[' => reader.section().map(PartKind::Header),
            byte if byte.is_ascii_alphabetic() && reader.section.len > 0 => {
                reader.variable(start).map(PartKind::Variable)
            }
            _ => None,
        };
        let Some(kind) = kind else {
            return Err(reader.line_of_last());
        };
        let end = reader.position;
        each(Part { kind, start, end });
    }
}

/// Returns the canonical form of a key that was given on its own, as to `-c`.
///
/// # Errors
/// What is wrong with it, in Git's words.
pub(super) fn canonical_key(key: &[u8]) -> Result<BString, String> {
    let shown = BString::from(key);
    if key.is_empty() {
        return Err("empty config key".to_owned());
    }
    let Some(last) = key
        .iter()
        .rposition(|&byte| byte == b'.')
        .filter(|&at| at > 0)
    else {
        return Err(format!("key does not contain a section: {shown}"));
    };
    let (front, variable) = key.split_at(last);
    let Some((&first, _)) = variable.get(1..).and_then(<[u8]>::split_first) else {
        return Err(format!("key does not contain variable name: {shown}"));
    };
    let variable = variable.get(1..).unwrap_or_default();
    let dot = front.iter().position(|&byte| byte == b'.');
    let (section, subsection) = front.split_at(dot.unwrap_or(front.len()));
    if !section.iter().copied().all(is_key_byte)
        || !variable.iter().copied().all(is_key_byte)
        || !first.is_ascii_alphabetic()
    {
        return Err(format!("invalid key: {shown}"));
    }
    if subsection.contains(&b'\n') {
        return Err(format!("invalid key (newline): {shown}"));
    }
    let mut canonical = section.to_ascii_lowercase();
    canonical.extend_from_slice(subsection);
    canonical.push(b'.');
    canonical.extend(variable.to_ascii_lowercase());
    Ok(canonical.into())
}

struct Reader<'a> {
    content: &'a [u8],
    position: usize,
    // The number of the line that the next byte is on.
    line: usize,
    text: Vec<u8>,
    section: Span,
    // The keys of the section, by the names of its variables as they were written.
    keys: HashMap<&'a [u8], Span>,
}

impl Reader<'_> {
    /// Returns the next byte; a line that ends in CR LF ends in LF.
    fn next(&mut self) -> Option<u8> {
        let mut byte = *self.content.get(self.position)?;
        self.position += 1;
        if byte == b'\r' && self.content.get(self.position) == Some(&b'\n') {
            self.position += 1;
            byte = b'\n';
        }
        if byte == b'\n' {
            self.line += 1;
        }
        Some(byte)
    }

    /// Returns the line of the byte that was read last.
    fn line_of_last(&self) -> usize {
        let last = self.position.checked_sub(1);
        match last.and_then(|last| self.content.get(last)) {
            Some(b'\n') => self.line - 1,
            _ => self.line,
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), None | Some(b'\n')) {}
    }

    /// Reads the rest of a section's header.
    fn section(&mut self) -> Option<Span> {
        let from = self.text.len();
        self.section_name()?;
        self.section = Span::since(from, &self.text).filter(|name| name.len > 0)?;
        self.keys = HashMap::new();
        Some(self.section)
    }

    fn section_name(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b']' => return Some(()),
                b'\n' => return None,
                byte if is_space(byte) => break,
                byte if is_key_byte(byte) || byte == b'.' => {
                    self.text.push(byte.to_ascii_lowercase());
                }
                _ => return None,
            }
        }
        loop {
            match self.next()? {
                b'"' => break,
                b'\n' => return None,
                byte if is_space(byte) => {}
                _ => return None,
            }
        }
        self.text.push(b'.');
        loop {
            let mut byte = self.next()?;
            if byte == b'"' {
                break;
            }
            if byte == b'\\' {
                byte = self.next()?;
            }
            if byte == b'\n' {
                return None;
            }
            self.text.push(byte);
        }
        (self.next()? == b']').then_some(())
    }

    /// Reads a variable whose name begins at `start`, and of which the first byte was read.
    fn variable(&mut self, start: usize) -> Option<Variable> {
        let mut end = self.position;
        let mut next = self.next();
        while next.is_some_and(is_key_byte) {
            end = self.position;
            next = self.next();
        }
        let key = self.key(start, end)?;
        while matches!(next, Some(b' ' | b'\t')) {
            next = self.next();
        }
        let value = match next {
            None | Some(b'\n') => None,
            Some(b'=') => Some(self.value()?),
            Some(_) => return None,
        };
        let line = u32::try_from(self.line_of_last()).ok()?;
        Some(Variable { key, value, line })
    }

    /// Returns the key of the variable whose name stands there.
    fn key(&mut self, start: usize, end: usize) -> Option<Span> {
        let name = self.content.get(start..end)?;
        if let Some(known) = self.keys.get(name) {
            return Some(*known);
        }
        let from = self.text.len();
        let section = self.section.start as usize;
        self.text
            .extend_from_within(section..section + self.section.len as usize);
        self.text.push(b'.');
        self.text.extend(name.iter().map(u8::to_ascii_lowercase));
        let key = Span::since(from, &self.text)?;
        self.keys.insert(name, key);
        Some(key)
    }

    /// Reads the value behind `=`.
    fn value(&mut self) -> Option<Span> {
        let from = self.text.len();
        // Where the value ends when nothing but unquoted white space follows.
        let mut end = from;
        let (mut quoted, mut comment) = (false, false);
        while let Some(byte) = self.next() {
            match byte {
                b'\n' if quoted => return None,
                b'\n' => break,
                _ if comment => {}
                byte if is_space(byte) && !quoted => {
                    if self.text.len() > from {
                        self.text.push(byte);
                    }
                }
                b'#' | b';' if !quoted => comment = true,
                b'\\' => {
                    match self.next()? {
                        // What stands before a continued line's end belongs to the value.
                        b'\n' => {}
                        b't' => self.text.push(b'\t'),
                        b'b' => self.text.push(0x08),
                        b'n' => self.text.push(b'\n'),
                        byte @ (b'\\' | b'"') => self.text.push(byte),
                        _ => return None,
                    }
                    end = self.text.len();
                }
                b'"' => {
                    quoted = !quoted;
                    end = end.max(self.text.len());
                }
                byte => {
                    self.text.push(byte);
                    end = self.text.len();
                }
            }
            if quoted {
                end = self.text.len();
            }
        }
        if quoted {
            return None;
        }
        self.text.truncate(end);
        Span::since(from, &self.text)
    }
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(content: &str) -> Vec<(String, Option<String>)> {
        let variables = parse(content.as_bytes()).unwrap();
        let value = |at| variables.value(at).map(ToString::to_string);
        let pair = |at| (variables.key(at).to_string(), value(at));
        (0..variables.len()).map(pair).collect()
    }

    fn pair(key: &str, value: &str) -> (String, Option<String>) {
        (key.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn sections_and_values() {
        let content = "\u{feff}; comment\n[Core] Bare = false\n\tlogAllRefUpdates\r\n\
                       [branch \"A \\\"b\\\\\"]\nx = a  b  # c\ny=\" q # ; \" z \\\n  w\n\
                       [Old.Style]\nk = \\tt\\n\ne=\n";
        assert_eq!(
            pairs(content),
            [
                pair("core.bare", "false"),
                ("core.logallrefupdates".to_owned(), None),
                pair("branch.A \"b\\.x", "a  b"),
                pair("branch.A \"b\\.y", " q # ;  z   w"),
                pair("old.style.k", "\tt\n"),
                pair("old.style.e", ""),
            ]
        );
    }

    #[test]
    fn a_broken_line_is_told_by_its_number() {
        for (content, line) in [
            ("[core]\na = 1\n[core\n", 3),
            ("x = 1\n", 1),
            ("[core]\n\na = \"open\nb = 2\n", 3),
            ("[core]\n1a = 2\n", 2),
            ("[core]\na b = 2\n", 2),
            ("[core]\na = \\q\n", 2),
            ("[a \"b\nc\"]\n", 1),
            ("[]\n", 1),
        ] {
            assert_eq!(parse(content.as_bytes()), Err(line), "{content:?}");
        }
    }

    #[test]
    fn keys_on_their_own() {
        assert_eq!(canonical_key(b"Core.Bare").unwrap(), "core.bare");
        assert_eq!(canonical_key(b"A.B.c.D").unwrap(), "a.B.c.d");
        assert!(canonical_key(b"core").is_err());
        assert!(canonical_key(b"core.").is_err());
        assert!(canonical_key(b".x").is_err());
        assert!(canonical_key(b"core.1x").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            content in proptest::collection::vec(
                proptest::sample::select(&b"[]\"\\\n\r =#;.-aA1\0\xff\t"[..]),
                0..60,
            ),
        ) {
            let lines = content.iter().filter(|&&byte| byte == b'\n').count() + 1;
            match parse(&content) {
                Ok(variables) => {
                    assert!((0..variables.len()).all(|at| variables.key(at).contains(&b'.')));
                }
                Err(line) => assert!((1..=lines).contains(&line)),
            }
        }
    }
}
