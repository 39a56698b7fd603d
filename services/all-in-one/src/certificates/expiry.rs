//! Warnings of certificates that end soon.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time before the end of a certificate from which on there are warnings.
const NOTICE: Duration = DAY.saturating_mul(30);

/// The warnings of one process: one a day for each certificate.
#[derive(Debug, Default)]
pub(super) struct ExpiryWarnings {
    /// The time of the last warning of each certificate.
    last: BTreeMap<&'static str, SystemTime>,
}

impl ExpiryWarnings {
    /// Logs the warnings that are due at `now` for certificates with these uses and ends.
    pub(super) fn log(&mut self, ends: Vec<(&'static str, SystemTime)>, now: SystemTime) {
        for (certificate, end) in self.due(ends, now) {
            let days = end.duration_since(now).unwrap_or_default().as_secs() / DAY.as_secs();
            let (end, remedy) = (Timestamp::from(end), remedy(certificate));
            tracing::warn!(target: "tinwright", certificate, %end, days, remedy, "certificate ends soon");
        }
    }

    /// Returns the certificates that end within [`NOTICE`], or have ended, and of which there was no warning within a day.
    fn due(
        &mut self,
        ends: Vec<(&'static str, SystemTime)>,
        now: SystemTime,
    ) -> Vec<(&'static str, SystemTime)> {
        let is_soon = |end: SystemTime| end <= now + NOTICE;
        self.last.retain(|certificate, _| {
            ends.iter().any(|(it, end)| it == certificate && is_soon(*end))
        });
        let mut due = ends;
        due.retain(|(certificate, end)| {
            let last = self.last.get(certificate);
            is_soon(*end) && last.is_none_or(|last| now >= *last + DAY)
        });
        self.last.extend(due.iter().map(|(certificate, _)| (*certificate, now)));
        due
    }
}

/// Returns what an operator does about the end of a certificate with this use.
fn remedy(certificate: &str) -> &'static str {
    match certificate {
        "authority" => "tinwright identity rotate ca",
        "gateway" => "replace the files of --gateway-certificate",
        "boot_https" => "replace the files of --boot-https-certificate, and start the server again",
        _ => {
            "copy service.pem and its key from a process with ca-key.pem, or issue the edge, door or builder again"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_within_thirty_days_is_warned_of_once_a_day() {
        let start = SystemTime::UNIX_EPOCH;
        let at = |days: u32| start + DAY * days;
        let mut warnings = ExpiryWarnings::default();
        let mut due = |now| {
            let ends = vec![("authority", at(100)), ("server", at(398))];
            warnings
                .due(ends, now)
                .into_iter()
                .map(|(certificate, _)| certificate)
                .collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(due(at(69)), none);
        assert_eq!(due(at(70)), ["authority"]);
        assert_eq!(due(at(70) + DAY / 2), none);
        assert_eq!(due(at(71)), ["authority"]);
        assert_eq!(due(at(101)), ["authority"], "also after its end");
    }

    #[test]
    fn a_renewed_certificate_is_forgotten() {
        let now = SystemTime::UNIX_EPOCH + DAY;
        let mut warnings = ExpiryWarnings::default();
        let soon = vec![("service", now + DAY)];
        assert_eq!(warnings.due(soon.clone(), now), soon);
        assert!(warnings.due(vec![("service", now + DAY * 398)], now).is_empty());
        assert_eq!(warnings.due(soon.clone(), now), soon);
    }
}
