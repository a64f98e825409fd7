//! A cursor over one section of one table: seek, advance, read.
//!
//! Invariants:
//! 1. A cursor owns its table, so nothing that happens to a stack invalidates it.
//! 2. After an error the cursor stands at the end; another seek makes it usable again.
//! 3. A cursor is either before a record, on a record, or at the end; only on a record may the
//!    record be read.

mod logs;
mod refs;

use std::sync::Arc;

use flate2::Decompress;

pub use logs::LogCursor;
pub use refs::RefCursor;

use crate::block::{Block, Place, Stretch};
use crate::error::{Error, Result};
use crate::record::{Codec, LogCodec, RefCodec};
use crate::short::is_less;
use crate::spelled::Spelled;
use crate::table::{Section, Table};

/// The moves that all cursors have below their public verbs, by key instead of by name.
pub(crate) trait Source {
    /// Moves before the first record whose key is not less than `target`.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// Moves onto the next record; false at the end.
    fn advance(&mut self) -> Result<bool>;
    /// Returns the key of the record the cursor is on.
    fn key(&self) -> &[u8];
}

/// A cursor over the records of one kind in one table.
pub(crate) struct SectionCursor<C> {
    table: Arc<Table>,
    section: Option<Section>,
    pub(crate) codec: C,
    block: Option<Block>,
    place: Place,
    key: Vec<u8>,
    /// How many bytes of the key are those of the last one that was found good.
    good: usize,
    state: State,
    inflate: Option<Decompress>,
    inflated: Vec<u8>,
    /// Where the section was found to end; zero before that.
    end: u64,
    /// The names that were read since the last seek.
    spelled: Spelled,
}

/// How many records a seek tries one by one before it bisects: whoever walks over sorted names seeks
/// to the next record or one soon after it.
const AHEAD: usize = 12;

/// Returns the body of a block of these records: that of a log block is the one inflated last.
#[inline]
fn body<'a, C: Codec>(table: &'a Table, inflated: &'a [u8], block: &Block) -> &'a [u8] {
    match C::KIND {
        LogCodec::KIND => inflated,
        _ => table.block_body(block),
    }
}

/// Where a cursor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first record of the section.
    Start,
    /// Before the record that has already been decoded.
    Before,
    /// Before the record at `place.next`, or on the one before that.
    On,
    /// Behind the last record.
    End,
}

impl<C: Codec + Default> SectionCursor<C> {
    pub(crate) fn new(table: Arc<Table>, section: Option<Section>) -> Self {
        SectionCursor {
            table,
            section,
            codec: C::default(),
            block: None,
            place: Place::default(),
            key: Vec::new(),
            good: 0,
            spelled: Spelled::default(),
            state: State::Start,
            inflate: None,
            inflated: Vec::new(),
            end: 0,
        }
    }

