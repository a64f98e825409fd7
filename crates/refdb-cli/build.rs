//! Links the program that the tests start for a fixed address.
//!
//! They start it some hundred thousand times, and relocating one that is not optimised took a quarter of that: a listing
//! takes 1.3 ms, and took 1.8. What is released is linked by `scripts/build`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "debug")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
