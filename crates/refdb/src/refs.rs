//! Refs, one by one: cursors over the refs of a store, which make any number of seeks, leave ranges
//! out, and take a second thread where there is much to read.
//!
//! ```
//! fn list(store: &refdb::Store) -> refdb::Result<()> {
//!     let mut refs = store.refs()?.excluding([b"refs/pull/".to_vec()]);
//!     refs.seek_prefix(b"refs/")?;
//!     while let Some(record) = refs.next()? {
//!         println!("{}", record.name);
//!     }
//!     Ok(())
//! }
//!
//! /// A page of branches: those behind the last one of the page before.
//! fn page(store: &refdb::Store, last: &[u8], len: usize) -> refdb::Result<Vec<refdb::Ref>> {
//!     let mut refs = store.refs()?;
//!     refs.seek_after(last, b"refs/heads/")?;
//!     refs.into_iter().take(len).collect()
//! }
//! ```

mod owned;

pub use owned::{IntoIter, Ref};

use std::borrow::BorrowMut;

use crate::backend::batch::Batch;
use crate::backend::cursor::{Cursor, RefRecord};
use crate::error::{Error, Result};
use crate::layout::is_of_tables;
use crate::options::StillThere;
use crate::system::beside::{BATCH, turns};

/// So many refs are read before a second thread is asked to read the others: a short listing is done
/// sooner than a thread begins.
const READ_ALONE_MAX: usize = 2 << 10;

/// A cursor over the refs of a store, with ranges that it leaves out.
pub struct Refs {
    cursor: Box<dyn Cursor>,
    // Sorted, and none a prefix of another.
    excluded: Vec<Vec<u8>>,
    prefix: Vec<u8>,
    // Where the last seek went, and whether nothing was read since.
    start: Vec<u8>,
    fresh: bool,
    // Whether any ref was shown that is not broken: the stub in the place of branches looks so.
    shown: bool,
    // Asked at the end, and where something looks as if they were moved.
    still_there: Option<StillThere>,
}

impl Refs {
    pub(crate) fn over(cursor: Box<dyn Cursor>) -> Self {
        Refs {
            cursor,
            excluded: Vec::new(),
            prefix: Vec::new(),
            start: Vec::new(),
            fresh: true,
            shown: false,
            still_there: None,
        }
    }

    /// Looks at the end, and where something is wrong, whether the refs are still where they were.
    pub(crate) fn watched(self, still_there: Option<StillThere>) -> Self {
        Refs {
            still_there,
            ..self
        }
    }

    /// Returns what came of reading, unless that is because the refs were moved.
    fn if_still_there<T, E: From<Error>>(
        &self,
        read: std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if let Some(still_there) = &self.still_there {
            (still_there.0)(!self.shown && self.prefix.len() <= b"refs/".len())?;
        }
        read
    }

    /// Leaves out every ref whose name starts with one of `prefixes`, by jumping over the range.
    pub fn excluding(mut self, prefixes: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.excluded.extend(prefixes);
        self.excluded.sort();
        self.excluded.dedup_by(|next, kept| next.starts_with(kept));
        self
    }

