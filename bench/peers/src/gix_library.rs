//! gix-ref, through its store of files.

use std::path::Path;

use gix_ref::transaction::{Change, LogChange, PreviousValue, RefEdit, RefLog};
use gix_ref::{FullName, Target, file};

use crate::{Item, Library, Result};

struct Gix(file::Store);

/// Opens a repository.
pub fn open(git_dir: &Path) -> Result<Box<dyn Library>> {
    let options = gix_ref::store::init::Options {
        write_reflog: gix_ref::store::WriteReflog::Disable,
        ..Default::default()
    };
    let store = file::Store::at_opts(git_dir.to_owned(), gix_hash::Kind::Sha1, options);
    Ok(Box::new(Gix(store)))
}

impl Gix {
    fn write(&self, items: &[Item], change: impl Fn(gix_hash::ObjectId) -> Change) -> Result<()> {
        let mut edits = Vec::with_capacity(items.len());
        for item in items {
            let id = gix_hash::ObjectId::from_hex(item.id.as_bytes())?;
            let name = FullName::try_from(item.name.as_str())?;
            edits.push(RefEdit::new(name, change(id)));
        }
        let fail = gix_lock::acquire::Fail::Immediately;
        self.0
            .transaction()
            .prepare(edits, fail, fail)?
            .commit(None)?;
        Ok(())
    }
}

fn update(id: gix_hash::ObjectId, expected: PreviousValue) -> Change {
    Change::Update {
        log: LogChange::default(),
        expected,
        new: Target::Object(id),
    }
}

impl Library for Gix {
    fn create(&self, items: &[Item]) -> Result<()> {
        self.write(items, |id| update(id, PreviousValue::MustNotExist))
    }

    fn update(&self, items: &[Item]) -> Result<()> {
        self.write(items, |id| update(id, PreviousValue::Any))
    }

    fn delete(&self, items: &[Item]) -> Result<()> {
        self.write(items, |_| Change::Delete {
            expected: PreviousValue::Any,
            log: RefLog::AndReference,
        })
    }

    fn list(&self, prefix: &str) -> Result<usize> {
        let platform = self.0.iter()?;
        let mut count = 0;
        for reference in platform.prefixed(prefix.try_into()?)? {
            let reference = reference?;
            let direct = matches!(reference.target, Target::Object(_));
            count += usize::from(direct && !reference.name.as_bstr().is_empty());
        }
        Ok(count)
    }

    fn lookup(&self, name: &str) -> Result<bool> {
        Ok(self.0.try_find(name)?.is_some())
    }
}
