//! Git's reftable format: bytes to records and back.
