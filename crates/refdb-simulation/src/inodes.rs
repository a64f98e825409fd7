//! The inodes of a disk, by their numbers.

use std::sync::Arc;

use super::disk::{Ino, Inode};

/// They have numbers one after the other: a list finds each at once, and is copied quickly, which a rig does for
/// each fault. In place of a sorted map it took a fifth off the rigs' time.
#[derive(Clone, Debug, Default)]
pub(super) struct Inodes(Vec<Option<Arc<Inode>>>);

impl Inodes {
    pub(super) fn get(&self, ino: Ino) -> Option<&Arc<Inode>> {
        self.0.get(place(ino)).and_then(Option::as_ref)
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> Option<&mut Arc<Inode>> {
        self.0.get_mut(place(ino)).and_then(Option::as_mut)
    }

    pub(super) fn insert(&mut self, ino: Ino, inode: Arc<Inode>) {
        let place = place(ino);
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = Some(inode);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ino, &Arc<Inode>)> {
        let all = (0..).zip(&self.0);
        all.filter_map(|(ino, inode)| Some((ino, inode.as_ref()?)))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Arc<Inode>> {
        self.0.iter_mut().flatten()
    }
}

fn place(ino: Ino) -> usize {
    usize::try_from(ino).expect("few inodes")
}
