//! The command on buckets. Without further notice the bucket is a server in this process that speaks as much of
//! S3 as is needed; `scripts/object-stores` names real servers by `REFDB_TEST_SERVICE` (`s3`, `az`) and
//! `REFDB_TEST_SERVER` (`host:port`), between which and the command the same liar stands.

mod commands;
mod liar;
mod lies;
mod secrets;
mod server;
mod wire;
