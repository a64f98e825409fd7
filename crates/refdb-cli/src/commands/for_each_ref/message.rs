//! The messages of commits and tags: subject, body, signature.

use bstr::ByteSlice;

/// The lines with which a signature begins.
const SIGNATURES: &[&[u8]] = &[
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
    b"-----BEGIN SSH SIGNATURE-----",
];

/// The parts of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Everything, the signature included.
    pub(crate) all: &'a [u8],
    /// The first paragraph, with its line feeds.
    pub(crate) subject: &'a [u8],
    /// What follows the subject, the signature included.
    pub(crate) body: &'a [u8],
    /// The signature.
    pub(crate) signature: &'a [u8],
}

impl<'a> Message<'a> {
    /// Finds the parts in the content of a commit or tag.
    pub(crate) fn parse(data: &'a [u8]) -> Message<'a> {
        let start = match data.strip_prefix(b"\n") {
            Some(rest) => rest,
            None => data
                .split_once_str("\n\n")
                .map_or(&b""[..], |(_, rest)| rest),
        };
        let all = start.trim_start_with(|c| c == '\n');
        let (text, signature) = all.split_at(signature_start(all));
        let end = all.find("\n\n").or_else(|| all.find("\r\n\r\n"));
        let end = end.unwrap_or(text.len()).min(text.len());
        let (subject, body) = all.split_at(end);
        let is_break = |c: char| matches!(c, '\n' | '\r');
        Message {
            all,
            subject: subject.trim_end_with(is_break),
            body: body.trim_start_with(is_break),
            signature,
        }
    }

    /// Returns everything but the signature.
    pub(crate) fn unsigned(&self) -> &'a [u8] {
        let len = self.all.len().saturating_sub(self.signature.len());
        self.all.get(..len).unwrap_or_default()
    }

    /// Returns the body without the signature.
    pub(crate) fn body_alone(&self) -> &'a [u8] {
        let len = self.body.len().saturating_sub(self.signature.len());
        self.body.get(..len).unwrap_or_default()
    }

    /// Appends the subject on one line.
    pub(crate) fn push_subject(&self, out: &mut Vec<u8>) {
        let mut bytes = self.subject.iter().peekable();
        while let Some(&byte) = bytes.next() {
            match byte {
                b'\r' if bytes.peek() == Some(&&b'\n') => {}
                b'\n' => out.push(b' '),
                _ => out.push(byte),
            }
        }
    }

    /// Appends the subject as a part of a file name.
    pub(crate) fn push_sanitized_subject(&self, out: &mut Vec<u8>) {
        push_sanitized(self.subject, out);
    }

    /// Appends the first lines of the message, all but the first of them indented.
    pub(crate) fn push_lines(&self, count: usize, out: &mut Vec<u8>) {
        let text = self.unsigned();
        for (index, line) in text.lines_with_terminator().take(count).enumerate() {
            if index > 0 {
                out.extend_from_slice(b"\n    ");
            }
            out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        }
    }
}

/// Appends a text as a part of a file name.
pub(crate) fn push_sanitized(text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut gap = false;
    for (at, &byte) in text.iter().enumerate() {
        let fine = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        if !fine {
            gap = true;
            continue;
        }
        if gap && out.len() > start {
            out.push(b'-');
        }
        gap = false;
        let repeated = byte == b'.' && at > 0 && text.get(at - 1) == Some(&b'.');
        if !repeated {
            out.push(byte);
        }
    }
    while out.len() > start && matches!(out.last(), Some(b'.' | b'-')) {
        out.pop();
    }
}

/// Returns where the last line is that begins a signature, or the length if there is none.
fn signature_start(text: &[u8]) -> usize {
    let mut at = 0;
    let mut found = text.len();
    for line in text.lines_with_terminator() {
        if SIGNATURES.iter().any(|start| line.starts_with(start)) {
            found = at;
        }
        at += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &[u8] = b"object 1\ntagger A <a@b> 1 +0000\n\none\ntwo\n\nbody\n\
        -----BEGIN SSH SIGNATURE-----\nxyz\n";

    #[test]
    fn parts() {
        let message = Message::parse(TAG);
        assert_eq!(message.subject.as_bstr(), "one\ntwo");
        assert_eq!(message.body_alone().as_bstr(), "body\n");
        assert!(message.signature.starts_with(b"-----BEGIN SSH"));
        assert!(message.unsigned().ends_with(b"body\n"));
        let mut lines = Vec::new();
        message.push_lines(2, &mut lines);
        assert_eq!(lines.as_bstr(), "one\n    two");
    }

    #[test]
    fn a_signature_right_below_the_header_leaves_nothing_else() {
        let message = Message::parse(b"object 1\n\n-----BEGIN PGP SIGNATURE-----\nx\n\ny\n");
        assert_eq!(message.subject, b"");
        assert_eq!(message.body_alone(), b"");
    }

    #[test]
    fn sanitized_subjects_are_file_names() {
        let mut out = Vec::new();
        Message::parse(b"\n ..a..b: c/d. ").push_sanitized_subject(&mut out);
        assert_eq!(out.as_bstr(), ".a.b-c-d");
    }
}
