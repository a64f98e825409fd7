//! The repository's own object database.
