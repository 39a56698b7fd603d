//! Feeds every codec for five seconds; the seed is printed. The long tests feed each for ten minutes.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

/// Runs the program; its output is part of the test's.
fn fuzz(arguments: &[&str]) -> bool {
    Command::new(env!("CARGO_BIN_EXE_fuzz")).args(arguments).status().unwrap().success()
}

#[test]
fn no_input_breaks_a_codec_or_makes_memory_grow() {
    assert!(fuzz(&["--seconds", "5"]));
}

#[test]
fn an_input_can_be_repeated() {
    let request = ["--input", "0001782e65666900006f6374657400"];
    assert!(fuzz(&[&["--only", "dhcp,tftp,syslog,imds,ial"], &request[..]].concat()));
    assert!(!fuzz(&["--only", "dhcp", "--input", "0"]));
}
