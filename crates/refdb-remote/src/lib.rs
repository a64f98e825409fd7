//! Buckets as places for refs: S3 and what speaks like it, Azure, Google Cloud Storage.
//!
//! | URL | credentials and options |
//! |---|---|
//! | `s3://bucket/prefix?endpoint=https://host&region=name` | `AWS_*` |
//! | `az://container/prefix` | `AZURE_*` |
//! | `gs://bucket/prefix` | `GOOGLE_*` |
//!
//! What a URL can say is no secret, and secrets are read from the environment alone: no message shows one.
//!
//! ```
//! use refdb::shared::Shared;
//!
//! let place = refdb_remote::open("s3://refs/project?endpoint=http://127.0.0.1:7070")?;
//! assert_eq!(place.name(), "s3://refs/project?endpoint=http://127.0.0.1:7070");
//! assert!(refdb_remote::open("s3://key:secret@refs/project").is_err());
//! # Ok::<(), refdb::Error>(())
//! ```

mod bucket;
mod google;
mod http_client;
mod outcome;
mod place;
mod secrets;

use std::sync::Arc;

use refdb::Result;
use refdb::shared::Shared;

pub use bucket::Bucket;
pub use http_client::Counts;

/// Opens a bucket. Nothing is asked of it yet.
///
/// # Errors
/// `Misuse` for a URL that names none; `Config` where the environment does not say how to get at it.
pub fn open(url: &str) -> Result<Bucket> {
    Bucket::open(url)
}

/// Has [`refdb_git::places::open_url`] open buckets from now on.
pub fn install() {
    refdb_git::places::set_opener(|url, _| Ok(Arc::new(open(url)?) as Arc<dyn Shared>));
}
