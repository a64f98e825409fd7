//! What became of a request: who does not know that must not guess.

use std::sync::{Arc, Mutex, PoisonError};

/// What became of a request, and of the first of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was never sent: there was nothing to sign it with, or it makes no sense.
    #[default]
    NotSent,
    /// No connection was made: it was never sent.
    Unreachable,
    /// It was sent, as far as is known, and there is no whole answer.
    Lost,
    /// It was answered so. The text is what the answer says about an error.
    Answered(u16, String),
}

impl Outcome {
    /// Returns whether the same request may be answered otherwise in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Outcome::NotSent => false,
            Outcome::Unreachable | Outcome::Lost => true,
            Outcome::Answered(status, _) => matches!(status, 408 | 409 | 425 | 429 | 500..=599),
        }
    }
}

/// Where a request notes what became of it: it travels with the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<Mutex<Outcome>>);

impl Noted {
    pub(crate) fn set(&self, outcome: Outcome) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
    }

    pub(crate) fn get(&self) -> Outcome {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// What becomes of a slot that was to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Moved,
    Unknown,
    /// It changed nothing, and never will.
    Refused,
}

/// Returns what a replacement that did not succeed has done, as far as can be told. `creates` where the slot
/// was expected not to be there.
pub(crate) fn judge(outcome: &Outcome, creates: bool) -> Verdict {
    match outcome {
        Outcome::NotSent | Outcome::Unreachable => Verdict::Refused,
        Outcome::Lost => Verdict::Unknown,
        Outcome::Answered(status, _) => match status {
            // 409 is "there already" with Azure, and with S3 "others are at it": whoever is told `Moved` looks.
            304 | 409 | 412 => Verdict::Moved,
            // There is nothing to replace, or not even a bucket.
            404 if !creates => Verdict::Moved,
            408 | 425 | 429 => Verdict::Unknown,
            300..=499 => Verdict::Refused,
            _ => Verdict::Unknown,
        },
    }
}

/// Returns what an answer says about an error, which servers write in XML or JSON: in one line, and not all.
pub(crate) fn said(body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let between = |begin: &str, end: &str| {
        let (_, rest) = body.split_once(begin)?;
        Some(rest.split_once(end)?.0.trim().to_owned())
    };
    let code = between("<Code>", "</Code>");
    let message = between("<Message>", "</Message>").or_else(|| between("\"message\": \"", "\""));
    let parts = [code, message].into_iter().flatten();
    let text = parts.collect::<Vec<_>>().join(": ");
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_is_told_as_certain() {
        let answered = |status| Outcome::Answered(status, String::new());
        for status in [200, 204, 100, 408, 425, 429, 500, 501, 502, 503, 504, 599] {
            assert_eq!(
                judge(&answered(status), false),
                Verdict::Unknown,
                "{status}"
            );
        }
        for status in [409, 412] {
            assert_eq!(judge(&answered(status), true), Verdict::Moved, "{status}");
        }
        for status in [301, 307, 400, 401, 403, 405] {
            assert_eq!(
                judge(&answered(status), false),
                Verdict::Refused,
                "{status}"
            );
        }
        assert_eq!(judge(&answered(404), true), Verdict::Refused);
        assert_eq!(judge(&answered(404), false), Verdict::Moved);
        assert_eq!(judge(&Outcome::Lost, true), Verdict::Unknown);
        assert_eq!(judge(&Outcome::NotSent, true), Verdict::Refused);
        assert_eq!(judge(&Outcome::Unreachable, true), Verdict::Refused);
    }

    #[test]
    fn what_a_server_says_is_one_line() {
        let xml = b"<?xml?><Error><Code>NoSuchBucket</Code><Message>It is\nnot there\x1b[1m</Message></Error>";
        assert_eq!(said(xml), "NoSuchBucket: It is");
        assert_eq!(said(b"{\"error\": {\"message\": \"no\"}}"), "no");
        assert_eq!(said(b"\xff"), "");
    }
}
