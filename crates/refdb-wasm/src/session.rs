//! Tables, stacks and cursors by number, and what can be asked of them.
//!
//! ```
//! use refdb_wasm::session::Session;
//!
//! let mut session = Session::default();
//! session.input(9).copy_from_slice(b"no table!");
//! assert_eq!(session.open_table(9), 0);
//! assert!(session.error().ends_with(b"the file does not start with REFT"));
//! ```

use std::sync::Arc;

#[cfg(feature = "whole")]
use reftable::{BlockKind, MergedLogs};
use reftable::{Error, MergedRefs, Table, find_ref};

use crate::encode::Records;

/// From how many bytes on an answer gets no further records.
pub const BATCH: usize = 1 << 18;

/// What comes instead of a count when a call fails: [`Session::error`] says why.
pub const FAILED: i32 = -1;

/// What a number stands for.
enum Item {
    Table(Arc<Table>),
    Stack(Vec<Arc<Table>>),
    Refs(Box<Refs>),
    #[cfg(feature = "whole")]
    Logs(Box<Logs>),
}

/// A cursor over refs.
struct Refs {
    merged: MergedRefs,
    prefix: Vec<u8>,
    /// Why it ended, until that is told.
    failure: Option<Error>,
    is_at_end: bool,
}

/// A cursor over reflog entries.
#[cfg(feature = "whole")]
struct Logs {
    merged: MergedLogs,
    /// The name that is wanted, or what those start with that are.
    name: Vec<u8>,
    is_prefix: bool,
    /// The entry behind which it begins.
    after: Option<(Vec<u8>, u64)>,
    failure: Option<Error>,
    is_at_end: bool,
}

/// Everything that the other side has asked for, and the two buffers.
#[derive(Default)]
pub struct Session {
    input: Vec<u8>,
    output: Vec<u8>,
    error: Vec<u8>,
    items: Vec<Option<Item>>,
}

impl Session {
    /// Makes room for what the next call is about, and returns it.
    pub fn input(&mut self, len: usize) -> &mut [u8] {
        self.input.clear();
        self.input.resize(len, 0);
        &mut self.input
    }

    /// Returns what the last call came to.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Returns why the last call failed: eight bytes with the place in the file, plus one, or zero; four
    /// with the length of the table's label; the label; a text. Empty if it did not fail.
    #[must_use]
    pub fn error(&self) -> &[u8] {
        &self.error
    }

    /// Opens the table in the first `len` bytes of the input; behind them is its label. Returns its number,
    /// or 0.
    pub fn open_table(&mut self, len: usize) -> u32 {
        self.error.clear();
        let mut data = std::mem::take(&mut self.input);
        let label = data.split_off(len.min(data.len()));
        let label = String::from_utf8(label).unwrap_or_default();
        match Table::open(data) {
            Ok(table) => self.keep(Item::Table(Arc::new(table.labelled(&label)))),
            Err(error) => {
                self.fail(&error, &label);
                0
            }
        }
    }

    /// Makes a stack of the tables whose numbers the input has, oldest first. Returns its number, or 0.
    pub fn stack(&mut self) -> u32 {
        self.error.clear();
        let mut tables: Vec<Arc<Table>> = Vec::new();
        for number in self.input.chunks_exact(4) {
            let number = number.try_into().map_or(0, u32::from_le_bytes);
            let Some(Item::Table(table)) = self.item(number) else {
                self.refuse("there is no such table");
                return 0;
            };
            if tables
                .first()
                .is_some_and(|first| first.object_format() != table.object_format())
            {
                self.refuse("the tables have different hash functions");
                return 0;
            }
            tables.push(Arc::clone(table));
        }
        self.keep(Item::Stack(tables))
    }

    /// Looks for the ref whose name the input has; 1 if a table of the stack has it, be it deleted, and
    /// 0 if none has.
    pub fn find(&mut self, stack: u32) -> i32 {
        let mut found = self.answer();
        let Some(Item::Stack(tables)) = self.item(stack) else {
            return self.refuse("there is no such stack");
        };
        match find_ref(tables, &self.input, |record| found.add_ref(&record)) {
            Ok(_) => self.give(found),
            Err(error) => self.fail(&error, ""),
        }
    }

    /// Makes a cursor over the refs of a stack whose names start with the first `len` bytes of the input,
    /// behind the name that the rest of it is, if there is a rest. `deleted`: with deleted refs. Returns
    /// its number, or 0.
    pub fn refs(&mut self, stack: u32, len: usize, deleted: bool) -> u32 {
        self.error.clear();
        let Some(Item::Stack(tables)) = self.item(stack) else {
            self.refuse("there is no such stack");
            return 0;
        };
        let mut merged = MergedRefs::new(tables.clone());
        if !deleted {
            merged = merged.live_only();
        }
        let mut prefix = std::mem::take(&mut self.input);
        let mut after = prefix.split_off(len.min(prefix.len()));
        let moved = if after >= prefix && !after.is_empty() {
            // The least name behind that one.
            after.push(0);
            merged.seek(&after)
        } else {
            merged.seek_prefix(&prefix)
        };
        if let Err(error) = moved {
            self.fail(&error, "");
            return 0;
        }
        self.keep(Item::Refs(Box::new(Refs {
            merged,
            prefix,
            failure: None,
            is_at_end: false,
        })))
    }

