//! What a leader wrote down before it sent a head for others: which one, and what becomes of each of them if it
//! is there.

use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refdb::shared::head::Head;
use refdb::shared::{Read, Register, Shared, Swap, Version};
use refdb::system::{Bytes, System};
use refdb::{Error, Result};

use super::committer::write_new;
use super::push::Fate;
use super::spool::{fate, push_fate, whole};

/// Those who wait, by what they left, and what becomes of each.
pub(super) type Members = Vec<(String, Vec<Fate>)>;

/// Which head it is, and for whom.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) uuid: u128,
    pub(super) generation: u64,
    pub(super) id: u64,
    pub(super) members: Members,
}

impl Claim {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (uuid, generation, id) = (self.uuid, self.generation, self.id);
        let mut text = format!("{uuid:032x} {generation} {id:016x}\n").into_bytes();
        for (name, fates) in &self.members {
            text.extend_from_slice(format!("member {name}\n").as_bytes());
            fates.iter().for_each(|fate| push_fate(&mut text, fate));
        }
        text.extend_from_slice(b"end\n");
        text
    }

    pub(super) fn decode(text: &[u8]) -> Option<Claim> {
        let mut lines = whole(text)?;
        let first = std::str::from_utf8(lines.next()?).ok()?;
        let mut words = first.split(' ');
        let mut claim = Claim {
            uuid: u128::from_str_radix(words.next()?, 16).ok()?,
            generation: words.next()?.parse().ok()?,
            id: u64::from_str_radix(words.next()?, 16).ok()?,
            members: Vec::new(),
        };
        for line in lines {
            match line.strip_prefix(b"member ") {
                Some(name) => {
                    let name = std::str::from_utf8(name).ok()?;
                    // It becomes a path.
                    u64::from_str_radix(name, 16)
                        .ok()
                        .filter(|_| name.len() == 16)?;
                    claim.members.push((name.to_owned(), Vec::new()));
                }
                None => claim.members.last_mut()?.1.push(fate(line)?),
            }
        }
        Some(claim)
    }
}

/// The place of a store, on which a claim is written down before the next head is sent.
#[derive(Debug)]
pub(super) struct Claims {
    register: Arc<Register>,
    system: Arc<dyn System>,
    path: PathBuf,
    next: Mutex<Members>,
}

impl Claims {
    pub(super) fn new(register: Arc<Register>, system: Arc<dyn System>, dir: &Path) -> Claims {
        Claims {
            register,
            system,
            path: dir.join("claim"),
            next: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Says for whom the next head is.
    pub(super) fn set(&self, members: Members) {
        *self.next() = members;
    }

    fn next(&self) -> MutexGuard<'_, Members> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> &dyn Shared {
        self.register.shared()
    }
}

impl Shared for Claims {
    fn name(&self) -> String {
        self.place().name()
    }

    fn is_far(&self) -> bool {
        self.place().is_far()
    }

    fn head(&self, slot: u32, known: Option<&Version>) -> Result<Read> {
        self.place().head(slot, known)
    }

    fn swap(&self, slot: u32, expected: Option<&Version>, new: &[u8]) -> Result<Swap> {
        // Once: what is sent to give up is another head.
        let members = mem::take(&mut *self.next());
        if !members.is_empty() {
            let head = Head::decode(&Bytes::from(new.to_vec()), &self.name())?;
            let claim = Claim {
                uuid: head.uuid,
                generation: head.generation,
                id: head.recent.first().copied().unwrap_or_default(),
                members,
            };
            let written = write_new(self.system.as_ref(), &self.path, &claim.encode());
            written.map_err(|error| Error::io("cannot write", &self.path, error))?;
        }
        self.place().swap(slot, expected, new)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        self.place().get(key, range)
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<()> {
        self.place().put(key, content)
    }

    fn delete(&self, keys: &[&str]) -> Result<()> {
        self.place().delete(keys)
    }

    fn clear(&self, slots: Range<u32>) -> Result<()> {
        self.place().clear(slots)
    }

    fn sweep(&self) -> Result<()> {
        self.place().sweep()
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        self.place().list(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_written_and_leads_nowhere() {
        let name = "0123456789abcdef".to_owned();
        let claim = Claim {
            uuid: 7,
            generation: 9,
            id: 11,
            members: vec![(name.clone(), vec![Fate::Done, Fate::refused("no")])],
        };
        let text = claim.encode();
        assert_eq!(Claim::decode(&text), Some(claim));
        for len in 0..text.len() {
            assert_eq!(Claim::decode(&text[..len]), None, "{len}");
        }
        let text = String::from_utf8(text).unwrap();
        let leads_out = text.replace(&name, "../../../etc/pas");
        assert_eq!(Claim::decode(leads_out.as_bytes()), None);
    }
}
