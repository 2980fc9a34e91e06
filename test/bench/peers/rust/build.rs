//! The versions that `describe` prints: awa's from the lock file, the compiler's from itself.
use std::process::Command;

fn main() {
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo.lock");
    let awa =
        lock.split("[[package]]").find(|package| package.contains("\nname = \"awa\"\n")).expect("awa in Cargo.lock");
    let version = awa.lines().find_map(|line| line.strip_prefix("version = ")).expect("awa's version");
    println!("cargo:rustc-env=AWA_VERSION={}", version.trim_matches('"'));
    let rustc = std::env::var("RUSTC").expect("cargo sets RUSTC");
    let said = Command::new(rustc).arg("--version").output().expect("rustc --version");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    println!("cargo:rustc-env=RUSTC_VERSION={}", said.split(' ').nth(1).expect("rustc's version"));
    println!("cargo:rerun-if-changed=Cargo.lock");
}
