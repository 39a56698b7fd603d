//! Workflows from a template to their end.

use runtime::Role;
use runtime::boot_token::Purpose;
use store::hosted;
use tinwright::HardwareId;
use tinwright::common::v1::View;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::machines::{NO_MACHINE, PROTECTED_MACHINE, SECRET};
use crate::site::{Site, TWO, request};

use pb::WorkflowState as State;

#[tokio::test]
async fn a_worker_runs_two_actions_with_success() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    assert_eq!((made.state(), made.wants_machine), (State::Pending, true));
    let worker = site.worker(machine);
    let first = worker.begin().await;
    let action = first.action.clone().unwrap();
    assert_eq!(
        (action.name.as_str(), action.environment),
        (
            "write",
            vec!["DEST_DISK=/dev/sda".to_owned(), "IMG_URL=http://192.0.2.1/d.gz".to_owned()]
        )
    );
    worker.succeed(&first).await;
    let second = worker.begin().await;
    assert_eq!(second.action.as_ref().unwrap().name, "configure");
    worker.succeed(&second).await;
    let ended = site.ended(&made.id).await;
    assert_eq!((ended.state(), ended.wants_machine), (State::Success, false));
    assert!(site.power.jobs().is_empty(), "no power jobs were requested");
    assert!(hosted::check(&site.api, false).await.unwrap().is_clean());
}

#[tokio::test]
async fn all_settings_of_an_action_reach_its_worker() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let more = "image: image2disk, on-timeout: [say, late], on-failure: [say, bad], \
                namespaces: {network: host, pid: host}";
    let made = site.workflow(machine, &TWO.replace("image: image2disk", more)).await;
    let action = site.worker(machine).next().await.action.unwrap();
    for action in [&action, &site.get(&made.id).await.actions[0]] {
        assert_eq!(action.on_timeout, ["say", "late"]);
        assert_eq!(action.on_failure, ["say", "bad"]);
        assert_eq!((action.network.as_str(), action.pid.as_str()), ("host", "host"));
    }
}

#[tokio::test]
async fn a_failed_actions_reason_and_tail_are_stored() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, &TWO.replace("retries: 1, ", "")).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    worker.finish(&it, pb::ActionState::Failed, "exit\ncode 1", "no space left").await.unwrap();
    let ended = site.ended(&made.id).await;
    assert_eq!(
        (ended.state(), ended.state_reason.as_str()),
        (State::Failed, r#"action "write": exit code 1"#)
    );
    assert_eq!(ended.actions[0].tail, "", "it is not in the record");
    assert_eq!(site.get(&made.id).await.actions[0].tail, "no space left");
    assert_eq!(ended.actions[1].state(), pb::ActionState::NotRun);
}

#[tokio::test]
async fn a_workflow_without_room_for_its_results_is_refused() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let value = "x".repeat(103 * 1000);
    let actions = ["a", "b", "c", "d"]
        .map(|name| format!("  - {{name: {name}, image: rootio, command: [version]}}\n"));
    let text = format!(
        "name: large\ntasks:\n- name: os\n  worker: '{{{{ .device_1 }}}}'\n  environment: {{LARGE: {value}}}\n  \
         actions:\n{}",
        actions.concat()
    );
    let values = std::collections::BTreeMap::new();
    let request = pb::CreateWorkflowRequest { template_data: text, values, ..request(machine) };
    let refused = site.workflows().create_workflow(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let text = refused.message();
    assert!(text.starts_with("template_data: the rendered workflow has 515"), "{text}");
    assert!(text.contains("with 4 actions at most 501760 are allowed"), "{text}");
}

#[tokio::test]
async fn a_failed_attempt_is_retried_after_its_backoff() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let first = worker.begin().await;
    worker.finish(&first, pb::ActionState::Failed, "cut off", "tail").await.unwrap();
    assert_eq!(site.get(&made.id).await.actions[0].reason, "cut off");
    let second = worker.next().await;
    assert_eq!(second.action.unwrap().lease.unwrap().attempt, 2);
    assert_ne!(first.lease_id, second.lease_id);
}

#[tokio::test]
async fn a_cancelled_workflow_stops_its_worker_first() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    assert!(!worker.progress(&it, 1).await.unwrap());
    let request = pb::CancelWorkflowRequest { id: made.id.clone() };
    site.workflows().cancel_workflow(request.clone()).await.unwrap();
    site.until(&made.id, |found| found.stop_time.is_some()).await;
    assert!(worker.progress(&it, 2).await.unwrap());
    worker.finish(&it, pb::ActionState::Failed, "stopped", "").await.unwrap();
    let ended = site.ended(&made.id).await;
    assert_eq!(ended.state(), State::Cancelled);
    let actions: Vec<_> = ended.actions.iter().map(pb::Action::state).collect();
    assert_eq!(actions, [pb::ActionState::Failed, pb::ActionState::NotRun]);
    let again = site.workflows().cancel_workflow(request).await.unwrap().into_inner().workflow;
    assert_eq!(again.unwrap().revision, ended.revision);
}

