//! The refs that were read, for the checks that need all of them. There may be millions: of each only its place is kept.

use refdb::system::Bytes;
use refdb::{ObjectFormat, ObjectId};

use super::packed::{Lines, parse, peeled};

/// A ref that was read.
#[derive(Clone, Copy)]
pub(super) struct Seen<'s> {
    /// The name within its directory.
    pub(super) name: &'s [u8],
    pub(super) value: Value<'s>,
    /// Which of the directories it is in.
    pub(super) dir: usize,
    pub(super) source: Source,
}

/// What a ref holds.
#[derive(Clone, Copy)]
pub(super) enum Value<'s> {
    Oid {
        oid: ObjectId,
        peeled: Option<ObjectId>,
    },
    Symref(&'s [u8]),
}

/// Where a ref was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Loose,
    /// A line of packed-refs, by its offset.
    Packed(u64),
    Table,
}

/// Where the name of a ref is, and behind it the value.
struct Place {
    name: usize,
    name_len: u32,
    value_len: u32,
    dir: u32,
    kind: Kind,
    is_symref: bool,
}

enum Kind {
    Loose,
    Packed,
    Table,
}

/// All of them.
#[derive(Default)]
pub(super) struct AllSeen {
    places: Vec<Place>,
    /// The names and values of those that are not in packed-refs.
    text: Vec<u8>,
    packed: Option<(Bytes, ObjectFormat)>,
}

impl AllSeen {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn push(&mut self, seen: Seen<'_>) {
        let name = self.text.len();
        self.text.extend_from_slice(seen.name);
        match &seen.value {
            Value::Symref(target) => self.text.extend_from_slice(target),
            Value::Oid { oid, peeled } => {
                self.text.extend_from_slice(oid.as_bytes());
                let peeled = peeled.as_ref().map(ObjectId::as_bytes);
                self.text.extend_from_slice(peeled.unwrap_or_default());
            }
        }
        self.places.push(Place {
            name,
            name_len: short(seen.name.len()),
            value_len: short(self.text.len() - name - seen.name.len()),
            dir: short(seen.dir),
            kind: match seen.source {
                Source::Table => Kind::Table,
                _ => Kind::Loose,
            },
            is_symref: matches!(seen.value, Value::Symref(_)),
        });
    }

    /// Says where the refs are that are added by [`AllSeen::push_packed`].
    pub(super) fn set_packed(&mut self, content: &Bytes, format: ObjectFormat) {
        self.packed = Some((content.clone(), format));
    }

    /// Adds the ref of a good line of packed-refs.
    pub(super) fn push_packed(&mut self, line: usize, name: &[u8]) {
        let hex_len = self.packed.as_ref().map_or(0, |it| it.1.hex_len());
        self.places.push(Place {
            name: line + hex_len + 1,
            name_len: short(name.len()),
            value_len: 0,
            dir: 0,
            kind: Kind::Packed,
            is_symref: false,
        });
    }

    /// Returns the directory and the name of a ref.
    pub(super) fn name(&self, at: usize) -> (usize, &[u8]) {
        let Some(place) = self.places.get(at) else {
            return (0, b"");
        };
        let text = match (&place.kind, &self.packed) {
            (Kind::Packed, Some((content, _))) => content.as_ref(),
            _ => &self.text,
        };
        let from = text.get(place.name..).unwrap_or_default();
        let name = from.get(..place.name_len as usize).unwrap_or_default();
        (place.dir as usize, name)
    }

    pub(super) fn get(&self, at: usize) -> Option<Seen<'_>> {
        let place = self.places.get(at)?;
        let (dir, name) = self.name(at);
        let (value, source) = match (&place.kind, &self.packed) {
            (Kind::Packed, Some((content, format))) => {
                let line = place.name.checked_sub(format.hex_len() + 1)?;
                let mut lines = Lines::from(content.as_ref(), line);
                let (oid, _) = parse(lines.next()?.1, *format)?;
                let peeled = lines.next().and_then(|it| peeled(it.1, *format));
                let source = Source::Packed(u64::try_from(line).unwrap_or(u64::MAX));
                (Value::Oid { oid, peeled }, source)
            }
            (kind, _) => {
                let source = match kind {
                    Kind::Table => Source::Table,
                    _ => Source::Loose,
                };
                (self.value(place)?, source)
            }
        };
        Some(Seen {
            name,
            value,
            dir,
            source,
        })
    }

    fn value(&self, place: &Place) -> Option<Value<'_>> {
        let from = self.text.get(place.name + place.name_len as usize..)?;
        let value = from.get(..place.value_len as usize)?;
        if place.is_symref {
            return Some(Value::Symref(value));
        }
        // Two ids are as long as none is.
        if let Some(oid) = ObjectId::from_bytes(value) {
            return Some(Value::Oid { oid, peeled: None });
        }
        let (oid, peeled) = value.split_at(value.len() / 2);
        Some(Value::Oid {
            oid: ObjectId::from_bytes(oid)?,
            peeled: ObjectId::from_bytes(peeled),
        })
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Seen<'_>> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

fn short(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
