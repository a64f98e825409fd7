//! Packet lines: four hexadecimal digits for the length, themselves included, then the content.

use std::io::{ErrorKind, Read};

use crate::failure::{Failure, Result};

/// The longest content of a packet.
pub(super) const LINE_MAX: usize = 65_516;

/// All that is read of one push, its digits included: some two million commands.
const TOTAL_MAX: usize = 256 << 20;

/// The end of a list.
pub(super) const FLUSH: &[u8] = b"0000";

/// Reads packets.
pub(super) struct Wire<R> {
    input: R,
    left: usize,
}

impl<R: Read> Wire<R> {
    pub(super) fn new(input: R) -> Wire<R> {
        Wire {
            input,
            left: TOTAL_MAX,
        }
    }

    /// Returns the next line without the line feed at its end; `None` at the end of a list.
    ///
    /// # Errors
    /// Fatal for what is no packet, for too much of them, and for an input that ends.
    pub(super) fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut digits = [0; 4];
        self.fill(&mut digits)?;
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(&digits).unwrap_or_default();
        let len = usize::from_str_radix(text, 16).ok().filter(|_| is_hex);
        let content = match len {
            Some(0) => Some(0),
            Some(len) => len.checked_sub(4).filter(|len| *len <= LINE_MAX),
            None => None,
        };
        let content = content.ok_or_else(|| Failure::fatal("this is no packet of proc-receive"))?;
        // The digits count as well: an input of nothing but empty packets would have no end.
        let left = self.left.checked_sub(content + digits.len());
        self.left = left.ok_or_else(|| Failure::fatal("the push has too many commands"))?;
        if len == Some(0) {
            return Ok(None);
        }
        let mut line = vec![0; content];
        self.fill(&mut line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(Some(line))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.input.read_exact(buffer).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
                _ => refdb::error::io_text(&error),
            };
            Failure::fatal(format!("cannot read the push: {why}"))
        })
    }
}

/// Returns a packet with a content of at most [`LINE_MAX`] bytes.
pub(super) fn packet(content: &[u8]) -> Vec<u8> {
    let mut packet = format!("{:04x}", content.len() + 4).into_bytes();
    packet.extend_from_slice(content);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_were_written() {
        let longest = vec![b'x'; LINE_MAX];
        let bytes = [
            packet(b"one\n"),
            packet(b""),
            packet(&longest),
            FLUSH.to_vec(),
        ]
        .concat();
        let mut wire = Wire::new(bytes.as_slice());
        assert_eq!(wire.line().unwrap(), Some(b"one".to_vec()));
        assert_eq!(wire.line().unwrap(), Some(Vec::new()));
        assert_eq!(wire.line().unwrap(), Some(longest));
        assert_eq!(wire.line().unwrap(), None);
        assert!(wire.line().is_err());
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for bytes in [
            &b"000"[..],
            b"0001",
            b"0003abc",
            b"+005a",
            b"00 5a",
            b"fff1",
            b"ffff",
            b"0008abc",
        ] {
            let mut wire = Wire::new(bytes);
            assert!(wire.line().is_err(), "{bytes:?}");
        }
        let many = packet(&[b'x'; LINE_MAX]);
        let endless = std::iter::repeat_with(|| many.as_slice());
        let mut wire = Wire::new(Endless(endless, &[]));
        let read = (0..).take_while(|_| wire.line().is_ok()).count();
        assert!(read * LINE_MAX <= TOTAL_MAX && (read + 1) * LINE_MAX > TOTAL_MAX);
    }

    #[test]
    fn empty_packets_come_to_an_end() {
        for bytes in [&b"0004"[..], FLUSH] {
            let endless = std::iter::repeat_with(|| bytes);
            let mut wire = Wire::new(Endless(endless, &[]));
            wire.left = 4 * 1000 + 3;
            let read = (0..2000).take_while(|_| wire.line().is_ok()).count();
            assert_eq!(read, 1000);
        }
    }

    /// Gives the same bytes again and again.
    struct Endless<'a, I>(I, &'a [u8]);

    impl<'a, I: Iterator<Item = &'a [u8]>> Read for Endless<'a, I> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.1.is_empty() {
                self.1 = self.0.next().unwrap_or_default();
            }
            self.1.read(buffer)
        }
    }
}