#[tokio::test]
async fn progress_is_shown_at_once_although_it_is_not_stored_each_time() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    // Until the mirror has the lease, each report is stored.
    site.until(&made.id, |found| found.actions[0].state() == pb::ActionState::Running).await;
    worker.progress(&it, 1).await.unwrap();
    let stored = site.get(&made.id).await;
    for bytes in [2, 3] {
        worker.progress(&it, bytes).await.unwrap();
        let seen = site.get(&made.id).await;
        assert_eq!(seen.actions[0].progress.as_ref().map(|progress| progress.bytes), Some(bytes));
        assert_eq!(seen.revision, stored.revision, "nothing was written");
    }
}

#[tokio::test]
async fn a_log_is_followed_to_the_end_of_its_action() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    assert_eq!(worker.log(&it, 0, b"one ").await.unwrap(), 4);
    let writing = async {
        assert_eq!(worker.log(&it, 4, b"two").await.unwrap(), 7);
        assert_eq!(worker.log(&it, 9, b"x").await.unwrap(), 7);
        worker.succeed(&it).await;
    };
    let (log, ()) = tokio::join!(site.log(&made, 0, true), writing);
    assert_eq!(log, b"one two");
    let large = worker.log(&it, 7, &[b'x'; 16 * 1024 + 1]).await;
    assert_eq!(large.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_workflow_ends_when_its_time_is_over() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made =
        site.workflow(machine, &TWO.replace("name: two", "name: two\nglobal_timeout: 1")).await;
    site.worker(machine).begin().await;
    let ended = site.ended(&made.id).await;
    assert_eq!(
        (ended.state(), ended.actions[0].state()),
        (State::Timeout, pb::ActionState::Timeout)
    );
    assert_eq!(ended.state_reason, r#"action "write" exceeded its timeout"#);
}

#[tokio::test]
async fn environments_are_shown_only_in_full_views_and_full_views_only_to_admins() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    assert!(made.rendered.is_empty() && made.actions[0].environment.is_empty());
    // A watch of all begins with what the mirror has read.
    let full = site.until(&made.id, |_| true).await;
    assert!(full.rendered.contains("192.0.2.1"));
    let mut viewer = WorkflowServiceClient::new(site.channel(Some(Role::Viewer)));
    let full = pb::ListWorkflowsRequest { view: View::Full.into(), ..Default::default() };
    assert_eq!(viewer.list_workflows(full).await.unwrap_err().code(), Code::PermissionDenied);
    let basic =
        viewer.list_workflows(pb::ListWorkflowsRequest::default()).await.unwrap().into_inner();
    let all = pb::WatchWorkflowsRequest::default();
    let mut watch = viewer.watch_workflows(all).await.unwrap().into_inner();
    let event = watch.message().await.unwrap().unwrap().into_event().unwrap();
    let WatchEvent::Put(watched) = event else { panic!("{event:?}") };
    for seen in [&basic.workflows[0], &watched] {
        assert!(seen.actions[0].environment.is_empty() && seen.rendered.is_empty());
    }
}

#[tokio::test]
async fn a_template_sees_of_the_hardware_what_its_caller_sees() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let mut operator = WorkflowServiceClient::new(site.channel(Some(Role::Operator)));
    let with = |action: &str| pb::CreateWorkflowRequest {
        template_data: TWO.replace("name: configure, image: cexec", action),
        ..request(machine)
    };
    for secret in
        ["{{ .Hardware.UserData }}", "{{ (index .hardware.interfaces 0).netboot.ipxe.contents }}"]
    {
        let reaction = with(&format!("name: configure, image: cexec, on-failure: [\"{secret}\"]"));
        let name = with(&format!("name: \"{secret}\", image: cexec"));
        for request in [reaction.clone(), name] {
            let refused = operator.create_workflow(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(!refused.message().contains(SECRET), "{refused}");
        }
        let made = site.workflows().create_workflow(reaction).await.unwrap().into_inner();
        let made = made.workflow.unwrap();
        assert!(made.actions[1].on_failure.is_empty(), "not in a basic view");
        assert_eq!(site.get(&made.id).await.actions[1].on_failure, [SECRET]);
    }
}

