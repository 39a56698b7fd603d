//! Links the release program smaller.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).as_deref() == Ok(value);
    // Rust brings the linker lld for this target.
    let has_lld = is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if has_lld && is("PROFILE", "release") {
        // Equal functions are linked once: thousands of generic ones are equal after compilation.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo::rustc-link-arg-bins=-Wl,--pack-dyn-relocs=relr");
    }
}
