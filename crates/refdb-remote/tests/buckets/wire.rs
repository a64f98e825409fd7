//! As much of HTTP as clients and servers of buckets use.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A request, or an answer: its first line, its headers and its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn answer(status: u16) -> Message {
        Message {
            first: format!("HTTP/1.1 {status} Said"),
            ..Message::default()
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Message {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn saying(mut self, body: impl Into<Vec<u8>>) -> Message {
        self.body = body.into();
        self
    }

    pub(crate) fn method(&self) -> &str {
        self.first.split(' ').next().unwrap_or_default()
    }

    /// Returns path and query.
    pub(crate) fn target(&self) -> (&str, &str) {
        let target = self.first.split(' ').nth(1).unwrap_or_default();
        target.split_once('?').unwrap_or((target, ""))
    }

    pub(crate) fn status(&self) -> u16 {
        self.target().0.parse().unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|found| found.1.as_str())
    }

    /// Reads one message; `None` at the end. An answer to `head` has no body.
    pub(crate) fn read(
        from: &mut BufReader<TcpStream>,
        has_no_body: bool,
    ) -> io::Result<Option<Message>> {
        let mut message = Message::default();
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        message.first = line.trim_end().to_owned();
        loop {
            line.clear();
            from.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => {
                    let header = (name.to_owned(), value.trim().to_owned());
                    message.headers.push(header);
                }
                None => break,
            }
        }
        let is_chunked = message
            .header("transfer-encoding")
            .is_some_and(|value| value.contains("chunked"));
        if has_no_body || message.status() == 304 || message.status() == 204 {
            return Ok(Some(message));
        }
        if is_chunked {
            message.read_chunks(from)?;
        } else if let Some(len) = message.header("content-length") {
            let mut body = vec![0; len.parse().map_err(io::Error::other)?];
            from.read_exact(&mut body)?;
            message.body = body;
        }
        Ok(Some(message))
    }

    fn read_chunks(&mut self, from: &mut BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let len = line.trim().split(';').next().unwrap_or_default();
            let len = usize::from_str_radix(len, 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; len + 2];
            from.read_exact(&mut chunk)?;
            if len == 0 {
                break;
            }
            self.body.extend_from_slice(&chunk[..len]);
        }
        self.headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case("transfer-encoding"));
        Ok(())
    }

    pub(crate) fn write(&self, to: &mut TcpStream) -> io::Result<()> {
        let mut bytes = format!("{}\r\n", self.first).into_bytes();
        let has_len = self.header("content-length").is_some();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !has_len && self.status() != 304 && self.status() != 204 {
            bytes.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        to.write_all(&bytes)
    }
}
