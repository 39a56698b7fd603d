//! Powers on a rack of simulated machines at once, against the real server. The goals for times and repeated requests are those of
//! `cargo rack load boot`, which has the host to itself.
#![allow(clippy::unwrap_used, missing_docs)]

use load::fleet;
use load::power_on::power_on;
use load::site::{Settings, Site};

/// Five racks of forty.
const MACHINES: usize = 200;
/// Repeated requests of one machine: more than those of a busy host.
const MAX_RETRIES: u32 = 10;

#[test]
fn every_machine_of_a_rack_that_is_powered_on_at_once_gets_its_script() {
    assert!(
        rustix::process::geteuid().is_root(),
        "run this as root: it creates network namespaces"
    );
    let mut site = Site::new(Settings::with_defaults(setup::program("tinwright"))).unwrap();
    site.start().unwrap();
    fleet::create(&site, 0..MACHINES).unwrap();
    let result = power_on(&site, MACHINES).unwrap();
    assert_eq!((result.failed.as_slice(), result.booted.len()), (&[][..], MACHINES));
    assert!(result.max_retries() <= MAX_RETRIES, "{} retries", result.max_retries());
    assert!(result.peak <= result.memory_goal(), "{:?} after {:?}", result.peak, result.before);
}
