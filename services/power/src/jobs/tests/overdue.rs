//! Power jobs that stay in a state for too long.

use std::time::Duration;

use store::overdue::describe;
use store::overdue::testing::{alarms, is_on_page, overdue, while_following};
use tinwright::Bounded as _;

use super::*;

#[tokio::test]
async fn each_bounded_state_is_an_alarm_after_its_limit_until_it_is_left() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let store = Arc::new(FlakyStore::default());
    let jobs = jobs_with("a", &store, clock.clone());
    let hardware = HardwareId::new();
    let bmc = pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(redfish("https://192.0.2.1")),
        ..pb::Bmc::default()
    };
    jobs.bmcs.create(bmc, Login::Skip, None).await.unwrap();
    let test = async {
        let job = jobs.create(new_job(hardware), None).await.unwrap();
        let events = [Event::Begin, Event::Fail("no".into())];
        let reasons =
            ["pending for more than 2 h: waiting in the queue", "running for more than 1 h"];
        for ((last, reason), event) in ["2 h", "1 h"].into_iter().zip(reasons).zip(events) {
            let begun = jobs.records.require(&job.id).await.unwrap();
            assert!(is_on_page("power job", &begun.state().word(), last), "{last}");
            let allowed = begun.max_stay().unwrap();
            assert_eq!(describe(allowed), last);
            clock.advance(allowed - Duration::from_secs(1));
            assert!(!jobs.records.require(&job.id).await.unwrap().overdue);
            clock.advance(Duration::from_secs(1));
            assert_eq!(
                overdue(&jobs.records, &job.id).await.unwrap().unwrap().state_reason,
                reason
            );
            assert_eq!(alarms(&jobs.records, &job.id).await.unwrap().last().unwrap(), reason);
            let head = head_of(&jobs, hardware).await.unwrap();
            let moved = jobs.record(&head, event, None).await.unwrap().job;
            assert!(!moved.overdue, "{moved:?}");
        }
    };
    Box::pin(while_following(&jobs.records, || clock.wall(), |time| clock.sleep_until(time), test))
        .await;
}
