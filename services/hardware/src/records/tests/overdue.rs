//! Machines that stay in a state for too long.

use std::time::Duration;

use store::overdue::testing::{alarms, is_on_page, overdue, while_following};
use tinwright::Bounded as _;

use super::*;

#[tokio::test]
async fn a_delete_that_takes_too_long_is_an_alarm_until_the_state_changes() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let machines = HardwareRecords::new(Arc::new(MemoryStore::default()), clock.clone());
    let test = async {
        assert!(is_on_page("hardware", "deleting", "10 min"));
        let made = machines.create(machine(1), None).await.unwrap();
        assert_eq!(made.state_time, Some(clock.wall().into()));
        clock.advance(Duration::from_secs(60 * 60));
        let marked = pb::Hardware { state: State::Deleting.into(), ..made.clone() };
        let marked = machines.updated(&made, marked);
        let marked = machines.records.replace(&made, marked).await.unwrap();
        assert_eq!(marked.max_stay(), Some(Duration::from_secs(600)));
        clock.advance(Duration::from_secs(599));
        assert!(!machines.records.require(&made.id).await.unwrap().overdue);
        clock.advance(Duration::from_secs(1));
        let late = overdue(&machines.records, &made.id).await.unwrap().unwrap();
        assert_eq!(late.state_reason, "deleting for more than 10 min");
        let alarm = alarms(&machines.records, &made.id).await.unwrap();
        assert_eq!(alarm, ["deleting for more than 10 min"]);
        machines.remove_mark(&made.id, State::Maintenance, "in use").await.unwrap();
        let back = machines.records.require(&made.id).await.unwrap();
        assert!(!back.overdue && back.state_time == Some(clock.wall().into()), "{back:?}");
    };
    Box::pin(while_following(
        &machines.records,
        || clock.wall(),
        |time| clock.sleep_until(time),
        test,
    ))
    .await;
}
