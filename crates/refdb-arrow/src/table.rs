//! Refs, read into columns.

use refdb::{Error, ErrorKind, ObjectFormat, ObjectId, Part, RefRecord, Refs, Result, Store};

/// Which refs are read.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// What their names start with; nothing limits if it is empty.
    pub prefix: Vec<u8>,
    /// The name behind which they begin.
    pub start_after: Option<Vec<u8>>,
    /// What their names do not start with.
    pub exclude: Vec<Vec<u8>>,
}

impl Selection {
    /// Makes a cursor that stands before the first of them.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn refs(&self, store: &Store) -> Result<Refs> {
        let mut refs = store.refs()?.excluding(self.exclude.iter().cloned());
        match &self.start_after {
            Some(name) => refs.seek_after(name, &self.prefix)?,
            None => refs.seek_prefix(&self.prefix)?,
        }
        Ok(refs)
    }
}

/// The columns, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `name`, binary: the full name. Names are bytes, mostly UTF-8.
    Name,
    /// `oid`, fixed-size binary of 20 or 32 bytes: the object; null for a symref and a broken ref.
    Oid,
    /// `symref`, binary: the name of the ref that a symref names; null for any other.
    Symref,
    /// `peeled`, fixed-size binary: what an annotated tag peels to, where that is stored; else null.
    Peeled,
    /// `broken`, boolean: whether the value could not be read.
    Broken,
}

impl Field {
    /// All of them.
    pub const ALL: [Field; 5] = [
        Field::Name,
        Field::Oid,
        Field::Symref,
        Field::Peeled,
        Field::Broken,
    ];
}

/// Bits, least significant first. As long as all are the same, only how many there are is kept.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: usize,
    pub(crate) unset: usize,
}

impl Bits {
    #[inline]
    fn push(&mut self, bit: bool) {
        let same = if bit { 0 } else { self.len };
        if self.unset != same || !self.bytes.is_empty() {
            self.write(bit);
        }
        self.len += 1;
        self.unset += usize::from(!bit);
    }

    fn write(&mut self, bit: bool) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.len.div_ceil(8)];
            (0..self.len - self.unset).for_each(|at| self.bytes[at / 8] |= 1 << (at % 8));
        }
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.len % 8);
        }
    }
}

/// Byte strings, one behind the other. As long as all are empty, only how many there are is kept.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Where each begins, and behind the last one where that ends; none while all are empty.
    pub(crate) offsets: Vec<i32>,
    pub(crate) bytes: Vec<u8>,
    /// How many of the first ones are empty.
    pub(crate) empty: usize,
}

impl Texts {
    fn with_room(count: usize, bytes: usize) -> Self {
        Texts {
            offsets: Vec::with_capacity(count + 1),
            bytes: Vec::with_capacity(bytes),
            empty: 0,
        }
    }

    #[inline]
    fn push(&mut self, text: &[u8]) -> Result<()> {
        if self.offsets.is_empty() {
            if text.is_empty() {
                self.empty += 1;
                return Ok(());
            }
            self.offsets.resize(self.empty + 1, 0);
        }
        self.bytes.extend_from_slice(text);
        let end = i32::try_from(self.bytes.len());
        self.offsets.push(end.map_err(|_| {
            Error::new(
                ErrorKind::Unsupported,
                "the names are longer than a column can be",
            )
        })?);
        Ok(())
    }
}

/// Ids, one behind the other, all of one length. As long as there is none, nothing is kept.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    pub(crate) bytes: Vec<u8>,
    pub(crate) valid: Bits,
}

impl Ids {
    #[inline]
    fn push(&mut self, id: Option<&ObjectId>, len: usize) {
        match id {
            Some(id) => {
                if self.bytes.is_empty() {
                    self.bytes.resize(self.valid.len * len, 0);
                }
                self.bytes.extend_from_slice(id.as_bytes());
            }
            None if self.bytes.is_empty() => {}
            None => self.bytes.resize(self.bytes.len() + len, 0),
        }
        self.valid.push(id.is_some());
    }
}

/// A thousand refs or so, in columns.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) len: usize,
    pub(crate) names: Texts,
    pub(crate) oids: Ids,
    pub(crate) symrefs: Texts,
    pub(crate) symref_valid: Bits,
    pub(crate) peeled: Ids,
    pub(crate) broken: Bits,
}

