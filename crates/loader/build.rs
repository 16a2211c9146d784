//! Links the compiler's unwinding code statically, so that a program needs no shared library but libc.
//!
//! The tools have to start in the smallest container and rescue image, where libgcc_s is as likely to be missing as
//! libibverbs. The standard library asks the linker for `gcc_s`; a linker script of that name, found first, gives it
//! the static halves instead. Where the compiler has none, programs are linked as usual.

use std::path::Path;
use std::process::Command;

/// What the linker reads where it looks for libgcc_s.
const SCRIPT: &str = "GROUP ( -lgcc_eh -lgcc )\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |key: &str| std::env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    // A cross linker is not `cc`, and what it has is not known here.
    let native = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    if target("OS") == "linux" && target("ENV") == "gnu" && native && compiler_has("libgcc_eh.a") {
        let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
        std::fs::write(Path::new(&folder).join("libgcc_s.so"), SCRIPT).expect("OUT_DIR can be written to");
        println!("cargo:rustc-link-search=native={folder}");
    }
}

/// The compiler prints the path of a file that it has, and the bare name of one that it hasn't.
fn compiler_has(file: &str) -> bool {
    let printed = Command::new("cc").arg(format!("-print-file-name={file}")).output();
    printed.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}
