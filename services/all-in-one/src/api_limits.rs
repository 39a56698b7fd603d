//! The limits on connections to the API, which are described in `docs/reference/access.md`.

use std::time::Duration;

use runtime::serve::{AnonymousLimits, ConnectionLimits};

const MAX_CONNECTIONS: usize = 16_384;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 4096;
const MAX_ANONYMOUS_CONNECTIONS: usize = 1024;
const MAX_ANONYMOUS_CONNECTIONS_PER_ADDRESS: usize = 64;
const MAX_ANONYMOUS_CALLS_PER_CONNECTION: u32 = 8;
/// A worker without a certificate makes one call.
const ANONYMOUS_LIFETIME: Duration = Duration::from_secs(60);

/// Returns the limits of a process that may have `open_files`; none is unlimited. Other ports, the store and downloads need half.
pub(crate) fn connections(open_files: Option<u64>) -> ConnectionLimits {
    let half = open_files.and_then(|limit| usize::try_from(limit / 2).ok());
    let total = half.map_or(MAX_CONNECTIONS, |half| half.min(MAX_CONNECTIONS));
    ConnectionLimits {
        total,
        per_address: MAX_CONNECTIONS_PER_ADDRESS,
        anonymous: Some(AnonymousLimits {
            total: MAX_ANONYMOUS_CONNECTIONS.min(total / 2),
            per_address: MAX_ANONYMOUS_CONNECTIONS_PER_ADDRESS,
            max_concurrent_streams: MAX_ANONYMOUS_CALLS_PER_CONNECTION,
            lifetime: ANONYMOUS_LIFETIME,
        }),
        ..ConnectionLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_open_files_are_connections_and_half_of_those_have_no_role() {
        let limits = |open_files| {
            let limits = connections(open_files);
            (limits.total, limits.anonymous.map(|anonymous| anonymous.total))
        };
        assert_eq!(limits(Some(1024)), (512, Some(256)));
        assert_eq!(limits(Some(20_000)), (10_000, Some(1024)));
        assert_eq!(limits(Some(u64::MAX)), (16_384, Some(1024)));
        assert_eq!(limits(None), (16_384, Some(1024)));
    }
}
