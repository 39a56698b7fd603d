//! Instances that stay in a state for too long.

use std::time::Duration;

use store::overdue::describe;
use store::overdue::testing::{alarms, is_on_page, overdue, while_following};
use tinwright::Bounded as _;

use super::*;

#[tokio::test]
async fn each_bounded_state_is_an_alarm_after_its_limit_until_it_is_left() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let instances = Instances::new(Arc::new(MemoryStore::default()), clock.clone());
    let test = async {
        for (state, last, next) in [
            (State::Queued, "1 h", State::Provisioning),
            (State::Provisioning, "3 h", State::Active),
            (State::Deprovisioning, "24 h", State::DeprovisionFailed),
        ] {
            assert!(is_on_page("instance", &state.to_string(), last), "{state} {last}");
            let hardware_id = HardwareId::new().to_string();
            let requested = pb::Instance { hardware_id, ..pb::Instance::default() };
            let mut begun = instances.create(requested, None).await;
            if state != State::Queued {
                let old = begun.unwrap();
                let mut new = old.clone();
                state.write(&mut new);
                begun = instances.put(&old, new).await;
            }
            let begun = begun.unwrap();
            assert_eq!(begun.state_time, Some(clock.wall().into()));
            let allowed = begun.max_stay().unwrap();
            assert_eq!(describe(allowed), last);
            clock.advance(allowed - Duration::from_secs(1));
            assert!(!instances.records.require(&begun.id).await.unwrap().overdue);
            clock.advance(Duration::from_secs(1));
            let late = overdue(&instances.records, &begun.id).await.unwrap().unwrap();
            let reason = format!("{state} for more than {last}");
            assert_eq!(late.state_reason, reason);
            assert_eq!(alarms(&instances.records, &begun.id).await.unwrap(), [reason]);
            let mut moved = late.clone();
            next.write(&mut moved);
            let moved = instances.put(&late, moved).await.unwrap();
            assert!(!moved.overdue && moved.state_time == Some(clock.wall().into()), "{moved:?}");
            // Nothing else becomes due meanwhile.
            instances.records.commit(instances.records.to_delete(&moved)).await.unwrap();
        }
    };
    Box::pin(while_following(
        &instances.records,
        || clock.wall(),
        |time| clock.sleep_until(time),
        test,
    ))
    .await;
}
