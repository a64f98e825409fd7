//! Records: what a table says about one ref or one reflog entry, and how each kind of record is
//! read (docs/format.md, "Records").
//!
//! Records are borrowed: names from a cursor's key buffer, values from the block. A codec decodes
//! a value into positions relative to the value's first byte; no codec copies.

use crate::object_format::ObjectFormat;
use crate::varint;

/// One ref as one table has it.
///
/// ```
/// use reftable::{RefRecord, RefValue};
/// let head = RefRecord {
///     name: b"HEAD",
///     update_index: 1,
///     value: RefValue::Symref(b"refs/heads/main"),
/// };
/// assert!(!head.is_deletion());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefRecord<'a> {
    /// The full name of the ref.
    pub name: &'a [u8],
    /// The number of the transaction that wrote the value.
    pub update_index: u64,
    /// What the ref points at.
    pub value: RefValue<'a>,
}

impl RefRecord<'_> {
    /// Returns whether the record says that the ref is gone.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.value == RefValue::Deletion
    }
}

/// What a ref points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefValue<'a> {
    /// The ref is deleted; hides the records of older tables.
    Deletion,
    /// An object id.
    Direct(&'a [u8]),
    /// The object id of a tag object, and that of the object it finally names.
    Peeled {
        /// The tag.
        oid: &'a [u8],
        /// The object at the end of the chain of tags.
        peeled: &'a [u8],
    },
    /// The name of another ref.
    Symref(&'a [u8]),
}

/// One reflog entry as one table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// The full name of the ref whose log this is.
    pub name: &'a [u8],
    /// The number of the transaction that wrote the entry; newer entries have higher numbers.
    pub update_index: u64,
    /// The entry, or that it is gone.
    pub value: LogValue<'a>,
}

impl LogRecord<'_> {
    /// Returns whether the record says that the entry is gone.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.value == LogValue::Deletion
    }
}

/// A reflog entry, or that it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogValue<'a> {
    /// The entry is deleted; hides the records of older tables.
    Deletion,
    /// The entry.
    Update(LogUpdate<'a>),
}

/// What a reflog entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUpdate<'a> {
    /// The object id before the update; all zero if there was none.
    pub old: &'a [u8],
    /// The object id after the update; all zero if there is none.
    pub new: &'a [u8],
    /// The committer's name.
    pub name: &'a [u8],
    /// The committer's address, without angle brackets.
    pub email: &'a [u8],
    /// Seconds since 1970-01-01 UTC.
    pub time: u64,
    /// The time zone as Git stores it: the decimal number HHMM, so -0530 is -530.
    pub tz: i16,
    /// The message as stored; Git ends it with one LF.
    pub message: &'a [u8],
}

/// What a codec must know about the table it reads.
#[derive(Clone, Copy)]
pub(crate) struct Params {
    pub(crate) hash_len: usize,
    pub(crate) min_update_index: u64,
}

/// Reads the values of one kind of record.
pub(crate) trait Codec {
    /// The type byte of the blocks that hold these records.
    const KIND: u8;

    /// Decodes the value at the start of `input`, keeps it, and returns its length in bytes.
    ///
    /// `None` if the bytes are no value.
    fn decode(&mut self, params: Params, extra: u8, input: &[u8]) -> Option<usize>;
}

/// Reads a byte string with its length in front, and returns where it starts and where it ends.
#[inline]
fn read_bytes(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let (len, used) = varint::read(input.get(at..)?)?;
    let from = at + used;
    let to = from.checked_add(usize::try_from(len).ok()?)?;
    (to <= input.len()).then_some((from, to))
}

/// A part of a value; empty when the positions do not fit, which decoding has ruled out.
#[inline]
fn part(value: &[u8], from: usize, to: usize) -> &[u8] {
    value.get(from..to).unwrap_or_default()
}

/// The codec of ref records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RefCodec {
    pub(crate) update_index: u64,
    extra: u8,
    from: usize,
    to: usize,
}

impl RefCodec {
    pub(crate) const DELETION: u8 = 0;
    pub(crate) const DIRECT: u8 = 1;
    pub(crate) const PEELED: u8 = 2;
    pub(crate) const SYMREF: u8 = 3;

    /// Puts the record together from its key and the bytes the value was decoded from.
    #[inline]
    pub(crate) fn record<'a>(&self, name: &'a [u8], value: &'a [u8]) -> RefRecord<'a> {
        let payload = part(value, self.from, self.to);
        let value = match self.extra {
            Self::DIRECT => RefValue::Direct(payload),
            Self::PEELED => {
                let (oid, peeled) = payload.split_at(payload.len() / 2);
                RefValue::Peeled { oid, peeled }
            }
            Self::SYMREF => RefValue::Symref(payload),
            _ => RefValue::Deletion,
        };
        RefRecord {
            name,
            update_index: self.update_index,
            value,
        }
    }

    /// Returns whether the decoded record is a deletion.
    #[inline]
    pub(crate) fn is_deletion(&self) -> bool {
        self.extra == Self::DELETION
    }
}

impl Codec for RefCodec {
    const KIND: u8 = b'r';

    #[inline]
    fn decode(&mut self, params: Params, extra: u8, input: &[u8]) -> Option<usize> {
        let (delta, used) = varint::read(input)?;
        let (from, to) = match extra {
            Self::DELETION => (used, used),
            Self::DIRECT => (used, used + params.hash_len),
            Self::PEELED => (used, used + 2 * params.hash_len),
            Self::SYMREF => read_bytes(input, used)?,
            _ => return None,
        };
        if to > input.len() {
            return None;
        }
        let update_index = params.min_update_index.checked_add(delta)?;
        *self = RefCodec {
            update_index,
            extra,
            from,
            to,
        };
        Some(to)
    }
}

