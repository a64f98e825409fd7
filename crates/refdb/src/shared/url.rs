//! What names a shared place.

use std::path::Path;
use std::sync::Arc;

use super::{DirShared, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::system::System;

/// Opens the place that a URL names: `file:///path`. With `make`, a directory is made if need be.
///
/// # Errors
/// `Unsupported` for a place of another kind; as for [`DirShared::open`].
///
/// ```
/// let error = refdb::shared::open_url(&refdb::system::OsSystem::new(), "ftp://x/y", false).unwrap_err();
/// assert!(error.to_string().contains("file:///path"));
/// ```
pub fn open_url(system: &dyn System, url: &str, make: bool) -> Result<Arc<dyn Shared>> {
    if let Some(path) = url.strip_prefix("file://") {
        return Ok(Arc::new(DirShared::open(system, Path::new(path), make)?));
    }
    // What stands before an `@` may be a secret.
    let shown = match url.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://..."),
        None => url.to_owned(),
    };
    let what = format!("'{shown}' names no store that this refdb can use; it can use file:///path");
    Err(Error::new(ErrorKind::Unsupported, what))
}
