//! Tells the program which compiler built it, for the record of what its figures were measured with.

use std::env;
use std::process::Command;

fn main() {
    let compiler = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(compiler).arg("--version").output();
    let version = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    println!("cargo:rustc-env=ANYQUEUE_BENCH_RUST={}", version.trim());
    println!("cargo:rerun-if-changed=build.rs");
}
