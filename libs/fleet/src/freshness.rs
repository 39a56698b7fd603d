//! The age of what the feeds reported.

use std::time::Instant;

/// One of the feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    /// Hardware records.
    Hardware,
    /// Instances.
    Instance,
    /// Workflows.
    Workflow,
    /// Leases of addresses.
    Lease,
}

impl FeedKind {
    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Instance => "instance",
            Self::Workflow => "workflow",
            Self::Lease => "lease",
        }
    }
}

/// The age of what one feed, or several, reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Nobody follows the feed.
    Unused,
    /// The feed has not yet reported everything.
    NeverSynced,
    /// The feed is connected.
    Live,
    /// The feed was live last at this time.
    StaleSince(Instant),
}

/// The freshness of each feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedStates([Freshness; 4]);

impl Default for FeedStates {
    /// Nothing is synced, and leases are not followed.
    fn default() -> Self {
        let never = Freshness::NeverSynced;
        Self([never, never, never, Freshness::Unused])
    }
}

impl FeedStates {
    /// Returns the freshness of `feed`.
    pub fn get(&self, feed: FeedKind) -> Freshness {
        self.0[feed as usize]
    }

    /// Sets the freshness of `feed`.
    pub fn set(&mut self, feed: FeedKind, freshness: Freshness) {
        self.0[feed as usize] = freshness;
    }

    /// Records that `feed` was disconnected at `now`. One that is not live stays as it is.
    pub fn disconnect(&mut self, feed: FeedKind, now: Instant) {
        if self.get(feed) == Freshness::Live {
            self.set(feed, Freshness::StaleSince(now));
        }
    }

    /// Returns the freshness of what `feeds` report together: that of the oldest.
    pub fn combined(&self, feeds: &[FeedKind]) -> Freshness {
        let all = || feeds.iter().map(|feed| self.get(*feed));
        let stale = |freshness| match freshness {
            Freshness::StaleSince(when) => Some(when),
            Freshness::Unused | Freshness::NeverSynced | Freshness::Live => None,
        };
        if all().any(|freshness| freshness == Freshness::NeverSynced) {
            return Freshness::NeverSynced;
        }
        all().filter_map(stale).min().map_or(Freshness::Live, Freshness::StaleSince)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOTH: [FeedKind; 2] = [FeedKind::Hardware, FeedKind::Instance];

    #[test]
    fn two_feeds_are_as_old_as_the_one_that_was_disconnected_first() {
        let (mut feeds, now) = (FeedStates::default(), Instant::now());
        feeds.set(FeedKind::Hardware, Freshness::Live);
        assert_eq!(feeds.combined(&BOTH), Freshness::NeverSynced);
        feeds.set(FeedKind::Instance, Freshness::Live);
        assert_eq!(feeds.combined(&BOTH), Freshness::Live);
        feeds.disconnect(FeedKind::Instance, now);
        feeds.disconnect(FeedKind::Hardware, now + Duration::from_secs(1));
        feeds.disconnect(FeedKind::Instance, now + Duration::from_secs(2));
        assert_eq!(feeds.combined(&BOTH), Freshness::StaleSince(now));
    }

    #[test]
    fn a_feed_that_never_synced_does_not_become_stale() {
        let mut feeds = FeedStates::default();
        feeds.disconnect(FeedKind::Hardware, Instant::now());
        assert_eq!(feeds.get(FeedKind::Hardware), Freshness::NeverSynced);
    }
}
