//! The limits on connections to the API, which are described in `docs/reference/access.md`.

use std::time::Duration;

use runtime::serve::{AnonymousLimits, ConnectionLimits};

const MAX_CONNECTIONS: usize = 16_384;
const MAX_CONNECTIONS_PER_SOURCE: usize = 4096;
/// Prefix length of an IPv6 network that counts as one source: one client may have all of it.
const IPV6_PREFIX_LENGTH: u8 = 64;
const MAX_ANONYMOUS_CONNECTIONS: usize = 1024;
const MAX_ANONYMOUS_CONNECTIONS_PER_SOURCE: usize = 64;
const MAX_ANONYMOUS_CALLS_PER_CONNECTION: u32 = 8;
/// Maximum number of bytes of requests that are buffered for a connection: HTTP/2's smallest value.
const ANONYMOUS_WINDOW_BYTES: u32 = 65_535;
/// A worker without a certificate makes one call.
const ANONYMOUS_LIFETIME: Duration = Duration::from_secs(60);

/// Returns the limits of a process that may have `open_files`; none is unlimited. Other ports, the store and downloads need half.
pub(crate) fn connections(open_files: Option<u64>) -> ConnectionLimits {
    let half = open_files.and_then(|limit| usize::try_from(limit / 2).ok());
    let total = half.map_or(MAX_CONNECTIONS, |half| half.min(MAX_CONNECTIONS));
    let anonymous = MAX_ANONYMOUS_CONNECTIONS.min(total / 2);
    ConnectionLimits {
        total,
        per_source: MAX_CONNECTIONS_PER_SOURCE,
        ipv6_prefix_length: IPV6_PREFIX_LENGTH,
        anonymous: Some(AnonymousLimits {
            total: anonymous,
            per_source: MAX_ANONYMOUS_CONNECTIONS_PER_SOURCE.min(anonymous / 2),
            max_concurrent_streams: MAX_ANONYMOUS_CALLS_PER_CONNECTION,
            window_bytes: ANONYMOUS_WINDOW_BYTES,
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

    #[test]
    fn one_source_has_at_most_half_of_the_connections_without_a_role() {
        let limits = |open_files| connections(open_files).anonymous.map(|limits| limits.per_source);
        assert_eq!(limits(Some(256)), Some(32));
        assert_eq!(limits(None), Some(64));
    }
}
