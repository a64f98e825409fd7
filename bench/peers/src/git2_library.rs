//! libgit2, through git2. Its transactions are neither atomic nor do they expect an old value, so
//! that creating looks first whether the ref exists.

use std::path::Path;

use git2::{Oid, Repository};

use crate::{Item, Library, Result};

struct Git2(Repository);

/// Opens a repository.
pub fn open(git_dir: &Path) -> Result<Box<dyn Library>> {
    Ok(Box::new(Git2(Repository::open_bare(git_dir)?)))
}

impl Library for Git2 {
    fn create(&self, items: &[Item]) -> Result<()> {
        for item in items {
            if self.lookup(&item.name)? {
                return Err(format!("{} exists", item.name).into());
            }
        }
        self.update(items)
    }

    fn update(&self, items: &[Item]) -> Result<()> {
        let mut transaction = self.0.transaction()?;
        for item in items {
            transaction.lock_ref(&item.name)?;
            transaction.set_target(&item.name, Oid::from_str(&item.id)?, None, "")?;
        }
        Ok(transaction.commit()?)
    }

    fn delete(&self, items: &[Item]) -> Result<()> {
        let mut transaction = self.0.transaction()?;
        for item in items {
            transaction.lock_ref(&item.name)?;
            transaction.remove(&item.name)?;
        }
        Ok(transaction.commit()?)
    }

    fn list(&self, prefix: &str) -> Result<usize> {
        let mut count = 0;
        for reference in self.0.references_glob(&format!("{prefix}*"))? {
            let reference = reference?;
            count +=
                usize::from(reference.target().is_some() && !reference.name_bytes().is_empty());
        }
        Ok(count)
    }

    fn lookup(&self, name: &str) -> Result<bool> {
        match self.0.refname_to_id(name) {
            Ok(_) => Ok(true),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
