//! Walks over the blocks of a table in file order, whatever section they belong to.

use flate2::Decompress;

use crate::block::Block;
use crate::error::{Error, Result};
use crate::key::split_key;
use crate::record::{Codec, LogCodec};
use crate::table::{NO_BLOCK, Table};
use crate::varint;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockKind {
    /// Refs.
    Ref,
    /// Abbreviated object ids, and the ref blocks that name them.
    Object,
    /// The last keys of other blocks.
    Index,
    /// Reflog entries, compressed.
    Log,
}

/// One block of a table, as it lies in the file.
///
/// ```
/// # use reftable::*;
/// # let mut writer = Writer::new(Vec::new(), WriteOptions::new(ObjectFormat::Sha1))?;
/// # let value = RefValue::Symref(b"refs/heads/main");
/// # writer.add_ref(RefRecord { name: b"HEAD", update_index: 1, value })?;
/// let table = Table::open(writer.finish()?.sink)?;
/// let blocks: Vec<BlockInfo> = table.blocks().collect::<Result<_>>()?;
/// assert_eq!(blocks[0].kind, BlockKind::Ref);
/// assert_eq!(blocks[0].records, 1);
/// assert_eq!(blocks[0].len, 56);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// What the block holds.
    pub kind: BlockKind,
    /// Where it starts in the file; zero for the first one, which counts the file's header.
    pub offset: u64,
    /// How many bytes it takes in the file, padding included.
    pub len_on_disk: u64,
    /// How many bytes it has without compression and padding.
    pub len: u64,
    /// How many records it has.
    pub records: u64,
    /// How many restart points it has.
    pub restarts: u64,
}

/// The blocks of a table in file order; see [`Table::blocks`].
///
/// Ends after the first error, since nothing says where the block after a damaged one starts.
pub struct Blocks<'a>(Walk<'a>);

impl Iterator for Blocks<'_> {
    type Item = Result<BlockInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        let walk = &mut self.0;
        let info = walk.next().transpose()?.and_then(|block| {
            let mut records = 0;
            let mut at = block.first;
            while at < block.end {
                at = skip_record(walk.table, &block, walk.body(&block), at)?;
                records += 1;
            }
            Ok(BlockInfo {
                kind: kind_of(block.kind),
                offset: block.offset,
                len_on_disk: walk.offset - block.offset,
                len: block.len as u64,
                records,
                restarts: block.restart_count as u64,
            })
        });
        if info.is_err() {
            walk.offset = u64::MAX;
        }
        Some(info)
    }
}

impl Table {
    /// Returns the blocks in the order in which they lie in the file, decoding each of them.
    #[must_use]
    pub fn blocks(&self) -> Blocks<'_> {
        Blocks(Walk::new(self))
    }
}

fn kind_of(byte: u8) -> BlockKind {
    match byte {
        b'r' => BlockKind::Ref,
        b'o' => BlockKind::Object,
        b'i' => BlockKind::Index,
        _ => BlockKind::Log,
    }
}

/// Returns where the record after the one at `at` starts.
fn skip_record(table: &Table, block: &Block, body: &[u8], at: usize) -> Result<usize> {
    use crate::record::{IndexCodec, ObjectCodec, RefCodec};
    let input = body.get(at..block.end).unwrap_or_default();
    let params = table.params();
    let len = split_key(input).and_then(|(_, extra, suffix_at, suffix)| {
        let used = suffix_at + suffix.len();
        let value = input.get(used..)?;
        let value_len = match block.kind {
            RefCodec::KIND => RefCodec::default().decode(params, extra, value)?,
            IndexCodec::KIND => varint::read(value)?.1,
            ObjectCodec::KIND => ObjectCodec::default().decode(params, extra, value)?,
            _ => LogCodec::default().decode(params, extra, value)?,
        };
        Some(used + value_len)
    });
    len.map(|len| at + len)
        .ok_or_else(|| block.corrupt("a record cannot be decoded"))
}

/// The walk itself: finds blocks and makes their bodies readable.
pub(crate) struct Walk<'a> {
    pub(crate) table: &'a Table,
    /// Where the next block starts.
    pub(crate) offset: u64,
    inflate: Option<Decompress>,
    inflated: Vec<u8>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(table: &'a Table) -> Self {
        // Log blocks right behind the header may or may not count it as theirs.
        let behind_header = table.header_len() as u64;
        let offset = if table.footer.logs == behind_header {
            behind_header
        } else {
            0
        };
        Walk {
            table,
            offset,
            inflate: None,
            inflated: Vec::new(),
        }
    }

    /// Returns the layout of the next block; `None` at the end of the blocks.
    pub(crate) fn next(&mut self) -> Result<Option<Block>> {
        let body_len = self.table.body().len() as u64;
        let first = if self.offset == 0 {
            self.table.header_len() as u64
        } else {
            self.offset
        };
        if first >= body_len {
            return Ok(None);
        }
        let offset = self.offset;
        let Some(head) = self.table.head(offset)? else {
            return Err(Error::corrupt(offset, NO_BLOCK));
        };
        let block = if head.kind == LogCodec::KIND {
            self.table
                .log_block(offset, &mut self.inflate, &mut self.inflated)?
        } else {
            self.table.block(offset, head.kind)?
        };
        let Some(mut block) = block else {
            return Ok(None);
        };
        block.next = block.next.min(body_len);
        self.offset = block.next;
        Ok(Some(block))
    }

    pub(crate) fn body(&self, block: &Block) -> &[u8] {
        if block.kind == LogCodec::KIND {
            &self.inflated
        } else {
            self.table.block_body(block)
        }
    }
}
