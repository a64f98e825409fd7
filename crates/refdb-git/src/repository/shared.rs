//! Refs that a place keeps which many machines share: `refdb.store`.

use std::sync::Arc;

use refdb::shared::{Register, Settings};
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

use super::config::{Config, Scope};
use crate::places::open_url;

/// Opens the store that `refdb.store` names, if there is one. Nothing of it is read yet.
///
/// The repository's own setting counts only where the repository `is_trusted`: a clone can bring a bare
/// repository as files, and that one must not choose where the user's commands write.
///
/// # Errors
/// `BareRepository` for a setting that does not count; `Config` for a value that is no text; as for
/// [`open_url`].
pub(super) fn register(
    config: &Config,
    system: &Arc<dyn System>,
    is_trusted: bool,
) -> Result<Option<Arc<Register>>> {
    let Some(entry) = config.get("refdb.store") else {
        return Ok(None);
    };
    let Some(value) = entry.value() else {
        return Err(entry.unparsable("missing value for 'refdb.store'"));
    };
    let value: &[u8] = value.as_ref();
    if value.is_empty() {
        return Ok(None);
    }
    if !is_trusted && matches!(entry.scope(), Scope::Local | Scope::Worktree) {
        let what = "refdb.store is not followed here, since this bare repository was found inside another work \
                    tree: name the repository with --git-dir, or the store with --store";
        return Err(Error::new(ErrorKind::BareRepository, what));
    }
    let url = std::str::from_utf8(value)
        .map_err(|_| Error::new(ErrorKind::Config, "refdb.store is no UTF-8"))?;
    let place = open_url(system.as_ref(), url, false)?;
    let register = Register::open(place, Arc::clone(system), Settings::default())?;
    Ok(Some(Arc::new(register)))
}
