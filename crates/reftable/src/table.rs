//! An open table: its bytes, its header and footer, and the blocks in it.
//!
//! Opening checks header, footer and checksum and touches nothing between them. Blocks are
//! checked when they are read, since a lookup shall cost only the blocks it needs.

use std::fmt;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};

use crate::block::{Block, BlockHead, HEAD_LEN};
use crate::error::{Error, Result};
use crate::header::{Footer, Header, Sections};
use crate::object_format::ObjectFormat;
use crate::record::{Codec, IndexCodec, LogCodec, ObjectCodec, Params, RefCodec};
use crate::walk::Walk;

/// One table, open for reading.
///
/// Tables are shared as `Arc<Table>`. The bytes must not change as long as the table is open; if
/// they do all the same, readers get wrong records or errors, never a panic.
///
/// ```
/// use std::sync::Arc;
/// use reftable::{RefCursor, RefRecord, RefValue, Table, WriteOptions, Writer, ObjectFormat};
///
/// let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// let value = RefValue::Symref(b"refs/heads/main");
/// writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let table = Arc::new(Table::open(writer.finish()?.sink)?);
///
/// let mut refs = RefCursor::new(table);
/// assert_eq!(refs.next()?.unwrap().name, b"HEAD");
/// assert_eq!(refs.next()?, None);
/// # Ok::<(), reftable::Error>(())
/// ```
pub struct Table {
    data: Bytes,
    header: Header,
    pub(crate) footer: Footer,
    body_len: usize,
    label: Box<str>,
    /// Whether blocks count whatever their restart tables say.
    takes_any_restarts: bool,
}

/// What is wrong where a section ends too early.
pub(crate) const NO_BLOCK: &str = "there is no block where one should start";

/// Where the blocks of one kind start, and where the index over them does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) start: u64,
    pub(crate) index: Option<u64>,
}

/// So many levels has no index: each names two blocks or more for each of the level above, and a file has less than
/// 2^64 bytes.
const LEVELS_MAX: usize = 64;

impl Table {
    /// Opens the table whose whole file `data` is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if header or footer are damaged, if the
    /// file was cut, or if it does not begin with a block.
    pub fn open(data: impl AsRef<[u8]> + Send + 'static) -> Result<Table> {
        let data = Bytes::from_owner(data);
        let header = Header::decode(&data)?;
        let footer = Footer::decode(&data, &header)?;
        let body_len = data.len() - header.footer_len();
        let table = Table {
            data,
            header,
            footer,
            body_len,
            label: Box::default(),
            takes_any_restarts: false,
        };
        table.check_start()?;
        Ok(table)
    }

    /// Takes the blocks in the first `body_len` bytes of `data` for a table, whatever stands behind, and whatever
    /// their restart tables say.
    pub(crate) fn without_footer(data: Vec<u8>, header: Header, body_len: usize) -> Table {
        Table {
            body_len: body_len.min(data.len()),
            data: data.into(),
            header,
            footer: Footer::default(),
            label: Box::default(),
            takes_any_restarts: true,
        }
    }

    pub(crate) fn len_of_file(&self) -> usize {
        self.file().len()
    }

    /// Returns where the block starts that holds the ref `name`, by reading block after block;
    /// `None` if the table has no such ref.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a block before it is damaged.
    pub fn offset_of_ref(&self, name: &[u8]) -> Result<Option<u64>> {
        let mut walk = Walk::new(self);
        let (mut key, mut codec) = (Vec::new(), RefCodec::default());
        while let Some(block) = walk.next()? {
            if block.kind == RefCodec::KIND {
                let body = walk.body(&block);
                let params = self.params();
                block.search(body, name, None, &mut key, &mut codec, params)?;
                if key == name {
                    return Ok(Some(block.offset));
                }
            }
        }
        Ok(None)
    }

    /// Gives the table a label, such as its file name, that errors of its cursors will carry.
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Table {
        self.label = label.into();
        self
    }

