//! The object ids of a transaction, each kept once and named by a number.
//!
//! A large transaction names few objects many times, or many objects a few times each: a number in
//! place of an id keeps what is stored for each edit small, and makes comparing ids cheap.

use hashbrown::{DefaultHashBuilder, HashTable};
use refdb_names::{ObjectFormat, ObjectId};
use std::hash::BuildHasher;

/// The number of an id in [`Ids`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(u32);

impl Id {
    /// The number of the null id.
    pub(super) const NULL: Id = Id(0);

    /// Returns the id of a number that [`Id::to_number`] gave.
    pub(super) fn from_number(number: u32) -> Id {
        Id(number)
    }

    /// Returns the bare number.
    pub(super) fn to_number(self) -> u32 {
        self.0
    }

    /// Returns the number as a position.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Every id that a transaction has met.
#[derive(Clone)]
pub(super) struct Ids {
    values: Vec<ObjectId>,
    numbers: HashTable<Id>,
    hasher: DefaultHashBuilder,
}

impl Ids {
    /// Begins with the null id.
    pub(super) fn new(format: ObjectFormat) -> Self {
        let mut ids = Ids {
            values: Vec::new(),
            numbers: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        ids.number(ObjectId::null(format));
        ids
    }

    /// Returns the number of an id, giving it one if it is new.
    pub(super) fn number(&mut self, oid: ObjectId) -> Id {
        let Ids {
            values,
            numbers,
            hasher,
        } = self;
        let hash = |oid: &ObjectId| hasher.hash_one(oid);
        let entry = numbers.entry(
            hash(&oid),
            |id| values[id.index()] == oid,
            |id| hash(&values[id.index()]),
        );
        *entry
            .or_insert_with(|| {
                let next = u32::try_from(values.len());
                values.push(oid);
                Id(next.expect("the text of so many edits is longer than a transaction takes"))
            })
            .get()
    }

    /// Returns the id of that number.
    pub(super) fn get(&self, id: Id) -> &ObjectId {
        &self.values[id.index()]
    }
}
