//! libgit2's own refs are made by this function: calls of it go to refdb.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,--wrap=git_refdb_backend_fs");
}
