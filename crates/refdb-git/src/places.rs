//! The places that stores are in which many machines share, by their URLs: a directory, and what others add.
//!
//! ```
//! use refdb_git::places::open_url;
//! use refdb_git::refdb::system::OsSystem;
//!
//! let error = open_url(&OsSystem::new(), "ftp://x/y", false).unwrap_err();
//! assert!(error.to_string().contains("file:///path"));
//! ```

mod directory;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use refdb::shared::Shared;
use refdb::system::System;
use refdb::{Error, ErrorKind, Result};

pub use directory::DirShared;

/// What opens places of other kinds: it is given the URL, and whether the place may be made if need be.
pub type Opener = fn(&str, bool) -> Result<Arc<dyn Shared>>;

/// What the URLs of buckets begin with.
const BUCKETS: [&str; 3] = ["s3", "az", "gs"];

static OPENER: OnceLock<Opener> = OnceLock::new();

/// Has [`open_url`] open buckets by `opener` from now on, in this whole process. Returns whether it does: the
/// first one that is set stays.
pub fn set_opener(opener: Opener) -> bool {
    OPENER.set(opener).is_ok()
}

/// Opens the place that a URL names: `file:///path`, and buckets (`s3://`, `az://`, `gs://`) where something was
/// [set](set_opener) that opens them. With `make`, a directory is made if need be.
///
/// # Errors
/// `Unsupported` for a place of another kind; as for [`DirShared::open`].
pub fn open_url(system: &dyn System, url: &str, make: bool) -> Result<Arc<dyn Shared>> {
    if let Some(path) = url.strip_prefix("file://") {
        return Ok(Arc::new(DirShared::open(system, Path::new(path), make)?));
    }
    let scheme = url.split_once("://").map(|it| it.0);
    if let (Some(scheme), Some(opener)) = (scheme, OPENER.get())
        && BUCKETS.contains(&scheme)
    {
        return opener(url, make);
    }
    // What stands before an `@` may be a secret.
    let shown = match scheme {
        Some(scheme) => format!("{scheme}://..."),
        None => url.to_owned(),
    };
    let buckets = BUCKETS.join("://, ");
    let what = format!(
        "'{shown}' names no store that this refdb can use; it can use file:///path, and {buckets}:// by the program \
         refdb-remote"
    );
    Err(Error::new(ErrorKind::Unsupported, what))
}
