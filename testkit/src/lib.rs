//! Test kit of refdb.
