//! The reference database of a Git repository.
