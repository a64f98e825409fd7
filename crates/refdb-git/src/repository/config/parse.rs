//! The grammar of a configuration file: bytes to keys and values, in the order of the file.
//!
//! Keys come out in their canonical form: section and variable in lower case, the subsection in
//! between as it was written.

use bstr::BString;
use refdb::internals::is_space;

/// One variable of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// The canonical key: `section.variable` or `section.subsection.variable`.
    pub(super) key: BString,
    /// The value; `None` for a key without `=`.
    pub(super) value: Option<BString>,
    /// The line on which the value ends, counted from 1; 0 if it stands in no file.
    pub(super) line: usize,
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
    Header(BString),
    Variable(Variable),
    Comment,
}

/// Reads a file.
///
/// # Errors
/// The number of the line that breaks the grammar, counted from 1.
pub(super) fn parse(content: &[u8]) -> Result<Vec<Variable>, usize> {
    let parts = parts(content)?.into_iter();
    let variable = |part: Part| match part.kind {
        PartKind::Variable(variable) => Some(variable),
        PartKind::Header(_) | PartKind::Comment => None,
    };
    Ok(parts.filter_map(variable).collect())
}

/// Takes a file apart.
///
/// # Errors
/// The number of the line that breaks the grammar, counted from 1.
pub(super) fn parts(content: &[u8]) -> Result<Vec<Part>, usize> {
    let mark = if content.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let mut reader = Reader {
        content,
        position: mark,
        line: 1,
    };
    let mut section = BString::default();
    let mut parts = Vec::new();
    loop {
        let start = reader.position;
        let Some(byte) = reader.next() else {
            return Ok(parts);
        };
        let kind = match byte {
            b'\n' => continue,
            byte if is_space(byte) => continue,
            b'#' | b';' => {
                reader.skip_line();
                Some(PartKind::Comment)
            }
            b'[' => reader.section().map(|name| {
                section = name.clone();
                PartKind::Header(name)
            }),
            byte if byte.is_ascii_alphabetic() && !section.is_empty() => {
                reader.variable(byte, &section).map(PartKind::Variable)
            }
            _ => None,
        };
        let Some(kind) = kind else {
            return Err(reader.line_of_last());
        };
        let end = reader.position;
        parts.push(Part { kind, start, end });
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
    fn section(&mut self) -> Option<BString> {
        let mut name = BString::default();
        loop {
            match self.next()? {
                b']' => return Some(name).filter(|name| !name.is_empty()),
                b'\n' => return None,
                byte if is_space(byte) => break,
                byte if is_key_byte(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
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
        name.push(b'.');
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
            name.push(byte);
        }
        (self.next()? == b']').then_some(name)
    }

    /// Reads a variable whose name begins with `first`.
    fn variable(&mut self, first: u8, section: &BString) -> Option<Variable> {
        let mut key = section.clone();
        key.push(b'.');
        key.push(first.to_ascii_lowercase());
        let mut next = self.next();
        while let Some(byte) = next.filter(|&byte| is_key_byte(byte)) {
            key.push(byte.to_ascii_lowercase());
            next = self.next();
        }
        while matches!(next, Some(b' ' | b'\t')) {
            next = self.next();
        }
        let value = match next {
            None | Some(b'\n') => None,
            Some(b'=') => Some(self.value()?),
            Some(_) => return None,
        };
        let line = self.line_of_last();
        Some(Variable { key, value, line })
    }

    /// Reads the value behind `=`.
    fn value(&mut self) -> Option<BString> {
        let mut value = Vec::new();
        // Where the value ends when nothing but unquoted white space follows.
        let mut end = 0;
        let (mut quoted, mut comment) = (false, false);
        while let Some(byte) = self.next() {
            match byte {
                b'\n' if quoted => return None,
                b'\n' => break,
                _ if comment => {}
                byte if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                }
                b'#' | b';' if !quoted => comment = true,
                b'\\' => {
                    match self.next()? {
                        // What stands before a continued line's end belongs to the value.
                        b'\n' => {}
                        b't' => value.push(b'\t'),
                        b'b' => value.push(0x08),
                        b'n' => value.push(b'\n'),
                        byte @ (b'\\' | b'"') => value.push(byte),
                        _ => return None,
                    }
                    end = value.len();
                }
                b'"' => {
                    quoted = !quoted;
                    end = end.max(value.len());
                }
                byte => {
                    value.push(byte);
                    end = value.len();
                }
            }
            if quoted {
                end = value.len();
            }
        }
        if quoted {
            return None;
        }
        value.truncate(end);
        Some(value.into())
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
        variables
            .into_iter()
            .map(|variable| {
                let value = variable.value.map(|value| value.to_string());
                (variable.key.to_string(), value)
            })
            .collect()
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
                    assert!(variables.iter().all(|variable| variable.key.contains(&b'.')));
                }
                Err(line) => assert!((1..=lines).contains(&line)),
            }
        }
    }
}
