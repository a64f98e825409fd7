//! The command on buckets. Without further notice the bucket is a server in this process that speaks as much of
//! S3 as is needed; `scripts/object-stores` names real servers by `REFDB_TEST_SERVICE` (`s3`, `az`) and
//! `REFDB_TEST_SERVER` (`host:port`), between which and the command the same liar stands.

mod commands;
#[path = "../../../../testkit/tests/rigs/hosts/mod.rs"]
mod hosts;
mod hours;
mod liar;
mod lies;
mod networks;
mod receive;
mod secrets;
mod server;
mod wire;

use std::sync::Arc;

use refdb::shared::Shared;

/// Opens the place of the machines of `hosts`.
pub(crate) fn open_place(url: &str) -> Arc<dyn Shared> {
    Arc::new(refdb_remote::open(url).expect("a URL of a bucket"))
}
