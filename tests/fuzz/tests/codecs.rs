//! Every codec, half a minute each, from a seed that is told.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

/// Runs the program, whose words nobody keeps back.
fn fuzz(arguments: &[&str]) -> bool {
    Command::new(env!("CARGO_BIN_EXE_fuzz")).args(arguments).status().unwrap().success()
}

#[test]
fn no_input_breaks_a_codec_or_makes_it_grow() {
    assert!(fuzz(&["--seconds", "30"]));
}

#[test]
fn an_input_can_be_given_again() {
    let request = ["--input", "0001782e65666900006f6374657400"];
    assert!(fuzz(&[&["--only", "dhcp,tftp,syslog,imds"], &request[..]].concat()));
    assert!(!fuzz(&["--only", "dhcp", "--input", "0"]));
}
