//! grit-lib, through its store of refs.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use grit_lib::objects::ObjectId;
use grit_lib::refs::store::{
    Expected, RawRef, RefStore, RefTransaction, RefUpdate, RefUpdateFlags, open_ref_store,
};

use crate::{Item, Library, Result};

struct Grit(Arc<dyn RefStore>);

/// Opens a repository.
pub fn open(git_dir: &Path) -> Result<Box<dyn Library>> {
    Ok(Box::new(Grit(open_ref_store(git_dir)?)))
}

impl Grit {
    fn write(&self, items: &[Item], delete: bool, expected: &Expected) -> Result<()> {
        let mut transaction = RefTransaction::new();
        for item in items {
            let value = RawRef::Direct(ObjectId::from_hex(&item.id)?);
            transaction.push_update(RefUpdate {
                name: item.name.clone(),
                new_value: (!delete).then_some(value),
                expected: expected.clone(),
                reflog: None,
                flags: RefUpdateFlags::default(),
            })?;
        }
        self.0.prepare(transaction)?.commit()?;
        Ok(())
    }
}

impl Library for Grit {
    fn create(&self, items: &[Item]) -> Result<()> {
        self.write(items, false, &Expected::Missing)
    }

    fn update(&self, items: &[Item]) -> Result<()> {
        self.write(items, false, &Expected::Any)
    }

    fn delete(&self, items: &[Item]) -> Result<()> {
        self.write(items, true, &Expected::Any)
    }

    fn list(&self, prefix: &str) -> Result<usize> {
        let mut count = 0;
        self.0.for_each_ref(prefix, &mut |entry| {
            count +=
                usize::from(matches!(entry.value, RawRef::Direct(_)) && !entry.name.is_empty());
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    fn lookup(&self, name: &str) -> Result<bool> {
        Ok(self.0.read_raw(name)?.is_some())
    }
}
