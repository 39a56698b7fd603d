//! Sets the machine's clock. Certificates cannot be verified if the clock is wrong.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

/// Returns the time to set, if the clock is behind the time in the boot script. The clock is never set back: a clock that is
/// ahead may be right, and the script old.
pub fn correction(now: SystemTime, boot_time: Option<SystemTime>) -> Option<SystemTime> {
    boot_time.filter(|boot_time| now < *boot_time)
}

/// Sets the machine's clock. Needs CAP_SYS_TIME.
pub fn set(time: SystemTime) -> io::Result<()> {
    let since = time.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(since))?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_clock_that_is_behind_is_set_to_the_servers() {
        assert_eq!(correction(at(12), Some(at(1_800_000_000))), Some(at(1_800_000_000)));
    }

    #[test]
    fn a_clock_that_is_right_or_ahead_is_not_set() {
        for now in [1_800_000_000, 1_800_000_001, 4_000_000_000] {
            assert_eq!(correction(at(now), Some(at(1_800_000_000))), None, "{now}");
        }
    }

    #[test]
    fn without_a_boot_time_the_clock_is_not_set() {
        assert_eq!(correction(at(0), None), None);
    }
}
