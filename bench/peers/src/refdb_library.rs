//! refdb, through the interface that any program uses.

use std::path::Path;

use refdb::{Edit, Expected, ObjectId, RefName};
use refdb_git::Repository;

use crate::{Item, Library, Result};

struct Refdb(Repository);

/// Opens a repository.
pub fn open(git_dir: &Path) -> Result<Box<dyn Library>> {
    Ok(Box::new(Refdb(Repository::open(git_dir)?)))
}

impl Refdb {
    fn write(&self, items: &[Item], expected: Expected<'static>) -> Result<()> {
        let mut transaction = self.0.store().transaction();
        for item in items {
            let id = ObjectId::from_hex(item.id.as_bytes()).ok_or("no object id")?;
            let edit = Edit::update(RefName::new(&item.name)?, id);
            transaction.add(edit.expecting(expected.clone()))?;
        }
        done(&transaction.commit()?)
    }
}

/// A refused edit is no error to the library, but it is one here.
fn done(outcome: &refdb::Outcome) -> Result<()> {
    match outcome.rejections.first() {
        Some(rejection) => Err(format!("{rejection:?}").into()),
        None => Ok(()),
    }
}

impl Library for Refdb {
    fn create(&self, items: &[Item]) -> Result<()> {
        self.write(items, Expected::Missing)
    }

    fn update(&self, items: &[Item]) -> Result<()> {
        self.write(items, Expected::Any)
    }

    fn delete(&self, items: &[Item]) -> Result<()> {
        let mut transaction = self.0.store().transaction();
        for item in items {
            transaction.add(Edit::delete(RefName::new(&item.name)?))?;
        }
        done(&transaction.commit()?)
    }

    fn list(&self, prefix: &str) -> Result<usize> {
        let mut refs = self.0.store().refs()?;
        refs.seek_prefix(prefix.as_bytes())?;
        let mut count = 0;
        while let Some(record) = refs.next()? {
            count +=
                usize::from(record.target.oid().is_some() && !record.name.as_bytes().is_empty());
        }
        Ok(count)
    }

    fn lookup(&self, name: &str) -> Result<bool> {
        Ok(self.0.store().read(RefName::new(name)?)?.is_some())
    }
}
