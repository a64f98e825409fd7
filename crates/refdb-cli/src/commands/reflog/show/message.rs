//! The message of a commit as Git's log reads it: up to the first zero byte, with lines that count
//! as empty where nothing but white space is in them.

use bstr::ByteSlice;
use unicode_width::UnicodeWidthChar;

use crate::commands::for_each_ref::message::push_sanitized;

/// How far apart the columns are to which tabs lead.
const TAB: usize = 8;

/// The parts of a message.
pub(super) struct Message<'d> {
    /// Everything.
    pub(super) all: &'d [u8],
    /// Everything from the first line on in which something is.
    pub(super) text: &'d [u8],
    /// The first paragraph.
    pub(super) subject: &'d [u8],
    /// What follows it.
    pub(super) body: &'d [u8],
}

impl<'d> Message<'d> {
    /// Finds the parts in the content of a commit.
    pub(super) fn parse(data: &'d [u8]) -> Message<'d> {
        let all = data.split_once_str("\n\n").map_or(&b""[..], |(_, all)| all);
        let all = all.split_once_str("\0").map_or(all, |(all, _)| all);
        let text = skip_blank(all);
        let mut end = 0;
        for line in text.lines_with_terminator() {
            if is_blank(line) {
                break;
            }
            end += line.len();
        }
        let (subject, rest) = text.split_at(end);
        Message {
            all,
            text,
            subject,
            body: skip_blank(rest),
        }
    }

    /// Appends the subject on one line.
    pub(super) fn push_subject(&self, out: &mut Vec<u8>) {
        for (index, line) in self.subject.lines().enumerate() {
            if index > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(line.trim_ascii_end());
        }
    }

    /// Appends the first line of the subject as a part of a file name.
    pub(super) fn push_sanitized_subject(&self, out: &mut Vec<u8>) {
        push_sanitized(self.subject.lines().next().unwrap_or_default(), out);
    }
}

/// Appends a line with spaces in the place of its tabs; as it is behind what is no text.
pub(super) fn push_without_tabs(line: &[u8], out: &mut Vec<u8>) {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once_str("\t")
        && let Ok(text) = before.to_str()
    {
        let width: usize = text.chars().filter_map(UnicodeWidthChar::width).sum();
        out.extend_from_slice(before);
        out.resize(out.len() + TAB - width % TAB, b' ');
        rest = after;
    }
    out.extend_from_slice(rest);
}

fn skip_blank(text: &[u8]) -> &[u8] {
    let blank = text
        .lines_with_terminator()
        .take_while(|line| is_blank(line));
    let len = blank.map(<[u8]>::len).sum();
    text.get(len..).unwrap_or_default()
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}
