//! A rack that is powered on at once, against the real server.
#![allow(clippy::unwrap_used, missing_docs)]

use load::fleet;
use load::power_on::{AGAIN, SCRIPT, power_on};
use load::site::{Settings, Site};

/// Five racks of forty.
const MACHINES: usize = 200;

#[test]
fn every_machine_of_a_rack_that_is_powered_on_at_once_gets_its_script() {
    assert!(rustix::process::geteuid().is_root(), "this makes network namespaces: run it as root");
    let mut site = Site::new(Settings::usual(setup::program("tinwright"))).unwrap();
    site.start().unwrap();
    fleet::create(&site, 0..MACHINES).unwrap();
    let outcome = power_on(&site, MACHINES).unwrap();
    assert_eq!((outcome.failed.as_slice(), outcome.booted.len()), (&[][..], MACHINES));
    assert!(outcome.last_script() <= SCRIPT, "the last after {:?}", outcome.last_script());
    assert!(outcome.most_again() <= AGAIN, "{} times again", outcome.most_again());
    assert!(outcome.peak <= outcome.bound(), "{:?} after {:?}", outcome.peak, outcome.before);
}