    /// Gives out the next records of a cursor, at most `most`. Returns how many; 0 at the end.
    pub fn next(&mut self, cursor: u32, most: u32) -> i32 {
        let mut records = self.answer();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let moved = match self.item_mut(cursor) {
            Some(Item::Refs(refs)) => refs.next(&mut records, most),
            #[cfg(feature = "whole")]
            Some(Item::Logs(logs)) => logs.next(&mut records, most),
            _ => return self.refuse("there is no such cursor"),
        };
        match moved {
            Ok(()) => self.give(records),
            Err(error) => self.fail(&error, ""),
        }
    }

    /// Forgets what a number stands for.
    pub fn close(&mut self, number: u32) {
        if let Some(item) = place(number).and_then(|at| self.items.get_mut(at)) {
            *item = None;
        }
        while self.items.last().is_some_and(Option::is_none) {
            self.items.pop();
        }
    }

    /// Begins an answer, in the buffer of the last one.
    fn answer(&mut self) -> Records {
        self.error.clear();
        Records::reusing(std::mem::take(&mut self.output))
    }

    fn give(&mut self, records: Records) -> i32 {
        let count = i32::try_from(records.count()).unwrap_or(i32::MAX);
        self.output = records.finish();
        count
    }

    fn keep(&mut self, item: Item) -> u32 {
        let free = self.items.iter().position(Option::is_none);
        let at = free.unwrap_or(self.items.len());
        match self.items.get_mut(at) {
            Some(place) => *place = Some(item),
            None => self.items.push(Some(item)),
        }
        u32::try_from(at + 1).unwrap_or(0)
    }

    fn item(&self, number: u32) -> Option<&Item> {
        self.items.get(place(number)?)?.as_ref()
    }

    fn item_mut(&mut self, number: u32) -> Option<&mut Item> {
        self.items.get_mut(place(number)?)?.as_mut()
    }

    fn refuse(&mut self, message: &str) -> i32 {
        self.say(None, "", message)
    }

    /// Keeps an error, of the table of this label unless it names one itself.
    fn fail(&mut self, error: &Error, label: &str) -> i32 {
        let label = error.table().unwrap_or(label);
        self.say(error.offset(), label, error.message())
    }

    #[cold]
    fn say(&mut self, offset: Option<u64>, label: &str, message: &str) -> i32 {
        let offset = offset.map_or(0, |offset| offset.saturating_add(1));
        let len = u32::try_from(label.len()).unwrap_or(u32::MAX);
        self.error.clear();
        self.error.extend_from_slice(&offset.to_le_bytes());
        self.error.extend_from_slice(&len.to_le_bytes());
        self.error.extend_from_slice(label.as_bytes());
        self.error.extend_from_slice(message.as_bytes());
        FAILED
    }
}

/// What an inspection asks for.
#[cfg(feature = "whole")]
impl Session {
    /// Makes a cursor over the reflog of the ref whose name the first `len` bytes of the input are, or over
    /// those of all names that start so. If the input has more, that is the name of an entry, and `index`
    /// its update index, behind which it begins. `deleted`: with deleted entries. Returns its number, or 0.
    pub fn logs(
        &mut self,
        stack: u32,
        len: usize,
        is_prefix: bool,
        deleted: bool,
        index: u64,
    ) -> u32 {
        self.error.clear();
        let Some(Item::Stack(tables)) = self.item(stack) else {
            self.refuse("there is no such stack");
            return 0;
        };
        let mut merged = MergedLogs::new(tables.clone());
        if !deleted {
            merged = merged.live_only();
        }
        let mut name = std::mem::take(&mut self.input);
        let after = name.split_off(len.min(name.len()));
        let moved = match (after.is_empty(), is_prefix) {
            (false, _) => merged.seek_at(&after, index),
            (true, true) => merged.seek_prefix(&name),
            (true, false) => merged.seek(&name),
        };
        if let Err(error) = moved {
            self.fail(&error, "");
            return 0;
        }
        self.keep(Item::Logs(Box::new(Logs {
            merged,
            name,
            is_prefix,
            after: Some((after, index)).filter(|(after, _)| !after.is_empty()),
            failure: None,
            is_at_end: false,
        })))
    }

    /// Passes over the next records of a cursor, at most `most`. Returns how many; the output has the last
    /// of them.
    pub fn skip(&mut self, cursor: u32, most: u32) -> i32 {
        let mut last = self.answer();
        let mut passed = 0;
        let moved = match self.item_mut(cursor) {
            Some(Item::Refs(refs)) => refs.skip(&mut last, most, &mut passed),
            Some(Item::Logs(logs)) => logs.skip(&mut last, most, &mut passed),
            _ => return self.refuse("there is no such cursor"),
        };
        self.output = last.finish();
        match moved {
            Ok(()) => i32::try_from(passed).unwrap_or(i32::MAX),
            Err(error) => self.fail(&error, ""),
        }
    }

