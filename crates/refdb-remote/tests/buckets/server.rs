//! A bucket in memory, spoken with as with S3: one lock, so that conditions hold. It checks no signature.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::BufReader;
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

use crate::wire::Message;

/// What answers requests.
pub(crate) trait Answers: Send + Sync {
    fn answer(&self, request: &Message) -> Message;
}

/// A server elsewhere.
pub(crate) struct Elsewhere {
    pub(crate) address: String,
    /// Whether it is told its own address in place of the one that the client knows. With S3 that is signed.
    pub(crate) by_its_name: bool,
}

impl Answers for Elsewhere {
    fn answer(&self, request: &Message) -> Message {
        let mut stream = TcpStream::connect(&self.address).expect("the server is there");
        let mut request = request.clone();
        let is_kept = |(name, _): &(String, String)| !name.eq_ignore_ascii_case("connection");
        request.headers.retain(is_kept);
        for (name, value) in &mut request.headers {
            if self.by_its_name && name.eq_ignore_ascii_case("host") {
                value.clone_from(&self.address);
            }
        }
        let request = request.with("connection", "close");
        request.write(&mut stream).expect("it reads");
        let read = Message::read(&mut BufReader::new(stream), request.method() == "HEAD");
        let mut answer = read.expect("it answers").expect("it says something");
        answer.headers.retain(is_kept);
        answer
    }
}

/// How well the conditions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    Hold,
    /// They are looked at before the object is locked.
    LookTooEarly,
    /// `If-Match` is no header that it knows.
    NoMatch,
}

/// A bucket in memory.
pub(crate) struct InMemory {
    objects: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    conditions: Conditions,
}

impl InMemory {
    pub(crate) fn new(conditions: Conditions) -> InMemory {
        InMemory {
            objects: Mutex::default(),
            conditions,
        }
    }

    fn put(&self, key: &str, request: &Message) -> Message {
        let lock = || self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut objects = lock();
        let found = objects.get(key).map(|it| tag(it.1));
        let expected = request.header("if-match");
        let is_right = match (request.header("if-none-match"), expected) {
            (Some(_), _) => found.is_none(),
            (_, Some(tag)) => {
                self.conditions == Conditions::NoMatch || found.as_deref() == Some(tag)
            }
            (None, None) => true,
        };
        if !is_right {
            return match expected.is_some() && found.is_none() {
                true => refusal(404, "NoSuchKey"),
                false => refusal(412, "PreconditionFailed"),
            };
        }
        if self.conditions == Conditions::LookTooEarly {
            drop(objects);
            std::thread::sleep(std::time::Duration::from_millis(10));
            objects = lock();
        }
        let number = objects.values().map(|it| it.1).max().unwrap_or(0) + 1;
        objects.insert(key.to_owned(), (request.body.clone(), number));
        Message::answer(200).with("etag", tag(number))
    }

    fn get(&self, key: &str, request: &Message) -> Message {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((content, number)) = objects.get(key) else {
            return refusal(404, "NoSuchKey");
        };
        let tag = tag(*number);
        let dated = |answer: Message| {
            let date = "Wed, 25 Nov 2026 10:00:00 GMT";
            answer.with("etag", &tag).with("last-modified", date)
        };
        if request.header("if-none-match") == Some(&tag) {
            return dated(Message::answer(304));
        }
        let range = request.header("range").and_then(|range| {
            let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()?))
        });
        match range {
            Some((start, _)) if start >= content.len() => refusal(416, "InvalidRange"),
            Some((start, end)) => {
                let end = (end + 1).min(content.len());
                let said = format!("bytes {start}-{}/{}", end - 1, content.len());
                let answer = dated(Message::answer(206)).with("content-range", said);
                answer.saying(&content[start..end])
            }
            None => dated(Message::answer(200)).saying(content.as_slice()),
        }
    }

    fn list(&self, query: &str) -> Message {
        let prefix = query
            .split('&')
            .find_map(|part| part.strip_prefix("prefix="));
        let prefix = prefix.unwrap_or_default().replace("%2F", "/");
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut body = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
        for (key, (content, number)) in objects.iter() {
            let Some((_, key)) = key.trim_start_matches('/').split_once('/') else {
                continue;
            };
            if key.starts_with(&prefix) {
                let (len, tag) = (content.len(), tag(*number));
                let _ = write!(
                    body,
                    "<Contents><Key>{key}</Key><LastModified>2026-11-25T10:00:00.000Z</LastModified>\
                     <ETag>{tag}</ETag><Size>{len}</Size></Contents>"
                );
            }
        }
        Message::answer(200).saying(body + "</ListBucketResult>")
    }

    fn remove(&self, bucket: &str, body: &[u8]) -> Message {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let body = String::from_utf8_lossy(body).into_owned();
        let mut said = String::from("<DeleteResult>");
        for part in body.split("<Key>").skip(1) {
            let key = part.split("</Key>").next().unwrap_or_default();
            objects.remove(&format!("{bucket}/{key}"));
            let _ = write!(said, "<Deleted><Key>{key}</Key></Deleted>");
        }
        Message::answer(200).saying(said + "</DeleteResult>")
    }
}

impl Answers for InMemory {
    fn answer(&self, request: &Message) -> Message {
        let (path, query) = request.target();
        let is_bucket = path.trim_matches('/').split('/').count() == 1;
        match request.method() {
            "PUT" => self.put(path, request),
            "GET" if is_bucket => self.list(query),
            "GET" => self.get(path, request),
            "POST" => self.remove(path.trim_end_matches('/'), &request.body),
            _ => refusal(405, "MethodNotAllowed"),
        }
    }
}

fn tag(number: u64) -> String {
    format!("\"{number}\"")
}

pub(crate) fn refusal(status: u16, code: &str) -> Message {
    let body = format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>");
    Message::answer(status).saying(body)
}
