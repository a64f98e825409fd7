//! What processes of one machine leave for each other, as lines; the last one is `end`, so that what is not
//! whole is told from what is.

use bstr::ByteSlice;
use refdb::{ObjectId, RefNameBuf, Signature};

use super::push::{Fate, Push, Wanted};

const END: &[u8] = b"end\n";

/// What somebody who waits is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// This became of its refs.
    Fates(Vec<Fate>),
    /// It cannot be committed with others: nothing was done.
    Alone,
}

/// Returns a push as text.
pub(super) fn encode_push(push: &Push, who: &Signature) -> Vec<u8> {
    let kind = if push.atomic { "atomic" } else { "partial" };
    let mut text = format!("{kind} {} {} ", who.time, who.zone).into_bytes();
    text.extend_from_slice(&[who.name.as_slice(), b"\0", &who.email, b"\n"].concat());
    for wanted in &push.refs {
        wanted.old.push_hex(&mut text);
        text.push(b' ');
        wanted.new.push_hex(&mut text);
        text.push(b' ');
        text.extend_from_slice(wanted.name.as_bytes());
        text.push(b'\n');
    }
    text.extend_from_slice(END);
    text
}

/// Reads what [`encode_push`] wrote.
pub(super) fn decode_push(text: &[u8]) -> Option<Push> {
    let mut lines = whole(text)?;
    let mut words = lines.next()?.splitn_str(4, " ");
    let atomic = match words.next()? {
        b"atomic" => true,
        b"partial" => false,
        _ => return None,
    };
    let (time, zone) = (words.next()?, words.next()?);
    let (name, email) = words.next()?.split_once_str("\0")?;
    let who = Signature {
        name: name.into(),
        email: email.into(),
        time: time.to_str().ok()?.parse().ok()?,
        zone: zone.to_str().ok()?.parse().ok()?,
    };
    let refs = lines.map(|line| {
        let mut words = line.splitn_str(3, " ");
        Some(Wanted {
            old: ObjectId::from_hex(words.next()?)?,
            new: ObjectId::from_hex(words.next()?)?,
            name: RefNameBuf::lax(words.next()?).ok()?,
        })
    });
    Some(Push {
        refs: refs.collect::<Option<_>>()?,
        atomic,
        who: Some(who),
    })
}

/// Returns an answer as text.
pub(super) fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut text = Vec::new();
    match answer {
        Answer::Alone => text.extend_from_slice(b"alone\n"),
        Answer::Fates(fates) => {
            text.extend_from_slice(b"fates\n");
            fates.iter().for_each(|fate| push_fate(&mut text, fate));
        }
    }
    text.extend_from_slice(END);
    text
}

/// Reads what [`encode_answer`] wrote.
pub(super) fn decode_answer(text: &[u8]) -> Option<Answer> {
    let mut lines = whole(text)?;
    match lines.next()? {
        b"alone" => Some(Answer::Alone),
        b"fates" => lines.map(fate).collect::<Option<_>>().map(Answer::Fates),
        _ => None,
    }
}

/// Returns the lines before the last.
pub(super) fn whole(text: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let lines = text.strip_suffix(END)?;
    let lines = lines.strip_suffix(b"\n")?;
    Some(lines.split(|byte| *byte == b'\n'))
}

pub(super) fn push_fate(text: &mut Vec<u8>, fate: &Fate) {
    match fate {
        Fate::Done => text.extend_from_slice(b"done"),
        Fate::Refused { reason, message } => {
            let line = match message {
                Some(message) => format!("{reason}\0{message}"),
                None => reason.clone(),
            };
            text.extend_from_slice(b"refused ");
            text.extend_from_slice(line.replace('\n', " ").as_bytes());
        }
    }
    text.push(b'\n');
}

pub(super) fn fate(line: &[u8]) -> Option<Fate> {
    if line == b"done" {
        return Some(Fate::Done);
    }
    let text = String::from_utf8_lossy(line.strip_prefix(b"refused ")?).into_owned();
    Some(match text.split_once('\0') {
        None => Fate::refused(text),
        Some((reason, message)) => Fate::Refused {
            reason: reason.to_owned(),
            message: Some(message.to_owned()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_read_as_it_was_written_or_not_at_all() {
        let oid = |digit: u8| ObjectId::from_hex(&[digit; 40]).unwrap();
        let who = Signature {
            name: "A U Thor".into(),
            email: "a b@example.com".into(),
            time: 12,
            zone: -330,
        };
        let wanted = |name: &str| Wanted {
            name: RefNameBuf::new(name).unwrap(),
            old: oid(b'0'),
            new: oid(b'1'),
        };
        let push = Push {
            refs: vec![wanted("refs/heads/a"), wanted("refs/heads/end")],
            atomic: true,
            who: Some(who.clone()),
        };
        let text = encode_push(&push, &who);
        assert_eq!(decode_push(&text), Some(push));
        let answer = Answer::Fates(vec![
            Fate::Done,
            Fate::refused("no"),
            Fate::Refused {
                reason: "no".to_owned(),
                message: Some("it is not".to_owned()),
            },
        ]);
        let told = encode_answer(&answer);
        assert_eq!(decode_answer(&told), Some(answer));
        assert_eq!(
            decode_answer(&encode_answer(&Answer::Alone)),
            Some(Answer::Alone)
        );
        for len in 0..text.len() {
            assert_eq!(decode_push(&text[..len]), None, "{len}");
        }
        for len in 0..told.len() {
            assert_eq!(decode_answer(&told[..len]), None, "{len}");
        }
    }
}