    /// Returns the bytes from the current record's value on.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        let body = match &self.block {
            Some(_) if C::KIND == LogCodec::KIND => &self.inflated,
            Some(block) => self.table.block_body(block),
            None => return &[],
        };
        body.get(self.place.value..self.place.next)
            .unwrap_or_default()
    }

    /// Moves before the first record of the block at `offset`, without looking at any index.
    pub(crate) fn seek_block(&mut self, offset: u64) -> Result<bool> {
        let loaded = self.load(offset);
        self.state = if matches!(loaded, Ok(true)) {
            State::On
        } else {
            State::End
        };
        loaded
    }

    /// Moves forward within the block, before the first record of the run that has the byte at
    /// `position` of the block.
    pub(crate) fn seek_run(&mut self, position: usize) -> Result<()> {
        let Some(block) = self.block else {
            return Ok(());
        };
        let mut run = block.first;
        let (mut low, mut high) = (0, block.restart_count);
        while low < high {
            let middle = low.midpoint(high);
            let restart = block.restart(self.table.block_body(&block), middle)?;
            if restart > position {
                high = middle;
            } else {
                run = restart;
                low = middle + 1;
            }
        }
        if run > self.place.next {
            self.key.clear();
            self.place.next = run;
        }
        Ok(())
    }

    /// Asks whether the key is good, and remembers that: `look` is given the key, and how many bytes at
    /// its start are those of the last key that was found good. Where keys share much with the ones
    /// before them, little is left to look at.
    #[inline]
    pub(crate) fn is_good(&mut self, look: impl FnOnce(&[u8], usize) -> bool) -> bool {
        let is_good = look(&self.key, self.good);
        self.good = if is_good { self.key.len() } else { 0 };
        is_good
    }

    /// Returns where in its block the record behind the current one starts.
    pub(crate) fn next_position(&self) -> usize {
        self.place.next
    }

    /// Returns the block that the cursor is in.
    pub(crate) fn block(&self) -> Option<Block> {
        self.block
    }

    /// Returns the offset of the block that the cursor is in.
    pub(crate) fn block_offset(&self) -> Option<u64> {
        self.block.as_ref().map(|block| block.offset)
    }

    /// Returns the first key of the block that begins `bytes` or more behind the one where the cursor is.
    pub(crate) fn key_ahead(&self, bytes: u64) -> Result<Option<Vec<u8>>> {
        let Some(here) = &self.block else {
            return Ok(None);
        };
        let find = || {
            let mut next = here.next;
            while let Some(block) = self.table.block(next, C::KIND)? {
                if block.offset - here.offset >= bytes && block.first < block.end {
                    let body = self.table.block_body(&block);
                    return block.full_key(body, block.first).map(Some);
                }
                next = block.next;
            }
            Ok(None)
        };
        let found = find().map_err(|error: Error| error.in_table(self.table.label()))?;
        Ok(found.map(<[u8]>::to_vec))
    }

    /// Loads the block at `offset` and stands before its first record; false if there is none.
    fn load(&mut self, offset: u64) -> Result<bool> {
        self.block = None;
        self.block = if C::KIND == LogCodec::KIND {
            self.table
                .log_block(offset, &mut self.inflate, &mut self.inflated)?
        } else {
            self.table.block(offset, C::KIND)?
        };
        self.key.clear();
        if let Some(block) = &self.block {
            self.place = Place {
                value: block.first,
                next: block.first,
                shared: 0,
            };
        }
        Ok(self.block.is_some())
    }

    #[inline]
    fn body(&self, block: &Block) -> &[u8] {
        body::<C>(&self.table, &self.inflated, block)
    }

    /// Gets on where no record of the loaded block is next: returns whether there is a record, or
    /// `None` once another block is loaded.
    fn leave_block(&mut self) -> Result<Option<bool>> {
        let start = match self.state {
            State::Before => {
                self.state = State::On;
                return Ok(Some(true));
            }
            State::End => return Ok(Some(false)),
            State::On => match &self.block {
                None => return Ok(Some(false)),
                Some(block) => block.next,
            },
            State::Start => match self.section {
                None => return Ok(Some(false)),
                Some(section) => section.start,
            },
        };
        let loaded = match self.state {
            State::Start => self.load(start)?,
            _ => self.load_behind(start)?,
        };
        self.state = State::On;
        if loaded {
            return Ok(None);
        }
        self.ends_at(start).map(Some)
    }

    /// Returns false, that no record is left, if the section may end at `offset`.
    #[inline]
    fn ends_at(&mut self, offset: u64) -> Result<bool> {
        if let Some(section) = self.section.filter(|_| self.end != offset) {
            self.table.check_end(section, offset)?;
            self.end = offset;
        }
        Ok(false)
    }

    /// Looks for the target among the next few records of the block, if it is ahead.
    fn seek_ahead(&mut self, block: &Block, target: &[u8]) -> Result<bool> {
        let on_record = matches!(self.state, State::On | State::Before) && !self.key.is_empty();
        if !on_record || !is_less(&self.key, target) {
            return Ok(false);
        }
        self.good = 0;
        let body = body::<C>(&self.table, &self.inflated, block);
        let (key, codec) = (&mut self.key, &mut self.codec);
        let params = self.table.params();
        let stretch = Stretch {
            from: self.place.next,
            most: AHEAD,
        };
        match block.pass(body, stretch, target, key, codec, params)? {
            Ok(place) => {
                self.place = place;
                self.state = State::Before;
                Ok(true)
            }
            Err(next) => {
                self.place.next = next;
                Ok(false)
            }
        }
    }

    /// Loads the block behind the one that has just been read to its end.
    fn load_behind(&mut self, offset: u64) -> Result<bool> {
        let last = std::mem::take(&mut self.key);
        let loaded = self.load(offset)?;
        if let Some(block) = self.block.filter(|block| block.first < block.end)
            && block.full_key(self.body(&block), block.first)? <= last.as_slice()
        {
            return Err(block.corrupt("the first record is out of order"));
        }
        self.key = last;
        self.key.clear();
        Ok(loaded)
    }

    /// Searches the loaded block; on success the cursor stands before the record found.
    fn search_block(&mut self, target: &[u8], from: Option<usize>) -> Result<bool> {
        let Some(block) = &self.block else {
            return Ok(false);
        };
        self.good = 0;
        let body = body::<C>(&self.table, &self.inflated, block);
        let (key, codec) = (&mut self.key, &mut self.codec);
        let found = block.search(body, target, from, key, codec, self.table.params())?;
        if let Some(place) = found {
            self.place = place;
            self.state = State::Before;
        }
        Ok(found.is_some())
    }

    /// Searches the block at `offset` and those after it, one by one.
    fn search_from(&mut self, offset: u64, target: &[u8]) -> Result<()> {
        let mut offset = offset;
        while self.load(offset)? {
            if self.search_block(target, None)? {
                return Ok(());
            }
            offset = self.block.as_ref().map_or(offset, |block| block.next);
        }
        self.ends_at(offset)?;
        self.state = State::End;
        Ok(())
    }

    /// Finds the target from the block that the cursor is in, if that is cheap and certain.
    fn seek_nearby(&mut self, target: &[u8]) -> Result<bool> {
        let Some(block) = self.block else {
            return Ok(false);
        };
        if self.seek_ahead(&block, target)? {
            return Ok(true);
        }
        // Keys less than the first one may be in any block before this one.
        if block.first >= block.end || !self.starts_before(&block, target)? {
            return Ok(false);
        }
        let on_record = matches!(self.state, State::On | State::Before);
        let from = (on_record && is_less(&self.key, target)).then_some(self.place.next);
        if C::KIND == LogCodec::KIND {
            // To look into the next block, it would have to be inflated.
            return self.seek_within(target, from);
        }
        let Some(next) = self.table.block(block.next, C::KIND)? else {
            return self.seek_within(target, from);
        };
        if !self.starts_before(&next, target)? {
            return Ok(self.search_block(target, from)? || self.seek_block(next.offset)?);
        }
        match self.table.block(next.next, C::KIND)? {
            Some(behind) if self.starts_before(&behind, target)? => Ok(false),
            Some(behind) => {
                self.load(next.offset)?;
                Ok(self.search_block(target, None)? || self.seek_block(behind.offset)?)
            }
            None => {
                self.load(next.offset)?;
                self.seek_within(target, None)
            }
        }
    }

    /// Finds the target in the loaded block, or that it is behind all records if no block follows.
    fn seek_within(&mut self, target: &[u8], from: Option<usize>) -> Result<bool> {
        if self.search_block(target, from)? {
            return Ok(true);
        }
        let next = self.block.map_or(0, |block| block.next);
        let is_last = self
            .table
            .head(next)?
            .is_none_or(|head| head.kind != C::KIND);
        if is_last {
            self.ends_at(next)?;
            self.state = State::End;
        }
        Ok(is_last)
    }

    /// Returns whether the first key of a block is less than the target.
    fn starts_before(&self, block: &Block, target: &[u8]) -> Result<bool> {
        let first = block.full_key(self.body(block), block.first)?;
        Ok(is_less(first, target))
    }

    fn seek_key(&mut self, target: &[u8]) -> Result<()> {
        let Some(section) = self.section else {
            return Ok(());
        };
        if self.seek_nearby(target)? {
            return Ok(());
        }
        let start = match section.index {
            None => section.start,
            Some(top) => match self.table.descend(top, C::KIND, target, &mut self.key)? {
                Some(offset) => offset,
                None => {
                    self.fail(); // The key buffer is no longer that of the block.
                    return Ok(());
                }
            },
        };
        self.search_from(start, target)
    }

    /// Stands at the end; the block is kept for seeks from there.
    fn end(&mut self) {
        self.state = State::End;
    }

    /// Stands at the end after an error, which is told with the table's label.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        self.fail();
        error.in_table(self.table.label())
    }

    /// Forgets the block, so that the cursor stands at the end whatever it was doing.
    fn fail(&mut self) {
        self.block = None;
        self.state = State::End;
    }
}

impl<C: Codec + Default> Source for SectionCursor<C> {
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.spelled = Spelled::default();
        self.seek_key(target).map_err(|error| self.failed(error))
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        loop {
            // Nearly always the next record is in the block.
            if self.state == State::On
                && let Some(block) = &self.block
                && self.place.next < block.end
            {
                let body = body::<C>(&self.table, &self.inflated, block);
                let (key, codec) = (&mut self.key, &mut self.codec);
                let params = self.table.params();
                match block.read(body, self.place.next, key, codec, params) {
                    Ok(place) => {
                        self.place = place;
                        self.good = self.good.min(place.shared);
                        if C::KIND == RefCodec::KIND
                            && let Err(error) =
                                self.spelled.add(&self.key, &self.table, block.offset)
                        {
                            return Err(self.failed(error));
                        }
                    }
                    Err(error) => return Err(self.failed(error)),
                }
                return Ok(true);
            }
            match self.leave_block() {
                Ok(None) => {}
                Ok(Some(true)) => return Ok(true),
                Ok(Some(false)) => {
                    self.end();
                    return Ok(false);
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }
}