    /// Stands before the first ref whose name is `name` or greater, and forgets any prefix.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn seek(&mut self, name: &[u8]) -> Result<()> {
        self.stand_before(name.to_vec(), b"")
    }

    /// Stands before the first ref whose name starts with `prefix` (no regard for `/`), and ends
    /// behind the last such ref.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.stand_before(prefix.to_vec(), prefix)
    }

    /// Stands before the first ref behind `name` whose name starts with `prefix`, and ends behind the last
    /// such ref: what a listing goes on with that ended at `name`.
    ///
    /// ```no_run
    /// # fn example(store: &refdb::Store, last: &[u8]) -> refdb::Result<()> {
    /// let mut page = store.refs()?;
    /// page.seek_after(last, b"refs/tags/")?;
    /// for _ in 0..100 {
    ///     let Some(record) = page.next()? else { break };
    ///     println!("{}", record.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    pub fn seek_after(&mut self, name: &[u8], prefix: &[u8]) -> Result<()> {
        self.stand_before(behind(name).max(prefix.to_vec()), prefix)
    }

    /// Stands before the first ref from `start` on whose name starts with `prefix`.
    fn stand_before(&mut self, start: Vec<u8>, prefix: &[u8]) -> Result<()> {
        self.prefix = prefix.to_vec();
        self.start = start;
        self.fresh = true;
        match self.cursor.seek(&self.start, prefix) {
            Ok(()) => Ok(()),
            Err(error) => self.if_still_there(Err(error)),
        }
    }

    /// Returns the next ref, borrowed from the cursor; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` or `Io` for the files.
    #[expect(
        clippy::should_implement_trait,
        reason = "records borrow from the cursor"
    )]
    pub fn next(&mut self) -> Result<Option<RefRecord<'_>>> {
        let more = match self.advance() {
            Ok(true) => true,
            ended => self.if_still_there(ended)?,
        };
        more.then(|| self.show()).transpose()
    }

    /// Moves to the next ref; returns whether there is one.
    fn advance(&mut self) -> Result<bool> {
        self.fresh = false;
        while self.cursor.advance()? {
            match self.exclusion() {
                None => return Ok(true),
                Some(prefix) => match successor(prefix) {
                    Some(end) if end.starts_with(&self.prefix) => {
                        self.cursor.seek(&end, &self.prefix)?;
                    }
                    // The range reaches to the end of what the cursor was to show.
                    _ => break,
                },
            }
        }
        Ok(false)
    }

    /// Returns the ref on which the cursor stands, for somebody to see.
    fn show(&mut self) -> Result<RefRecord<'_>> {
        let record = self.cursor.record();
        look_at(&record, self.still_there.as_ref())?;
        self.shown |= !record.broken;
        Ok(record)
    }

    /// Calls `each` with every ref from here on, until it gives `false`; returns whether it never did.
    /// Where there are many refs, a second thread reads them, too: afterwards the cursor stands nowhere
    /// in particular, until the next seek.
    ///
    /// # Errors
    /// The first one of `each`; `Corrupt` or `Io` for the files.
    pub fn each<E: From<Error>>(
        &mut self,
        each: impl FnMut(RefRecord<'_>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        let read = self.each_read(each);
        self.if_still_there(read)
    }

    fn each_read<E: From<Error>>(
        &mut self,
        mut each: impl FnMut(RefRecord<'_>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        let start = if self.is_worth_halving() {
            self.start.clone()
        } else {
            for _ in 0..READ_ALONE_MAX {
                if !self.advance()? {
                    return Ok(true);
                }
                if !each(self.show()?)? {
                    return Ok(false);
                }
            }
            behind(self.cursor.name().as_bytes())
        };
        let maker = || {
            let mut text_len = 0;
            move |part: &mut Part<'_>| {
                // The names of the next ones are about as long as those of the last ones.
                let mut batch = Batch::with_room(BATCH, text_len + text_len / 8);
                let read = part.each(|record| {
                    batch.push(record);
                    Ok::<_, Error>(())
                });
                text_len = batch.text_len();
                (batch, read)
            }
        };
        self.parts_from(start, maker, |(batch, read)| {
            for record in batch.records() {
                if !each(record)? {
                    return Ok(false);
                }
            }
            read?;
            Ok(true)
        })
    }

    /// Makes something of every part of the refs from here on, each of a thousand refs or so, and calls
    /// `take` with what was made, in the order of names, until it gives `false`; returns whether it never
    /// did. Where there are many refs, two threads make them, each with a maker of its own.
    /// Afterwards the cursor stands nowhere in particular, until the next seek.
    ///
    /// ```
    /// # use refdb::{Error, Part, Store};
    /// # fn print(store: &Store) -> refdb::Result<()> {
    /// let mut refs = store.refs()?;
    /// refs.seek_prefix(b"refs/tags/")?;
    /// let maker = || {
    ///     |part: &mut Part<'_>| {
    ///         let mut lines = String::new();
    ///         part.each(|record| {
    ///             lines += &format!("{}\n", record.name);
    ///             Ok::<_, Error>(())
    ///         })?;
    ///         Ok::<_, Error>(lines)
    ///     }
    /// };
    /// refs.by_parts(maker, |lines| {
    ///     print!("{}", lines?);
    ///     Ok::<_, Error>(true)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first one of `take`. What is wrong with the files is told by [`Part::each`], or here where a
    /// maker did not read its part to the end.
    pub fn by_parts<T: Send, M, E: From<Error>>(
        &mut self,
        maker: impl Fn() -> M + Sync,
        take: impl FnMut(T) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E>
    where
        M: FnMut(&mut Part<'_>) -> T,
    {
        let read = self.parts_read(maker, take);
        self.if_still_there(read)
    }

    fn parts_read<T: Send, M, E: From<Error>>(
        &mut self,
        maker: impl Fn() -> M + Sync,
        mut take: impl FnMut(T) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E>
    where
        M: FnMut(&mut Part<'_>) -> T,
    {
        if self.is_worth_halving() {
            return self.parts_from(self.start.clone(), maker, take);
        }
        let mut make = maker();
        for _ in 0..READ_ALONE_MAX / BATCH {
            if let Some(ended) = self.part_alone(&mut make, &mut take)? {
                return Ok(ended);
            }
        }
        self.parts_from(behind(self.cursor.name().as_bytes()), maker, take)
    }

    /// As [`Refs::by_parts`], where the next ref is the first one whose name is `start` or greater.
    fn parts_from<T: Send, M, E: From<Error>>(
        &mut self,
        start: Vec<u8>,
        maker: impl Fn() -> M + Sync,
        mut take: impl FnMut(T) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E>
    where
        M: FnMut(&mut Part<'_>) -> T,
    {
        let mut make = maker();
        let is_long = self.end_of_part(&start).is_ok_and(|end| end.is_some());
        let Some(other) = self.another().filter(|_| is_long) else {
            return self.parts_alone(&mut make, &mut take);
        };
        let mut own = Turns::new(&mut *self, start.clone());
        let maker = &maker;
        let other = move || {
            let (mut make, mut other) = (maker(), Turns::new(other, start));
            move |turn| other.part(turn).map(|mut part| make(&mut part))
        };
        let part = |turn| own.part(turn).map(|mut part| make(&mut part));
        let stopped = turns(part, other, |_, made| match take(made) {
            Ok(true) => Ok(()),
            Ok(false) => Err(None),
            Err(error) => Err(Some(error)),
        });
        match stopped {
            Ok(()) => {}
            Err(None) => return Ok(false),
            Err(Some(error)) => return Err(error),
        }
        let Some(rest) = own.rest() else {
            return Ok(true);
        };
        self.cursor.seek(&rest, &self.prefix)?;
        self.parts_alone(&mut make, &mut take)
    }

    /// As [`Refs::by_parts`], from where the cursor stands, in this thread.
    fn parts_alone<T, E: From<Error>>(
        &mut self,
        make: &mut impl FnMut(&mut Part<'_>) -> T,
        take: &mut impl FnMut(T) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        loop {
            if let Some(ended) = self.part_alone(make, take)? {
                return Ok(ended);
            }
        }
    }

    /// Makes something of the next refs, and has it taken. Returns what [`Refs::by_parts`] comes to, if
    /// that was all.
    fn part_alone<T, E: From<Error>>(
        &mut self,
        make: &mut impl FnMut(&mut Part<'_>) -> T,
        take: &mut impl FnMut(T) -> std::result::Result<bool, E>,
    ) -> std::result::Result<Option<bool>, E> {
        let mut part = Part::of_len(self, BATCH);
        let made = make(&mut part);
        let more = part.finish();
        if !take(made)? {
            return Ok(Some(false));
        }
        Ok(if more? { None } else { Some(true) })
    }

    /// Returns whether two threads are to read from the first ref on: how much there is to read is not
    /// told by how many refs are shown.
    fn is_worth_halving(&self) -> bool {
        self.fresh && self.cursor.is_sparse()
    }

    /// Makes another cursor over the same moment of the same refs, if that can be.
    fn another(&self) -> Option<Refs> {
        Some(Refs {
            cursor: self.cursor.another()?,
            excluded: self.excluded.clone(),
            prefix: self.prefix.clone(),
            start: self.start.clone(),
            fresh: self.fresh,
            shown: self.shown,
            still_there: self.still_there.clone(),
        })
    }

    /// Returns where the part ends that begins at `name`; `None` if no other follows.
    fn end_of_part(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(ahead) = self.cursor.name_ahead(name)? else {
            return Ok(None);
        };
        // A range that is left out is jumped over at once, however large it is.
        let end = match excluded_prefix(&self.excluded, &ahead) {
            Some(prefix) => successor(prefix),
            None => Some(ahead),
        };
        Ok(end.filter(|end| end.starts_with(&self.prefix) && end.as_slice() > name))
    }

    /// Returns the excluded prefix that the ref has on which the cursor stands.
    fn exclusion(&self) -> Option<&[u8]> {
        if self.excluded.is_empty() {
            return None;
        }
        excluded_prefix(&self.excluded, self.cursor.name().as_bytes())
    }
}

/// Looks whether the refs are still where they were, if a ref may be what stands in their place: a broken one,
/// or HEAD as tables have it beside them.
fn look_at(record: &RefRecord<'_>, still_there: Option<&StillThere>) -> Result<()> {
    match still_there {
        Some(still_there) if record.broken || is_of_tables(record.target) => (still_there.0)(false),
        _ => Ok(()),
    }
}

/// Returns the first name behind a name.
fn behind(name: &[u8]) -> Vec<u8> {
    [name, b"\0"].concat()
}

/// Returns which of these prefixes a name has, none of which is a prefix of another.
fn excluded_prefix<'p>(prefixes: &'p [Vec<u8>], name: &[u8]) -> Option<&'p [u8]> {
    let after = prefixes.partition_point(|prefix| prefix.as_slice() <= name);
    let prefix = prefixes.get(after.checked_sub(1)?)?;
    name.starts_with(prefix).then_some(prefix)
}

/// Refs that follow each other, of which [`Refs::by_parts`] makes something.
pub struct Part<'r> {
    refs: &'r mut Refs,
    /// The name before which it ends.
    end: Option<&'r [u8]>,
    /// How many refs of it may still be read.
    left: usize,
    /// Whether there may be more refs behind those read so far, in this part or behind it.
    more: bool,
    /// Why it cannot be read.
    failure: Option<Error>,
}

impl<'r> Part<'r> {
    /// The next refs, so many at most.
    fn of_len(refs: &'r mut Refs, len: usize) -> Self {
        Part {
            refs,
            end: None,
            left: len,
            more: true,
            failure: None,
        }
    }

    /// Calls `each` with every ref of the part, until it fails.
    ///
    /// # Errors
    /// The one of `each`; `Corrupt` or `Io` for the files.
    pub fn each<E: From<Error>>(
        &mut self,
        mut each: impl FnMut(&RefRecord<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if let Some(error) = self.failure.take() {
            self.more = false;
            return Err(error.into());
        }
        let Refs {
            cursor,
            excluded,
            prefix,
            shown,
            still_there,
            ..
        } = &mut *self.refs;
        while self.more && self.left > 0 {
            let mut failed = None;
            let mut passed_over = None;
            let ran = cursor.run(self.end, &mut |record| {
                if !excluded.is_empty() {
                    passed_over = excluded_prefix(excluded, record.name.as_bytes());
                }
                if passed_over.is_some() {
                    return false;
                }
                self.left -= 1;
                *shown |= !record.broken;
                let looked = look_at(record, still_there.as_ref());
                failed = looked.map_err(E::from).and_then(|()| each(record)).err();
                failed.is_none() && self.left > 0
            });
            self.more = *ran.as_ref().unwrap_or(&false);
            ran?;
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some(range) = passed_over {
                match successor(range) {
                    Some(behind) if behind.starts_with(prefix) => {
                        cursor.seek_part(&behind, prefix, self.end)?;
                    }
                    // The range reaches to the end of what the cursor was to show.
                    _ => self.more = false,
                }
            }
        }
        Ok(())
    }

    /// Passes over what was not read; returns whether there may be more refs.
    fn finish(mut self) -> Result<bool> {
        self.each(|_| Ok::<_, Error>(()))?;
        Ok(self.more)
    }
}

/// The parts of what a cursor reads, of which not every one has to be read.
struct Turns<R> {
    refs: R,
    /// Which part comes next, and where it begins; `None` behind the last one.
    turn: usize,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// Where the refs begin of which no part was made.
    rest: Option<Vec<u8>>,
}

impl<R: BorrowMut<Refs>> Turns<R> {
    fn new(refs: R, start: Vec<u8>) -> Self {
        Turns {
            refs,
            turn: 0,
            start: Some(start),
            end: None,
            rest: None,
        }
    }

    /// Returns a part that was not passed over yet; `None` if there are fewer. Where something ahead is
    /// damaged, the parts end: what lies before the damage is to be read all the same, up to it.
    fn part(&mut self, turn: usize) -> Option<Part<'_>> {
        let refs = self.refs.borrow_mut();
        let mut start = self.start.take()?;
        let found = loop {
            let Ok(end) = refs.end_of_part(&start) else {
                self.rest = Some(start);
                return None;
            };
            self.turn += 1;
            if self.turn > turn {
                self.end = end;
                let end = self.end.as_deref();
                break refs.cursor.seek_part(&start, &refs.prefix, end);
            }
            start = end?;
        };
        if found.is_ok() {
            self.start.clone_from(&self.end);
        }
        Some(Part {
            end: self.end.as_deref(),
            failure: found.err(),
            ..Part::of_len(refs, usize::MAX)
        })
    }

    /// Returns where the refs begin of which no part can be made, if there are any.
    fn rest(mut self) -> Option<Vec<u8>> {
        while self.part(self.turn).is_some() {}
        self.rest
    }
}

/// Returns the least string that is greater than every string starting with `prefix`; `None` if
/// there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=keep)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::layout::Layout;
    use crate::objects::NoObjects;
    use crate::{Edit, ObjectFormat, ObjectId, Optimize, Options, RefFormat, RefName, Store};
    use refdb_simulation::SimSystem;

    /// Two refs with many between them that are not shown: deleted ones, or those of another object.
    #[test]
    fn no_part_is_read_behind_its_end() {
        let name = |text: &'static str| RefName::new(text).unwrap();
        let ids = [b'1', b'2'].map(|digit| ObjectId::from_hex(&[digit; 40]).unwrap());
        let between: Vec<String> = (0..50).map(|at| format!("refs/heads/m{at:02}")).collect();
        for format in [RefFormat::Files, RefFormat::Reftable] {
            let system = SimSystem::new(1);
            for dir in ["/r", "/r/refs", "/r/refs/heads", "/r/reftable"] {
                crate::system::System::create_dir(&system, Path::new(dir)).unwrap();
            }
            let mut options = Options::simulated(ObjectFormat::Sha1);
            options.reftable.auto_compaction = false;
            let layout = Layout::main(Path::new("/r"));
            let objects = Arc::new(NoObjects);
            let store = Store::open(Arc::new(system), layout, format, objects, options).unwrap();
            let mut transaction = store.transaction();
            for (text, oid) in [("refs/heads/a", ids[0]), ("refs/heads/z", ids[0])] {
                let edit = Edit::update(name(text), oid).skip_object_check();
                transaction.add(edit).unwrap();
            }
            for text in &between {
                let edit = Edit::update(RefName::new(text).unwrap(), ids[1]);
                transaction.add(edit.skip_object_check()).unwrap();
            }
            assert!(transaction.commit().unwrap().afterwards.is_empty());
            let mut refs = if format == RefFormat::Files {
                store.optimize(&Optimize::default()).unwrap();
                store.refs_of_objects(&ids[..1]).unwrap()
            } else {
                let mut transaction = store.transaction();
                for text in &between {
                    transaction
                        .add(Edit::delete(RefName::new(text).unwrap()))
                        .unwrap();
                }
                assert!(transaction.commit().unwrap().afterwards.is_empty());
                store.refs().unwrap()
            };
            let cursor = refs.cursor.as_mut();
            for (end, expected) in [
                (None, true),
                (Some(&b"refs/heads/m10"[..]), false),
                (None, true),
            ] {
                cursor.seek_part(b"refs/heads/b", b"refs/", end).unwrap();
                assert_eq!(cursor.advance().unwrap(), expected, "{format:?}, {end:?}");
            }
            assert_eq!(cursor.name(), name("refs/heads/z"));
            let mut names = Vec::new();
            refs.seek_prefix(b"refs/").unwrap();
            while let Some(record) = refs.next().unwrap() {
                names.push(record.name.to_string());
            }
            assert_eq!(names, ["refs/heads/a", "refs/heads/z"]);
        }
    }
}
