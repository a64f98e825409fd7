//! Changing a single variable of a configuration file, so that the file is what `git config` leaves.
//!
//! Everything else in the file stays as it is: other lines, comments, the order.

use refdb::internals::is_space;
use refdb::{Error, ErrorKind, Result};

use super::parse::{self, Part, PartKind, Span};

/// Returns `content` with the variable `section.name` set to `value`, or without it.
///
/// The key is in its canonical form.
///
/// # Errors
/// `Config` when the file breaks the grammar, or has the variable more than once.
pub fn set(content: &[u8], section: &str, name: &str, value: Option<&[u8]>) -> Result<Vec<u8>> {
    let (text, parts) = read(content)?;
    let key = format!("{section}.{name}");
    let is_it =
        |part: &Part| matches!(&part.kind, PartKind::Variable(it) if it.key.of(&text) == key);
    let mut found = parts.iter().enumerate().filter(|(_, part)| is_it(part));
    let first = found.next();
    if found.next().is_some() {
        return Err(refused(format!("{key} has multiple values")));
    }
    let line =
        value.map(|value| [format!("\t{name} = ").as_bytes(), &quoted(value), b"\n"].concat());
    let (keep, resume, header) = match (first, &line) {
        (None, None) => return Ok(content.to_vec()),
        (Some((at, part)), None) => {
            let range = emptied_section(&text, &parts, at).unwrap_or((part.start, part.end));
            (before_space(content, range.0), range.1, false)
        }
        (Some((_, part)), Some(_)) => (before_space(content, part.start), part.end, false),
        (None, Some(_)) => match place_for_new(content, &parts, |name| name.of(&text) == section) {
            Some(place) => (place, place, false),
            None => (content.len(), content.len(), true),
        },
    };
    let mut new = content.get(..keep).unwrap_or(content).to_vec();
    if new.last().is_some_and(|&last| last != b'\n') {
        new.push(b'\n');
    }
    if let Some(line) = line {
        if header {
            new.extend_from_slice(format!("[{section}]\n").as_bytes());
        }
        new.extend_from_slice(&line);
    }
    new.extend_from_slice(content.get(resume..).unwrap_or_default());
    Ok(new)
}

/// Returns `content` without the values of `section.name` that are `value`; others stay, and how often there is one
/// does not matter.
///
/// # Errors
/// `Config` when the file breaks the grammar.
pub fn unset(content: &[u8], section: &str, name: &str, value: &[u8]) -> Result<Vec<u8>> {
    let key = format!("{section}.{name}");
    let mut content = content.to_vec();
    loop {
        // Each may leave a section empty, and what is to go with the next one is another then.
        let (text, parts) = read(&content)?;
        let mut found = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| match &part.kind {
                PartKind::Variable(it) => it.key.of(&text) == key && it.is(value, &text),
                _ => false,
            });
        let Some((at, part)) = found.next() else {
            return Ok(content);
        };
        let range = emptied_section(&text, &parts, at).unwrap_or((part.start, part.end));
        let (start, end) = (before_space(&content, range.0), range.1);
        content.drain(start..end);
    }
}

/// Reads a file: the text of its keys and values, and its parts.
fn read(content: &[u8]) -> Result<(Vec<u8>, Vec<Part>)> {
    let mut parts = Vec::new();
    let text = parse::parts(content, |part| parts.push(part))
        .map_err(|line| refused(format!("bad config line {line}")))?;
    Ok((text, parts))
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// Returns a value as it stands in a file: between quotes where its ends or a comment would be lost.
fn quoted(value: &[u8]) -> Vec<u8> {
    let is_space = |byte: Option<&u8>| byte == Some(&b' ');
    let is_cut = |byte: &u8| matches!(byte, b';' | b'#' | b'\r');
    let needs_quotes =
        is_space(value.first()) || is_space(value.last()) || value.iter().any(is_cut);
    let mut text = Vec::with_capacity(value.len() + 2);
    text.extend(needs_quotes.then_some(b'"'));
    for &byte in value {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            _ => text.push(byte),
        }
    }
    text.extend(needs_quotes.then_some(b'"'));
    text
}

/// Returns where `at` begins when the white space before it on its line goes with it.
fn before_space(content: &[u8], at: usize) -> usize {
    let before = content.get(..at).unwrap_or_default();
    let is_text = |&byte: &u8| byte == b'\n' || !is_space(byte);
    before.iter().rposition(is_text).map_or(0, |text| text + 1)
}

/// Returns where a new variable of a section goes: behind the last variable of the last such
/// section, or behind its header; `None` if there is no such section.
fn place_for_new(content: &[u8], parts: &[Part], is_it: impl Fn(Span) -> bool) -> Option<usize> {
    let mut place = None;
    let mut inside = false;
    for part in parts {
        match part.kind {
            PartKind::Header(name) => inside = is_it(name),
            PartKind::Variable(_) => {}
            PartKind::Comment => continue,
        }
        if inside {
            place = Some(part.end);
        }
    }
    let end = place?;
    let ended = end.checked_sub(1).and_then(|last| content.get(last)) == Some(&b'\n');
    Some(match content.get(end) {
        Some(b'\n') if !ended => end + 1,
        _ => end,
    })
}

/// Returns the range of a section of which the variable at `at` is all there is: no other variable,
/// and no comment in it or between it and what comes before.
fn emptied_section(text: &[u8], parts: &[Part], at: usize) -> Option<(usize, usize)> {
    let header = at.checked_sub(1)?;
    let start = parts.get(header)?;
    let PartKind::Header(name) = start.kind else {
        return None;
    };
    let before = header.checked_sub(1).and_then(|before| parts.get(before));
    if before.is_some_and(|before| before.kind == PartKind::Comment) {
        return None;
    }
    match parts.get(at + 1).map(|next| &next.kind) {
        None => {}
        Some(PartKind::Header(next)) if next.of(text) != name.of(text) => {}
        _ => return None,
    }
    Some((start.start, parts.get(at)?.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `git config unset --all --value=^refs$` leaves them.
    #[test]
    fn only_the_value_that_is_named_goes() {
        let without = |content: &str| {
            let new = unset(content.as_bytes(), "receive", "refs", b"refs");
            new.map(|new| String::from_utf8(new).unwrap())
        };
        for (content, left) in [
            ("[receive]\n\trefs = refs\n", ""),
            (
                "[a]\n\tb\n[receive]\n\trefs = refs\n\trefs = refs\n",
                "[a]\n\tb\n",
            ),
            (
                "[receive]\n\trefs = refs\n\trefs = refs/for\n",
                "[receive]\n\trefs = refs/for\n",
            ),
            (
                "[receive]\n\tRefs = \"refs\"\n[Receive] refs\n",
                "[receive]\n[Receive] refs\n",
            ),
            (
                "[receive \"x\"] refs = refs\n",
                "[receive \"x\"] refs = refs\n",
            ),
        ] {
            assert_eq!(without(content).unwrap(), left, "{content:?}");
        }
        assert!(without("[receive\n").is_err());
    }
}
