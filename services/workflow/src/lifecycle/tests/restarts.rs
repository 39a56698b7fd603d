//! Who restarted? The specification's table of boot and process ids, line by line.

use super::*;

fn with(after_loss: AfterLoss) -> Workflow {
    workflow(vec![Step { after_loss, ..step("one") }, step("two")])
}

fn leaving() -> Workflow {
    two_steps().does(ask("b1", "p1", None, "l1"), 10).does(leave("l1"), 10)
}

#[test]
fn the_same_process_goes_on_with_what_it_runs() {
    let asked = two_steps().started().does(ask("b1", "p1", None, "l2"), 50);
    assert_eq!(
        asked.lease().map(|lease| (lease.id.clone(), lease.expires)),
        Some(("l1".into(), at(140)))
    );
}

#[test]
fn a_restarted_worker_that_still_runs_the_action_goes_on_with_it() {
    let attached = two_steps().started().does(ask("b1", "p2", Some("l1"), "l2"), 20);
    let lease = attached.lease().unwrap();
    assert_eq!((lease.id.clone(), lease.holder.clone()), ("l1".into(), holder("b1", "p2")));
}

#[test]
fn a_held_call_of_a_boot_that_is_over_takes_nothing_from_the_next() {
    let started = with(AfterLoss::Fail).does(ask("b2", "p2", None, "l1"), 10);
    let waiting =
        Event::Waiting { machine: "m".into(), holder: holder("b1", "p1"), offer: "l2".into() };
    assert_eq!(started.clone().does(waiting.clone(), 20), started);
    let running = started.does(start("l1"), 10);
    assert_eq!(running.clone().does(waiting, 20), running);
}

#[test]
fn a_held_call_is_given_what_comes_up() {
    let idle = two_steps();
    let waiting =
        Event::Waiting { machine: "m".into(), holder: holder("b1", "p1"), offer: "l2".into() };
    assert!(idle.does(waiting, 20).assigned(&holder("b1", "p1")).is_some());
}

#[test]
fn a_restarted_worker_may_report_what_its_journal_has() {
    let done = two_steps().started().does(report("l1", End::Success), 20);
    assert!(done.does(ask("b1", "p2", None, "l2"), 21).assigned(&holder("b1", "p2")).is_some());
}

#[test]
fn an_action_lost_by_a_restarted_worker_fails_unless_it_may_run_twice() {
    let lost = with(AfterLoss::Fail).started().does(ask("b1", "p2", None, "l2"), 20);
    let reason = r#"action "one": lost: its worker restarted"#.to_owned();
    assert_eq!(lost.outcome(), Some(&Outcome::Failed { reason }));
    let lost = with(AfterLoss::Retry).started().does(ask("b1", "p2", None, "l2"), 20);
    assert_eq!(lost.actions[0].state, Try::Pending { not_before: Some(at(21)) });
}

#[test]
fn an_unexpected_reboot_loses_the_action_and_the_workflow_goes_on_there() {
    let lost = with(AfterLoss::Retry).started().does(ask("b2", "p2", None, "l2"), 20);
    let again = lost.does(ask("b2", "p2", None, "l2"), 21);
    assert_eq!(
        again.lease().map(|lease| (lease.id.clone(), lease.attempt)),
        Some(("l2".into(), 2))
    );
    let lost = with(AfterLoss::Fail).started().does(ask("b2", "p2", None, "l2"), 20);
    assert_eq!(lost.state.name(), "post");
}

#[test]
fn a_worker_of_the_boot_before_cannot_report_any_more() {
    let lost = with(AfterLoss::Retry).started().does(ask("b2", "p2", None, "l2"), 20);
    assert_eq!(
        lost.after(report("l1", End::Success), at(21)),
        Err(Refused::Superseded("l1".into()))
    );
}

#[test]
fn an_action_is_not_lost_for_ever() {
    let mut workflow = with(AfterLoss::Retry);
    for round in 0..u64::from(action::LOSSES) {
        let (boot, lease) = (format!("b{round}"), format!("l{round}"));
        workflow = workflow
            .does(ask(&boot, "p", None, &lease), round * 60 + 30)
            .does(start(&lease), round * 60 + 30);
        workflow = workflow.does(ask(&format!("b{}", round + 1), "p", None, "x"), round * 60 + 31);
    }
    assert_eq!(workflow.state.name(), "post");
}

#[test]
fn an_expected_reboot_is_its_actions_success_and_the_next_one_is_given() {
    let next = leaving().does(ask("b2", "p2", None, "l2"), 60);
    assert_eq!(next.actions[0].end(), Some(&End::Success));
    assert_eq!(next.lease().map(|lease| lease.id.clone()), Some("l2".into()));
}

#[test]
fn an_action_known_to_reboot_succeeds_by_a_new_boot_though_it_did_not_say_so() {
    let next = with(AfterLoss::ExpectBoot).started().does(ask("b2", "p2", None, "l2"), 60);
    assert_eq!(next.actions[0].end(), Some(&End::Success));
    let lost = with(AfterLoss::ExpectBoot).started().does(ask("b1", "p2", None, "l2"), 60);
    assert_eq!(lost.state.name(), "post");
}

#[test]
fn firmware_or_a_phone_home_is_a_sign_of_the_new_boot() {
    let next = leaving().does(Event::Booted("m".into()), 60);
    assert_eq!(next.actions[0].end(), Some(&End::Success));
}

#[test]
fn a_sign_of_another_machine_or_before_the_action_leaves_is_none() {
    let away = leaving();
    assert_eq!(away.clone().does(Event::Booted("n".into()), 60), away);
    let running = two_steps().started();
    assert_eq!(running.clone().does(Event::Booted("m".into()), 60), running);
}

#[test]
fn the_old_boot_asking_again_is_a_failure() {
    for process in ["p1", "p2"] {
        let stayed = leaving().does(ask("b1", process, None, "l2"), 60);
        let reason = r#"action "one": the machine did not leave its boot"#.to_owned();
        assert_eq!(stayed.outcome(), Some(&Outcome::Failed { reason }));
    }
}

#[test]
fn an_action_may_run_a_while_before_it_leaves() {
    let leaving = two_steps().started().does(leave("l1"), 30);
    assert!(matches!(leaving.actions[0].state, Try::Running { since, terminal: Some(left), .. }
        if since == at(10) && left == at(30)));
}
