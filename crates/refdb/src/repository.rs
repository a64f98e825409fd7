//! Opening a repository as Git does.
