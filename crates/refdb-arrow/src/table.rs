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

/// Bits, least significant first.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    pub(crate) bytes: Vec<u8>,
    len: usize,
    pub(crate) unset: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.len % 8);
        }
        self.len += 1;
        self.unset += usize::from(!bit);
    }
}

/// Byte strings, one behind the other.
#[derive(Debug)]
pub(crate) struct Texts {
    /// Where each begins, and behind the last one where that ends.
    pub(crate) offsets: Vec<i32>,
    pub(crate) bytes: Vec<u8>,
}

impl Texts {
    fn new() -> Self {
        Texts {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }

    fn push(&mut self, text: &[u8]) -> Result<()> {
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

/// Ids, one behind the other, all of one length.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    pub(crate) bytes: Vec<u8>,
    pub(crate) valid: Bits,
}

impl Ids {
    fn push(&mut self, id: Option<ObjectId>, len: usize) {
        match &id {
            Some(id) => self.bytes.extend_from_slice(id.as_bytes()),
            None => self.bytes.resize(self.bytes.len() + len, 0),
        }
        self.valid.push(id.is_some());
    }
}

/// A thousand refs or so, in columns.
#[derive(Debug)]
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
    fn new() -> Self {
        Batch {
            len: 0,
            names: Texts::new(),
            oids: Ids::default(),
            symrefs: Texts::new(),
            symref_valid: Bits::default(),
            peeled: Ids::default(),
            broken: Bits::default(),
        }
    }

    fn push(&mut self, record: &RefRecord<'_>, id_len: usize) -> Result<()> {
        self.names.push(record.name.as_bytes())?;
        let oid = record.target.oid().filter(|oid| !oid.is_null());
        self.oids.push(oid, id_len);
        let symref = match record.target {
            refdb::TargetRef::Symbolic(name) => Some(name),
            refdb::TargetRef::Direct(_) => None,
        };
        self.symrefs
            .push(symref.map_or(b"", |name| name.as_bytes()))?;
        self.symref_valid.push(symref.is_some());
        self.peeled.push(record.peeled, id_len);
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
            move |part: &mut Part<'_>| {
                let mut batch = Batch::new();
                part.each(|record| batch.push(record, id_len))?;
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
