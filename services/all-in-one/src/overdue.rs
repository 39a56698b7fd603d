//! Alarms for objects that stay in a state for longer than is normal (`docs/reference/events.md`).

use runtime::Clock;
use runtime::overdue_metric::OverdueMetric;
use runtime::supervise::Tier;
use store::mirror::Mirror;
use store::overdue;
use store::records::Kind;
use tinwright::Bounded;

/// Starts to follow the objects of `mirror`.
pub(crate) fn follow<K: Kind<Record: Bounded>>(
    mirror: &Mirror<K>,
    metric: &OverdueMetric,
    tier: &mut Tier,
) {
    let (mirror, metric, stop) = (mirror.clone(), metric.clone(), tier.stop.clone());
    tier.spawn(async move {
        let clock = Clock::system();
        let sleep_until = |time| {
            let clock = clock.clone();
            async move { clock.sleep_until(time).await }
        };
        let report = |counts: &_| metric.set(K::NOUN, counts);
        overdue::run(mirror, || clock.wall(), sleep_until, report, stop).await;
        Ok(())
    });
}
