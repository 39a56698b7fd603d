//! Who waits for whom.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn summary(id: &str, created: u64, machines: &str, standing: Standing) -> Summary {
    Summary {
        id: id.into(),
        created: SystemTime::UNIX_EPOCH + Duration::from_secs(created),
        machines: machines.split(' ').map(HardwareId::from).collect(),
        disabled: false,
        standing,
    }
}

fn waiting(id: &str, created: u64, machines: &str) -> Summary {
    summary(id, created, machines, Standing::Waiting)
}

fn behind(blocker: &str, ahead: usize) -> Turn {
    Turn::Behind { blocker: blocker.into(), ahead }
}

/// What [`turn`] says of each, in order.
fn turns(all: &[Summary]) -> Vec<Turn> {
    all.iter().map(|this| turn(this, all)).collect()
}

#[test]
fn the_oldest_on_a_machine_comes_first() {
    let all = [
        waiting("w2", 2, "a"),
        waiting("w1", 1, "a"),
        waiting("w3", 2, "a"),
        waiting("w4", 9, "b"),
    ];
    assert_eq!(turns(&all), [behind("w1", 1), Turn::Now, behind("w1", 2), Turn::Now]);
}

#[test]
fn an_active_one_blocks_and_is_the_one_named() {
    let all =
        [waiting("w1", 1, "a"), waiting("w2", 2, "a"), summary("w9", 9, "a", Standing::Active)];
    assert_eq!(turns(&all), [behind("w9", 1), behind("w9", 2), Turn::Holding]);
}

#[test]
fn one_on_several_machines_waits_until_it_is_first_on_all() {
    let mut all = [waiting("w1", 1, "b"), waiting("w2", 2, "a b"), waiting("w3", 3, "a")];
    assert_eq!(turns(&all), [Turn::Now, behind("w1", 1), behind("w2", 1)]);
    all[0].standing = Standing::Over;
    assert_eq!(turns(&all), [Turn::Over, Turn::Now, behind("w2", 1)]);
}

#[test]
fn a_disabled_one_keeps_nobody_waiting_unless_it_is_active() {
    let mut all = [waiting("w1", 1, "a"), waiting("w2", 2, "a")];
    all[0].disabled = true;
    assert_eq!(turns(&all), [Turn::Disabled, Turn::Now]);
    all[0].standing = Standing::Active;
    assert_eq!(turns(&all), [Turn::Holding, behind("w1", 1)]);
}

fn any_summary() -> impl Strategy<Value = Summary> {
    let standing = prop::sample::select(vec![
        Standing::Waiting,
        Standing::Waiting,
        Standing::Active,
        Standing::Over,
    ]);
    let machines = prop::sample::select(vec!["a", "b", "c", "a b", "b c", "a b c"]);
    (0_u64..4, machines, any::<bool>(), standing).prop_map(
        |(created, machines, disabled, standing)| Summary {
            disabled,
            ..summary("", created, machines, standing)
        },
    )
}

fn any_queue() -> impl Strategy<Value = Vec<Summary>> {
    prop::collection::vec(any_summary(), 0..10).prop_map(|mut all| {
        for (number, summary) in all.iter_mut().enumerate() {
            summary.id = WorkflowId(format!("w{number}"));
        }
        all
    })
}

proptest! {
    #[test]
    fn no_two_on_one_machine_may_begin_together(all in any_queue()) {
        let begin: Vec<_> = all.iter().filter(|it| turn(it, &all) == Turn::Now).collect();
        let active: Vec<_> = all.iter().filter(|it| it.standing == Standing::Active).collect();
        for (place, one) in begin.iter().enumerate() {
            for other in begin.iter().skip(place + 1).chain(&active) {
                prop_assert!(one.machines.is_disjoint(&other.machines), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn where_nobody_is_active_somebody_may_begin(mut all in any_queue()) {
        all.retain(|it| it.standing != Standing::Active);
        let wishes = all.iter().any(|it| it.standing == Standing::Waiting && !it.disabled);
        prop_assert_eq!(wishes, all.iter().any(|it| turn(it, &all) == Turn::Now));
    }

    #[test]
    fn who_is_named_is_there_and_shares_a_machine(all in any_queue()) {
        for this in &all {
            let Turn::Behind { blocker, ahead } = turn(this, &all) else { continue };
            let blocker = all.iter().find(|it| it.id == blocker).unwrap();
            prop_assert!(blocker.id != this.id && blocker.standing != Standing::Over);
            prop_assert!(!blocker.machines.is_disjoint(&this.machines) && (1..all.len()).contains(&ahead));
        }
    }
}
