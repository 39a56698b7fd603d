//! The reserved bytes compared with records that have everything.

use prost_types::Timestamp;

use super::*;
use crate::record::attempts::{MAX_HISTORY, MAX_LATE_REASON_BYTES};
use crate::unexpected_boots::MAX_REBOOTS;

const TIME: Option<Timestamp> = Some(Timestamp { seconds: 253_402_300_799, nanos: 999_999_999 });

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// The longest lease. Its id is assigned by the server.
fn lease() -> pb::Lease {
    pb::Lease {
        id: uuid::Uuid::nil().to_string(),
        attempt: i32::MAX,
        boot_id: text(MAX_HOLDER_ID_BYTES),
        process_id: text(MAX_HOLDER_ID_BYTES),
        expire_time: TIME,
        reported: true,
        boot_epoch: u64::MAX,
    }
}

fn late_result() -> pb::LateResult {
    pb::LateResult {
        lease_id: uuid::Uuid::nil().to_string(),
        attempt: i32::MAX,
        state: i32::from(u8::MAX),
        reason: text(MAX_LATE_REASON_BYTES),
        time: TIME,
    }
}

/// `created` with the longest values of everything that changes later. Every field is listed, so that a new
/// one has to be considered here.
fn full_action(created: pb::Action) -> pb::Action {
    pb::Action {
        id: created.id,
        task_name: created.task_name,
        name: created.name,
        image: created.image,
        timeout: created.timeout,
        retries: created.retries,
        background: created.background,
        after_loss: created.after_loss,
        command: created.command,
        volumes: created.volumes,
        environment: created.environment,
        pid: created.pid,
        network: created.network,
        state: i32::from(u8::MAX),
        reason: format!("lost: {}", text(MAX_REASON_BYTES)),
        failed_attempts: i32::MAX,
        lost_attempts: i32::MAX,
        not_before: TIME,
        lease: Some(lease()),
        start_time: TIME,
        end_time: TIME,
        terminal_time: TIME,
        progress: Some(pb::Progress {
            phase: i32::from(u8::MAX),
            bytes: u64::MAX,
            total_bytes: u64::MAX,
            time: TIME,
        }),
        tail: String::new(),
        on_timeout: created.on_timeout,
        on_failure: created.on_failure,
        past_leases: vec![lease(); MAX_HISTORY],
        late_results: vec![late_result(); MAX_HISTORY],
    }
}

/// The same for a whole workflow.
fn full(created: pb::Workflow) -> pb::Workflow {
    // The longest text of a name in a reason: each byte is written as an escape.
    let name = "\u{7f}".repeat(199);
    pb::Workflow {
        image: created.image,
        boot_silent_minutes: 1440,
        boot_step_minutes: 1440,
        id: created.id,
        labels: created.labels,
        revision: 0,
        create_time: created.create_time,
        update_time: TIME,
        template_id: created.template_id,
        template_name: created.template_name,
        hardware_id: created.hardware_id,
        instance_id: created.instance_id,
        boot_options: created.boot_options,
        time_limit: created.time_limit,
        state: i32::from(u8::MAX),
        state_reason: format!(
            "preparing for more than 24 h: action {name:?}: lost: {}",
            text(MAX_REASON_BYTES)
        ),
        actions: created.actions.into_iter().map(full_action).collect(),
        wants_machine: true,
        blocked_by: String::new(),
        start_time: TIME,
        end_time: TIME,
        outcome: i32::from(u8::MAX),
        phase_time: TIME,
        stop_time: TIME,
        prepared: true,
        rendered: created.rendered,
        unexpected_boot_ids: vec![text(MAX_HOLDER_ID_BYTES); MAX_REBOOTS],
        idle_boot_id: text(MAX_HOLDER_ID_BYTES),
        warning: text(MAX_REASON_BYTES),
        preparations: i32::MAX,
        boot_step_time: TIME,
        boot_step: text(256),
        prepare_time: TIME,
        state_time: TIME,
        overdue: true,
        boot_epoch: u64::MAX,
        held: true,
        tenant: text(63),
        boots: Some(pb::Boots { current: seen(), other: seen(), conflict_time: TIME }),
        firmware_mode: created.firmware_mode,
        boot_image_url: created.boot_image_url,
    }
}

/// A boot with the longest id.
fn seen() -> Option<pb::SeenBoot> {
    Some(pb::SeenBoot { id: text(MAX_HOLDER_ID_BYTES), time: TIME })
}

fn created(actions: usize) -> pb::Workflow {
    pb::Workflow { actions: vec![pb::Action::default(); actions], ..Default::default() }
}

#[test]
fn the_reserved_bytes_hold_everything_that_is_added() {
    for actions in [0, 1, 20, 100] {
        let created = created(actions);
        let grown = full(created.clone()).encoded_len() - created.encoded_len();
        let reserved = RESERVED_BYTES + actions * RESERVED_BYTES_PER_ACTION;
        assert!(grown <= reserved, "{actions} actions: {grown} bytes, {reserved} reserved");
    }
}

#[test]
fn a_new_workflow_is_accepted_up_to_the_reserved_bytes() {
    let mut largest = pb::Workflow { rendered: text(1024), ..created(20) };
    let room = MAX_VALUE_BYTES - RESERVED_BYTES - 20 * RESERVED_BYTES_PER_ACTION;
    // The length of a text this long takes three bytes, that of 1024 bytes two.
    largest.rendered = text(1024 + room - largest.encoded_len() - 1);
    assert_eq!((largest.encoded_len(), check(&largest)), (room, Ok(())));
    assert!(full(largest.clone()).encoded_len() <= MAX_VALUE_BYTES);
    largest.rendered.push('x');
    let expected = TooLarge { bytes: room + 1, actions: 20, most: room };
    assert_eq!(check(&largest), Err(expected));
}

#[test]
fn the_history_is_removed_first_and_the_rendered_template_last() {
    let mut record = pb::Workflow { rendered: text(1024), ..full(created(70)) };
    let parts = |record: &pb::Workflow| {
        (record.actions[0].past_leases.is_empty(), record.rendered.is_empty())
    };
    shrink_to_fit(&mut record);
    assert_eq!(parts(&record), (false, false));
    record.actions[0].command = vec![text(MAX_VALUE_BYTES - record.encoded_len())];
    shrink_to_fit(&mut record);
    assert_eq!(parts(&record), (true, false));
    let missing = MAX_VALUE_BYTES - record.encoded_len();
    record.actions[0].command.push(text(missing));
    shrink_to_fit(&mut record);
    assert_eq!(parts(&record), (true, true));
    assert!(record.encoded_len() <= MAX_VALUE_BYTES);
}