/// The codec of index records: the file offset of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IndexCodec {
    pub(crate) offset: u64,
}

impl Codec for IndexCodec {
    const KIND: u8 = b'i';

    #[inline]
    fn decode(&mut self, _params: Params, extra: u8, input: &[u8]) -> Option<usize> {
        let (offset, used) = varint::read(input)?;
        self.offset = offset;
        (extra == 0).then_some(used)
    }
}

/// The codec of object records: which ref blocks name an object id that starts with the key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectCodec {
    /// How many blocks are named; zero says that all of them have to be searched.
    pub(crate) count: u64,
    from: usize,
}

impl ObjectCodec {
    /// Appends the offsets of the blocks, given the bytes the value was decoded from.
    pub(crate) fn offsets(&self, value: &[u8], out: &mut Vec<u64>) {
        let mut rest = value.get(self.from..).unwrap_or_default();
        let mut offset = 0_u64;
        for _ in 0..self.count {
            let Some((delta, used)) = varint::read(rest) else {
                return;
            };
            offset = offset.saturating_add(delta);
            out.push(offset);
            rest = rest.get(used..).unwrap_or_default();
        }
    }
}

impl Codec for ObjectCodec {
    const KIND: u8 = b'o';

    fn decode(&mut self, _params: Params, extra: u8, input: &[u8]) -> Option<usize> {
        let (count, from) = match extra {
            0 => varint::read(input)?,
            small => (u64::from(small), 0),
        };
        let mut at = from;
        let mut offset = 0_u64;
        for index in 0..count {
            let (delta, used) = varint::read(input.get(at..)?)?;
            // A block that is named again and again would be read as often.
            if index > 0 && delta == 0 {
                return None;
            }
            offset = offset.checked_add(delta)?;
            at += used;
        }
        *self = ObjectCodec { count, from };
        Some(at)
    }
}

/// The codec of log records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogCodec {
    extra: u8,
    hash_len: usize,
    name: (usize, usize),
    email: (usize, usize),
    time: u64,
    tz: i16,
    message: (usize, usize),
}

impl LogCodec {
    pub(crate) const DELETION: u8 = 0;
    pub(crate) const UPDATE: u8 = 1;

    /// Puts the record together from its key and the bytes the value was decoded from.
    pub(crate) fn record<'a>(&self, key: &'a [u8], value: &'a [u8]) -> LogRecord<'a> {
        let (name, update_index) = split_log_key(key).unwrap_or_default();
        let value = if self.extra == Self::DELETION {
            LogValue::Deletion
        } else {
            LogValue::Update(LogUpdate {
                old: part(value, 0, self.hash_len),
                new: part(value, self.hash_len, 2 * self.hash_len),
                name: part(value, self.name.0, self.name.1),
                email: part(value, self.email.0, self.email.1),
                time: self.time,
                tz: self.tz,
                message: part(value, self.message.0, self.message.1),
            })
        };
        LogRecord {
            name,
            update_index,
            value,
        }
    }

    /// Returns whether the decoded record is a deletion.
    pub(crate) fn is_deletion(&self) -> bool {
        self.extra == Self::DELETION
    }
}

impl Codec for LogCodec {
    const KIND: u8 = b'g';

    fn decode(&mut self, params: Params, extra: u8, input: &[u8]) -> Option<usize> {
        match extra {
            Self::DELETION => {
                self.extra = extra;
                return Some(0);
            }
            Self::UPDATE => {}
            _ => return None,
        }
        let name = read_bytes(input, 2 * params.hash_len)?;
        let email = read_bytes(input, name.1)?;
        let (time, used) = varint::read(input.get(email.1..)?)?;
        let tz_at = email.1 + used;
        let tz = i16::from_be_bytes(input.get(tz_at..tz_at + 2)?.try_into().ok()?);
        let message = read_bytes(input, tz_at + 2)?;
        let hash_len = params.hash_len;
        *self = LogCodec {
            extra,
            hash_len,
            name,
            email,
            time,
            tz,
            message,
        };
        Some(message.1)
    }
}

/// How many bytes of a log key follow the name: a NUL and the inverted update index.
pub(crate) const LOG_KEY_TAIL: usize = 9;

/// Makes the key of a log record in `out`.
pub(crate) fn make_log_key(out: &mut Vec<u8>, name: &[u8], update_index: u64) {
    out.clear();
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(&(u64::MAX - update_index).to_be_bytes());
}

/// Takes the key of a log record apart: name and update index.
pub(crate) fn split_log_key(key: &[u8]) -> Option<(&[u8], u64)> {
    let (name, tail) = key.split_at_checked(key.len().checked_sub(LOG_KEY_TAIL)?)?;
    let (&nul, inverted) = tail.split_first()?;
    let inverted = u64::from_be_bytes(inverted.try_into().ok()?);
    (nul == 0 && !name.is_empty()).then_some((name, u64::MAX - inverted))
}

/// Returns whether an object id has the length that those of a format have, for checks on write.
pub(crate) fn is_oid(oid: &[u8], object_format: ObjectFormat) -> bool {
    oid.len() == object_format.raw_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_is_named_twice_for_an_object() {
        let decode = |value: &[u8]| {
            let mut codec = ObjectCodec::default();
            let params = Params {
                hash_len: 20,
                min_update_index: 0,
            };
            let used = codec.decode(params, 2, value)?;
            let mut offsets = Vec::new();
            codec.offsets(value, &mut offsets);
            Some((used, offsets))
        };
        assert_eq!(decode(&[0, 5]), Some((2, vec![0, 5])));
        assert_eq!(decode(&[5, 0]), None);
    }
}
