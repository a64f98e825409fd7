//! The command `refdb`.
fn main() {}
