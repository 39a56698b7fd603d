//! Freshness of the feeds: never synced, live, or stale since some time.

use std::time::{Duration, Instant, SystemTime};

use runtime::feed::FeedEvent;

/// The maximum age of a feed. Also used if the age is unknown because the wall clock was set back.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// One of the feeds. It converts into its name in logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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

/// The freshness of the records of one feed or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The feed is not followed.
    Unused,
    /// The feed has not yet reported all its records.
    NeverSynced,
    /// The feed is connected.
    Live,
    /// The feed was last live at this time.
    StaleSince(Instant),
}

/// The freshness of each feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedStates([Freshness; 4]);

impl Default for FeedStates {
    /// No feed is synced, and leases are not followed.
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

    /// Returns the freshness of `feed` after `event` at `now`. After a snapshot it is `synced`.
    pub fn after<T>(
        &self,
        feed: FeedKind,
        event: &FeedEvent<T>,
        synced: Freshness,
        now: Instant,
    ) -> Freshness {
        match (event, self.get(feed)) {
            (FeedEvent::Snapshot(_), _) => synced,
            (FeedEvent::Disconnected, Freshness::Live) => Freshness::StaleSince(now),
            (FeedEvent::Disconnected | FeedEvent::Put(_) | FeedEvent::Deleted(_), same) => same,
        }
    }

    /// Returns the freshness of several feeds together: that of the least fresh one. A feed that never synced is less fresh than
    /// an unused one, and that is less fresh than a stale one.
    pub fn combined(&self, feeds: &[FeedKind]) -> Freshness {
        let all = || feeds.iter().map(|feed| self.get(*feed));
        let stale = |freshness| match freshness {
            Freshness::StaleSince(when) => Some(when),
            Freshness::Unused | Freshness::NeverSynced | Freshness::Live => None,
        };
        let is_any = |one: &Freshness| all().any(|freshness| freshness == *one);
        if let Some(least) = [Freshness::NeverSynced, Freshness::Unused].into_iter().find(is_any) {
            return least;
        }
        all().filter_map(stale).min().map_or(Freshness::Live, Freshness::StaleSince)
    }
}

/// Converts `last_live` to a time of the monotonic clock. `now` and `monotonic` are the present time on both clocks.
pub(crate) fn stale_since(last_live: SystemTime, now: SystemTime, monotonic: Instant) -> Instant {
    let age = now.duration_since(last_live).unwrap_or(MAX_AGE).min(MAX_AGE);
    monotonic.checked_sub(age).unwrap_or(monotonic)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const BOTH: [FeedKind; 2] = [FeedKind::Hardware, FeedKind::Instance];

    fn disconnect(feeds: &mut FeedStates, feed: FeedKind, now: Instant) {
        let event = FeedEvent::<()>::Disconnected;
        feeds.set(feed, feeds.after(feed, &event, Freshness::Live, now));
    }

    #[test]
    fn two_feeds_are_as_old_as_the_one_that_was_disconnected_first() {
        let (mut feeds, now) = (FeedStates::default(), Instant::now());
        feeds.set(FeedKind::Hardware, Freshness::Live);
        assert_eq!(feeds.combined(&BOTH), Freshness::NeverSynced);
        feeds.set(FeedKind::Instance, Freshness::Live);
        assert_eq!(feeds.combined(&BOTH), Freshness::Live);
        for (feed, seconds) in
            [(FeedKind::Instance, 0), (FeedKind::Hardware, 1), (FeedKind::Instance, 2)]
        {
            disconnect(&mut feeds, feed, now + Duration::from_secs(seconds));
        }
        assert_eq!(feeds.combined(&BOTH), Freshness::StaleSince(now));
    }

    #[test]
    fn feeds_of_which_one_is_unused_are_never_live() {
        let mut feeds = FeedStates::default();
        let all = [FeedKind::Hardware, FeedKind::Lease];
        assert_eq!(feeds.combined(&all), Freshness::NeverSynced);
        feeds.set(FeedKind::Hardware, Freshness::Live);
        assert_eq!(feeds.combined(&all), Freshness::Unused);
        disconnect(&mut feeds, FeedKind::Hardware, Instant::now());
        assert_eq!(feeds.combined(&all), Freshness::Unused);
        feeds.set(FeedKind::Hardware, Freshness::Live);
        feeds.set(FeedKind::Lease, Freshness::Live);
        assert_eq!(feeds.combined(&all), Freshness::Live);
    }

    #[test]
    fn a_feed_that_never_synced_does_not_become_stale() {
        let mut feeds = FeedStates::default();
        disconnect(&mut feeds, FeedKind::Hardware, Instant::now());
        assert_eq!(feeds.get(FeedKind::Hardware), Freshness::NeverSynced);
    }

    #[test]
    fn the_age_of_a_feed_survives_a_restart_and_is_the_maximum_if_the_clock_was_set_back() {
        let (now, monotonic) = (UNIX_EPOCH + Duration::from_secs(1_000_000), Instant::now());
        let age = |last_live: u64| {
            let last_live = UNIX_EPOCH + Duration::from_secs(last_live);
            monotonic.duration_since(stale_since(last_live, now, monotonic))
        };
        assert_eq!(age(999_400), Duration::from_secs(600));
        assert_eq!(age(1), MAX_AGE);
        assert_eq!(age(1_000_001), MAX_AGE);
    }
}
