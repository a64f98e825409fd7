//! refdb measured side by side with Git.
fn main() {}