    /// Returns the label; empty if there is none.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the format of the object ids.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        self.header.object_format
    }

    /// Returns the format version, 1 or 2.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.header.version
    }

    /// Returns the block size in bytes that the table was written with; 0 if blocks are unaligned.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.header.block_size
    }

    /// Returns the least update index of the ref records.
    #[must_use]
    pub fn min_update_index(&self) -> u64 {
        self.header.min_update_index
    }

    /// Returns the greatest update index of all records.
    #[must_use]
    pub fn max_update_index(&self) -> u64 {
        self.header.max_update_index
    }

    /// Returns the length of the file in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a file with header and footer is not empty"
    )]
    pub fn len(&self) -> u64 {
        (self.body_len + self.header.footer_len()) as u64
    }

    /// Returns the size in bytes by which tables are chosen for compaction: that of the blocks,
    /// plus one, so that no table weighs nothing.
    #[must_use]
    pub fn weight(&self) -> u64 {
        (self.body_len - self.header.len() + 1) as u64
    }

    /// Returns the bytes of the whole file.
    #[inline]
    pub(crate) fn file(&self) -> &[u8] {
        &self.data
    }

    /// Returns the bytes before the footer.
    #[inline]
    pub(crate) fn body(&self) -> &[u8] {
        self.file().get(..self.body_len).unwrap_or_default()
    }

    pub(crate) fn params(&self) -> Params {
        Params {
            hash_len: self.header.object_format.raw_len(),
            min_update_index: self.header.min_update_index,
        }
    }

    pub(crate) fn header_len(&self) -> usize {
        self.header.len()
    }

    pub(crate) fn footer_len(&self) -> usize {
        self.header.footer_len()
    }

    fn first_kind(&self) -> Option<u8> {
        self.body().get(self.header.len()).copied()
    }

    /// Checks that the table begins with ref blocks or with log blocks, if it has any: nothing but
    /// the type of the first block says whether there are refs at all.
    fn check_start(&self) -> Result<()> {
        let behind_header = self.header.len();
        let is_sound = match self.first_kind() {
            None | Some(RefCodec::KIND) => true,
            // Another type could have become this one, but not with a zlib stream behind it.
            Some(LogCodec::KIND) => {
                let stream = self.body().get(behind_header + HEAD_LEN..);
                self.footer.logs <= behind_header as u64 && stream.is_some_and(is_zlib)
            }
            Some(_) => false,
        };
        if is_sound {
            return Ok(());
        }
        Err(Error::corrupt(0, NO_BLOCK))
    }

    /// Checks that a section, or the top level of an index, may end at `offset`, where it has no
    /// further block: the next section starts there, or nothing does. Otherwise a block was
    /// overwritten there, and all that stands behind it would pass for missing.
    #[cold]
    pub(crate) fn check_end(&self, section: Section, offset: u64) -> Result<()> {
        let footer = &self.footer;
        let ends = match section.index {
            Some(top) => offset <= top && self.is_index_over(section.start, offset)?,
            None => {
                let others = [footer.objects, footer.logs];
                let next = others.into_iter().filter(|at| *at > section.start).min();
                next.map_or(offset >= self.body_len as u64, |next| offset == next)
            }
        };
        if ends && offset > section.start {
            return Ok(());
        }
        Err(Error::corrupt(offset, NO_BLOCK))
    }

    /// Checks that the footer does not hide log blocks: where it places none, nothing stands behind the other
    /// sections. Who writes all records again would lose them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if something does.
    pub fn check_tail(&self) -> Result<()> {
        let footer = &self.footer;
        let tops = [footer.ref_index, footer.objects, footer.object_index];
        let last = tops.into_iter().max().unwrap_or_default();
        // Sections that no index ends are checked as they are read.
        if self.has_logs() || last == 0 {
            return Ok(());
        }
        match self.end_of_indexes(last) {
            Ok(at) if at >= self.body_len as u64 => Ok(()),
            Ok(at) => Err(Error::corrupt(
                at,
                "blocks of no section stand before the footer",
            )),
            Err(error) => Err(error),
        }
        .map_err(|error| error.in_table(&self.label))
    }

    /// Returns where the object and index blocks end that start at an offset.
    fn end_of_indexes(&self, from: u64) -> Result<u64> {
        let mut at = from;
        while let Some(head) = self.head(at)?
            && matches!(head.kind, ObjectCodec::KIND | IndexCodec::KIND)
            && let Some(block) = self.block(at, head.kind)?
        {
            at = block.next;
        }
        Ok(at)
    }

    /// Returns whether the index block at `offset` is the first one over the blocks from `start`
    /// on.
    fn is_index_over(&self, start: u64, offset: u64) -> Result<bool> {
        let Some(block) = self.block(offset, IndexCodec::KIND)? else {
            return Ok(false);
        };
        let (body, mut codec) = (self.block_body(&block), IndexCodec::default());
        let (mut key, params) = (Vec::new(), self.params());
        block.read(body, block.first, &mut key, &mut codec, params)?;
        Ok(codec.offset <= start)
    }

    /// Returns where the ref blocks are, if there are any.
    pub(crate) fn ref_section(&self) -> Option<Section> {
        (self.first_kind() == Some(b'r')).then_some(Section {
            start: 0,
            index: position(self.footer.ref_index),
        })
    }

    /// Returns where the sections of the table start.
    #[must_use]
    pub fn sections(&self) -> Sections {
        let footer = &self.footer;
        let start = |section: Option<Section>| section.map(|section| section.start);
        Sections {
            refs: start(self.ref_section()),
            ref_index: position(footer.ref_index),
            objects: start(self.object_section()),
            object_index: position(footer.object_index),
            logs: start(self.log_section()),
            log_index: position(footer.log_index),
            object_id_len: footer.object_id_len,
            footer: self.body_len as u64,
        }
    }

    /// Returns whether the table has log records.
    #[must_use]
    pub fn has_logs(&self) -> bool {
        self.log_section().is_some()
    }

    /// Returns where the object blocks are, if there are any.
    pub(crate) fn object_section(&self) -> Option<Section> {
        position(self.footer.objects).map(|start| Section {
            start,
            index: position(self.footer.object_index),
        })
    }

    /// Returns where the log blocks are, if there are any.
    pub(crate) fn log_section(&self) -> Option<Section> {
        let index = position(self.footer.log_index);
        let begins_file = (self.first_kind() == Some(LogCodec::KIND)).then_some(0);
        position(self.footer.logs)
            .or(begins_file)
            .map(|start| Section { start, index })
    }

    /// Reads the head of the block at `offset`; `None` at the end of the blocks.
    pub(crate) fn head(&self, offset: u64) -> Result<Option<BlockHead>> {
        match usize::try_from(offset) {
            Ok(offset) if offset < self.body_len => {
                BlockHead::read(self.body(), offset, self.header.len())
            }
            _ => Ok(None),
        }
    }

    /// Returns the layout of the block of this kind at `offset`; `None` if something else is
    /// there. Not for log blocks, whose body has to be inflated.
    pub(crate) fn block(&self, offset: u64, kind: u8) -> Result<Option<Block>> {
        let Some(head) = self.head(offset)?.filter(|head| head.kind == kind) else {
            return Ok(None);
        };
        let start = usize::try_from(offset).unwrap_or(self.body_len);
        let rest = self.body().get(start..).unwrap_or_default();
        let next = self.after_block(offset, &head, rest);
        self.layout(head, rest, offset, next).map(Some)
    }

    fn layout(&self, head: BlockHead, body: &[u8], offset: u64, next: u64) -> Result<Block> {
        match self.takes_any_restarts {
            true => head.layout_any(body, offset, next),
            false => head.layout(body, offset, next),
        }
    }

    /// Returns the body of a block other than a log block.
    #[inline]
    pub(crate) fn block_body(&self, block: &Block) -> &[u8] {
        let start = usize::try_from(block.offset).unwrap_or(self.body_len);
        self.body()
            .get(start..start.saturating_add(block.len))
            .unwrap_or_default()
    }

    /// Returns where the block after this one starts: behind the padding, if there is padding.
    fn after_block(&self, offset: u64, head: &BlockHead, rest: &[u8]) -> u64 {
        let block_size = usize::try_from(self.header.block_size).unwrap_or_default();
        let unaligned = rest.get(head.len).is_none_or(|byte| *byte != 0);
        if block_size == 0 || unaligned {
            return offset + head.len as u64;
        }
        let next = offset + (head.len.div_ceil(block_size) * block_size) as u64;
        // A log section starts where the footer says, even within what looks like padding.
        let logs = self.footer.logs;
        if (offset + head.len as u64..next).contains(&logs) {
            logs
        } else {
            next
        }
    }

    /// Inflates the log block at `offset` into `out`, and returns its layout; `None` if something
    /// else is there.
    pub(crate) fn log_block(
        &self,
        offset: u64,
        inflate: &mut Option<Decompress>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Block>> {
        let Some(head) = self
            .head(offset)?
            .filter(|head| head.kind == LogCodec::KIND)
        else {
            return Ok(None);
        };
        let start = usize::try_from(offset).unwrap_or(self.body_len);
        let rest = self.body().get(start..).unwrap_or_default();
        let (raw, deflated) = rest.split_at_checked(head.first).unwrap_or_default();
        let state = inflate.get_or_insert_with(|| Decompress::new(true));
        state.reset(true);
        out.clear();
        // The claimed length has 24 bits, so this is at most 16 MiB.
        out.reserve_exact(head.len);
        out.extend_from_slice(raw);
        let status = state
            .decompress_vec(deflated, out, FlushDecompress::Finish)
            .map_err(|_| Error::corrupt(offset, "a log block cannot be inflated"))?;
        if status != Status::StreamEnd || out.len() != head.len {
            return Err(Error::corrupt(
                offset,
                "a log block does not have its stated length",
            ));
        }
        let next = offset + head.first as u64 + state.total_in();
        self.layout(head, out, offset, next).map(Some)
    }

    /// Finds the block of this kind that holds the first key not less than `target`, by the index
    /// whose top level starts at `top`. `None` if all keys are less.
    pub(crate) fn descend(
        &self,
        top: u64,
        kind: u8,
        target: &[u8],
        key: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        let mut codec = IndexCodec::default();
        let mut offset = top;
        let mut at_top = true;
        let mut levels = 0;
        loop {
            let Some(block) = self.block(offset, IndexCodec::KIND)? else {
                if offset != top && at_top {
                    let level = Section {
                        start: top,
                        index: None,
                    };
                    return self.check_end(level, offset).map(|()| None);
                }
                return Err(Error::corrupt(
                    offset,
                    "there is no index block where one should be",
                ));
            };
            let body = self.block_body(&block);
            let found = block.search(body, target, None, key, &mut codec, self.params())?;
            match found {
                // Only the top level may be searched block by block: the blocks after another
                // level are its own parents.
                None if at_top => offset = block.next,
                None => {
                    let message = "an index block ends before the key that its parent promises";
                    return Err(Error::corrupt(offset, message));
                }
                // A child stands before its parent in the file, hence no way down is endless.
                Some(_) if codec.offset >= block.offset => {
                    return Err(block.corrupt("a record points forwards"));
                }
                Some(_) if levels >= LEVELS_MAX => {
                    return Err(block.corrupt("the index has more levels than any table needs"));
                }
                Some(_) => {
                    levels += 1;
                    offset = codec.offset;
                    at_top = false;
                    match self.head(offset)? {
                        Some(head) if head.kind == kind => return Ok(Some(offset)),
                        Some(head) if head.kind == IndexCodec::KIND => {}
                        _ => return Err(block.corrupt("a record points at no block")),
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("header", &self.header)
            .field("footer", &self.footer)
            .field("len", &self.len())
            .finish()
    }
}

/// Returns whether a zlib stream can start so: a method that is known, and a sum that comes out.
fn is_zlib(stream: &[u8]) -> bool {
    match *stream {
        [method, flags, ..] => {
            method & 0x0f == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
        }
        _ => false,
    }
}

fn position(field: u64) -> Option<u64> {
    (field > 0).then_some(field)
}