impl Batch {
    /// Makes an empty one that has room for so many refs, whose names have so many bytes.
    fn with_room(count: usize, text: usize, id_len: usize) -> Self {
        let mut batch = Batch {
            names: Texts::with_room(count, text),
            ..Batch::default()
        };
        batch.oids.bytes.reserve_exact(count * id_len);
        batch
    }

    #[inline]
    fn push(&mut self, record: &RefRecord<'_>, id_len: usize) -> Result<()> {
        self.names.push(record.name.as_bytes())?;
        let oid = record.target.oid().filter(|oid| !oid.is_null());
        self.oids.push(oid.as_ref(), id_len);
        let symref = match record.target {
            refdb::TargetRef::Symbolic(name) => Some(name),
            refdb::TargetRef::Direct(_) => None,
        };
        self.symrefs
            .push(symref.map_or(b"", |name| name.as_bytes()))?;
        self.symref_valid.push(symref.is_some());
        self.peeled.push(record.peeled.as_ref(), id_len);
        self.broken.push(record.broken);
        self.len += 1;
        Ok(())
    }
}

/// Refs in columns.
#[derive(Debug)]
pub struct Table {
    pub(crate) format: ObjectFormat,
    pub(crate) batches: Vec<Batch>,
}

impl Table {
    /// Reads refs in the order of their names.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn read(store: &Store, selection: &Selection) -> Result<Table> {
        let format = store.options().object_format;
        let id_len = format.raw_len();
        let mut batches = Vec::new();
        let maker = || {
            let (mut count, mut text) = (0, 0);
            move |part: &mut Part<'_>| {
                // The next ones are about as many, and about as long, as the last ones.
                let mut batch = Batch::with_room(count + count / 8, text + text / 8, id_len);
                part.each(|record| batch.push(record, id_len))?;
                (count, text) = (batch.len, batch.names.bytes.len());
                Ok::<_, Error>(batch)
            }
        };
        selection.refs(store)?.by_parts(maker, |batch| {
            let batch = batch?;
            if batch.len > 0 {
                batches.push(batch);
            }
            Ok::<_, Error>(true)
        })?;
        Ok(Table { format, batches })
    }

    /// Returns how many refs there are.
    pub fn len(&self) -> usize {
        self.batches.iter().map(|batch| batch.len).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(pattern: &[bool]) -> Bits {
        let mut bits = Bits::default();
        pattern.iter().for_each(|&bit| bits.push(bit));
        bits
    }

    #[test]
    fn bits_are_kept_as_soon_as_they_differ() {
        for len in 0..20 {
            for first in [true, false] {
                let same = bits(&vec![first; len]);
                assert!(same.bytes.is_empty(), "{len}");
                assert_eq!(same.unset, if first { 0 } else { len });
                for more in 1..20 {
                    let mut pattern = vec![first; len + more];
                    pattern[len] = !first;
                    let found = bits(&pattern);
                    let expected = (0..pattern.len()).filter(|&at| pattern[at]);
                    let set = |at: &usize| {
                        let byte = found.bytes.get(at / 8).copied().unwrap_or_default();
                        byte >> (at % 8) & 1 == 1
                    };
                    if len + more > 1 {
                        let all = (0..found.bytes.len() * 8).filter(set);
                        assert!(all.eq(expected), "{len} {more} {first}");
                    }
                    assert_eq!(found.len, pattern.len());
                }
            }
        }
    }

    #[test]
    fn what_comes_late_has_its_place() {
        let (mut texts, mut ids) = (Texts::default(), Ids::default());
        let id = ObjectId::from_hex(&[b'7'; 40]).unwrap();
        for text in ["", "", "ab", "", "c"] {
            texts.push(text.as_bytes()).unwrap();
            let oid = Some(&id).filter(|_| !text.is_empty());
            ids.push(oid, 20);
        }
        assert_eq!(texts.offsets, [0, 0, 0, 2, 2, 3]);
        assert_eq!(texts.bytes, b"abc");
        let (none, some) = ([0; 20], [0x77; 20]);
        assert_eq!(ids.bytes, [none, none, some, none, some].concat());
        assert_eq!((ids.valid.bytes, ids.valid.unset), (vec![0b10100], 3));
    }
}