    /// Writes what header and footer of a table say: numbers of eight bytes, in which a place is given plus
    /// one, and 0 if there is none.
    pub fn describe(&mut self, table: u32) -> i32 {
        self.error.clear();
        self.output.clear();
        let Some(Item::Table(table)) = self.item(table) else {
            return self.refuse("there is no such table");
        };
        let sections = table.sections();
        let place = |place: Option<u64>| place.map_or(0, |place| place.saturating_add(1));
        let numbers = [
            u64::from(table.version()),
            table.object_format().raw_len() as u64,
            u64::from(table.block_size()),
            table.min_update_index(),
            table.max_update_index(),
            table.len(),
            sections.footer,
            u64::from(sections.object_id_len),
            place(sections.refs),
            place(sections.ref_index),
            place(sections.objects),
            place(sections.object_index),
            place(sections.logs),
            place(sections.log_index),
        ];
        for number in numbers {
            self.output.extend_from_slice(&number.to_le_bytes());
        }
        1
    }

    /// Writes six numbers of eight bytes for each block of a table: the letter of its kind, where it is, its
    /// lengths in the file and by itself, how many records and restart points it has. Returns how many
    /// blocks there are before the first damaged one; [`Session::error`] says what is wrong with that.
    pub fn blocks(&mut self, table: u32) -> i32 {
        self.error.clear();
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        let Some(Item::Table(table)) = self.item(table) else {
            return self.refuse("there is no such table");
        };
        let table = Arc::clone(table);
        let mut count = 0;
        for block in table.blocks() {
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    self.fail(&error, table.label());
                    break;
                }
            };
            let kind = match block.kind {
                BlockKind::Ref => b'r',
                BlockKind::Object => b'o',
                BlockKind::Index => b'i',
                _ => b'g',
            };
            let numbers = [
                u64::from(kind),
                block.offset,
                block.len_on_disk,
                block.len,
                block.records,
                block.restarts,
            ];
            for number in numbers {
                output.extend_from_slice(&number.to_le_bytes());
            }
            count += 1;
        }
        self.output = output;
        count
    }
}

/// A cursor whose records are given out some at a time.
trait Cursor {
    /// Moves to the next record; false at the end, which it then stays at.
    fn advance(&mut self) -> Result<bool, Error>;

    /// Adds the record that it is on.
    fn add_to(&self, records: &mut Records);

    /// Why it ended, until that is told.
    fn failure(&mut self) -> &mut Option<Error>;

    fn next(&mut self, records: &mut Records, most: usize) -> Result<(), Error> {
        self.failure().take().map_or(Ok(()), Err)?;
        while records.count() < most && records.len() < BATCH {
            match self.advance() {
                Ok(true) => self.add_to(records),
                Ok(false) => break,
                Err(error) if records.count() == 0 => return Err(error),
                Err(error) => {
                    *self.failure() = Some(error);
                    break;
                }
            }
        }
        Ok(())
    }

    #[cfg(feature = "whole")]
    fn skip(&mut self, last: &mut Records, most: u32, passed: &mut u32) -> Result<(), Error> {
        self.failure().take().map_or(Ok(()), Err)?;
        while *passed < most && self.advance()? {
            *passed += 1;
            if *passed == most {
                self.add_to(last);
            }
        }
        Ok(())
    }
}

impl Cursor for Refs {
    fn advance(&mut self) -> Result<bool, Error> {
        if self.is_at_end {
            return Ok(false);
        }
        let moved = self.merged.advance();
        let is_on = matches!(moved, Ok(true)) && self.merged.name().starts_with(&self.prefix);
        self.is_at_end = !is_on;
        moved.map(|_| is_on)
    }

    fn add_to(&self, records: &mut Records) {
        records.add_ref(&self.merged.record());
    }

    fn failure(&mut self) -> &mut Option<Error> {
        &mut self.failure
    }
}

#[cfg(feature = "whole")]
impl Cursor for Logs {
    fn advance(&mut self) -> Result<bool, Error> {
        if self.is_at_end {
            return Ok(false);
        }
        let mut moved = self.merged.advance();
        if let Some((name, index)) = self.after.take()
            && matches!(moved, Ok(true))
        {
            let first = self.merged.record();
            if first.name == name && first.update_index == index {
                moved = self.merged.advance();
            }
        }
        let is_wanted = |name: &[u8]| match self.is_prefix {
            true => name.starts_with(&self.name),
            false => name == self.name,
        };
        let is_on = matches!(moved, Ok(true)) && is_wanted(self.merged.record().name);
        self.is_at_end = !is_on;
        moved.map(|_| is_on)
    }

    fn add_to(&self, records: &mut Records) {
        records.add_log(&self.merged.record());
    }

    fn failure(&mut self) -> &mut Option<Error> {
        &mut self.failure
    }
}

/// Returns where the item of a number is kept.
fn place(number: u32) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}
