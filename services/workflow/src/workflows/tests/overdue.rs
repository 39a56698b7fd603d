//! Workflows that stay in a state for too long.

use store::overdue::describe;
use store::overdue::testing::{alarms, is_on_page, overdue, while_following};
use tinwright::Bounded as _;

use super::*;

#[tokio::test]
async fn each_bounded_state_is_an_alarm_after_its_limit_until_it_is_left() {
    use pb::WorkflowState::{Pending, Post, Preparing, Running, Success};
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "workflow");
    let workflows = Workflows::new(store, clock.clone());
    let test = async {
        let limits = [(Preparing, "1 h"), (Pending, "24 h"), (Running, "24 h"), (Post, "1 h")];
        for (letter, (state, last)) in ('a'..).zip(limits) {
            assert!(is_on_page("workflow", &state.word(), last), "{last}");
            let created = record(letter, HardwareId::new());
            let create_time = Some(clock.wall().into());
            let created = pb::Workflow { create_time, state: Running.into(), ..created };
            let created = workflows.create(&created, None).await.unwrap();
            clock.advance(Duration::from_secs(60));
            let begun = workflows.edit(id(letter), |it| it.set_state(state)).await.unwrap();
            assert_eq!(begun.state_time.is_some(), state != Running);
            let since = begun.state_time().unwrap();
            let allowed = begun.max_stay().unwrap();
            assert_eq!(describe(allowed), last);
            let rest = (since + allowed).duration_since(clock.wall()).unwrap();
            clock.advance(rest - Duration::from_secs(1));
            assert!(!workflows.get(id(letter)).await.unwrap().overdue);
            clock.advance(Duration::from_secs(1));
            let late = overdue(&workflows.records, &created.id).await.unwrap().unwrap();
            let reason = format!("{} for more than {last}", state.word());
            assert_eq!(late.state_reason, reason);
            assert_eq!(alarms(&workflows.records, &created.id).await.unwrap(), [reason]);
            let moved = workflows.edit(id(letter), |it| it.set_state(Success)).await.unwrap();
            assert!(!moved.overdue && moved.state_time == Some(clock.wall().into()), "{moved:?}");
        }
    };
    Box::pin(while_following(
        &workflows.records,
        || clock.wall(),
        |time| clock.sleep_until(time),
        test,
    ))
    .await;
}