#[tokio::test]
async fn a_worker_has_access_to_its_own_machines_workflows_only() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.workflow(machine, TWO).await;
    let it = site.worker(machine).begin().await;
    let other = site.worker(HardwareId::new());
    let refused = [
        other.start(&it, false).await.unwrap_err(),
        other.progress(&it, 1).await.unwrap_err(),
        other.log(&it, 0, b"x").await.unwrap_err(),
        other.finish(&it, pb::ActionState::Success, "", "").await.unwrap_err(),
    ];
    assert!(refused.iter().all(|status| status.code() == Code::PermissionDenied), "{refused:?}");
}

#[tokio::test]
async fn only_machines_may_make_a_workers_calls() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let request = site.worker(machine).request("");
    for (role, code) in [(Some(Role::Admin), Code::PermissionDenied), (None, Code::Unauthenticated)]
    {
        let mut caller = WorkerServiceClient::new(site.channel(role));
        let refused = caller.next_action(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code);
    }
}

#[tokio::test]
async fn a_repeated_request_creates_one_workflow_and_errors_name_what_is_missing() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let mut workflows = site.workflows();
    let own = |id: HardwareId| pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        request_id: "r".into(),
        ..request(id)
    };
    let first =
        workflows.create_workflow(own(machine)).await.unwrap().into_inner().workflow.unwrap();
    let again =
        workflows.create_workflow(own(machine)).await.unwrap().into_inner().workflow.unwrap();
    assert_eq!(first.id, again.id);
    let other = workflows.create_workflow(own(HardwareId::new())).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    let unknown =
        pb::CreateWorkflowRequest { request_id: String::new(), ..own(NO_MACHINE.parse().unwrap()) };
    let missing = workflows.create_workflow(unknown).await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::NotFound, &*format!("hardware {NO_MACHINE} not found"))
    );
    let template = pb::CreateWorkflowRequest { template_id: NO_MACHINE.into(), ..request(machine) };
    let missing = workflows.create_workflow(template).await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::NotFound, &*format!("template {NO_MACHINE} not found"))
    );
}

#[tokio::test]
async fn a_protected_machine_gets_no_workflow() {
    let mut site = Site::new().await;
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        ..request(PROTECTED_MACHINE.parse().unwrap())
    };
    let refused = site.workflows().create_workflow(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "PROTECTED");
    let all = pb::ListWorkflowsRequest::default();
    let listed = site.workflows().list_workflows(all).await.unwrap().into_inner();
    assert!(listed.workflows.is_empty());
}

#[tokio::test]
async fn the_error_names_a_templates_unknown_key() {
    let mut site = Site::new().await;
    let template = pb::Template { data: TWO.replace("retries", "retrys"), ..Default::default() };
    let request = pb::CreateTemplateRequest { template: Some(template), request_id: String::new() };
    let refused = site.templates().create_template(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("unknown field `retrys`")
            && refused.message().contains("line 7")
    );
}

#[tokio::test]
async fn only_an_ended_workflow_is_deleted_and_its_log_with_it() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    worker.log(&it, 0, b"x").await.unwrap();
    let delete = pb::DeleteWorkflowRequest { id: made.id.clone(), revision: 0 };
    let early = site.workflows().delete_workflow(delete.clone()).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    worker.succeed(&it).await;
    let it = worker.begin().await;
    worker.succeed(&it).await;
    let ended = site.ended(&made.id).await;
    let stale = pb::DeleteWorkflowRequest { revision: made.revision, ..delete.clone() };
    let stale = site.workflows().delete_workflow(stale).await.unwrap_err();
    assert_eq!(stale.code(), Code::Aborted);
    let delete = pb::DeleteWorkflowRequest { revision: ended.revision, ..delete };
    site.workflows().delete_workflow(delete.clone()).await.unwrap();
    assert_eq!(site.workflows().delete_workflow(delete).await.unwrap_err().code(), Code::NotFound);
    let report = hosted::check(&site.api, false).await.unwrap();
    assert_eq!((report.records, report.is_clean()), (0, true));
}

#[tokio::test]
async fn a_boot_token_is_redeemed_for_a_certificate_without_authentication() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let now = std::time::SystemTime::now();
    let boot_token =
        site.tokens.mint(Purpose::Identity, machine, 0, [192, 0, 2, 7].into(), now).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let request = pb::RedeemRequest { boot_token, csr, holder: None };
    let mut anonymous = WorkerServiceClient::new(site.channel(None));
    let issued = anonymous.redeem(request).await.unwrap().into_inner();
    assert_eq!(issued.certificate, format!("tinwright:machine:{machine}"));
    let refused = anonymous.redeem(pb::RedeemRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}
