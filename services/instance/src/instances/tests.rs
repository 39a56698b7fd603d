//! Instances in a store: creating, finding, changing, releasing.

mod overdue;

use std::sync::atomic::Ordering;

use pb::instance::{CustomIpxe, Ip, OperatingSystem, Os};
use proptest::prelude::*;
use store::memory::MemoryStore;
use tinwright::instance::v1::CreateInstanceRequest;

use super::machine_reports::{PhoneHome, ScriptOutcome};
use super::*;
use crate::tests::site::{Frail, MACHINE};

const OTHER: &str = "0a8e5f66-90b3-4f0e-9a55-6d1f0c2b3a44";

fn instances() -> Instances {
    Instances::new(Arc::new(MemoryStore::default()), Clock::system())
}

fn on(hardware: &str, address: &str) -> pb::Instance {
    let ips = vec![Ip { address: address.into(), ..Ip::default() }];
    pb::Instance { hardware_id: hardware.into(), ips, ..pb::Instance::default() }
}

async fn phone_home(
    instances: &Instances,
    machine: &str,
    instance: Option<InstanceId>,
    call: &PhoneHome,
) -> Result<(), Error> {
    let record = |old: &pb::Instance, now| call.apply(old, now);
    instances.change_occupant(machine.parse().unwrap(), instance, record).await
}

async fn occupant(instances: &Instances, machine: &str) -> Result<pb::Instance, records::Error> {
    instances.records.require_by("occupant", machine).await
}

fn id(instance: &pb::Instance) -> InstanceId {
    instance.id.parse().unwrap()
}

#[tokio::test]
async fn a_machine_and_an_address_have_one_occupant_and_the_error_names_it() {
    let instances = instances();
    let first = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    assert_eq!((first.state(), first.generation), (pb::State::Queued, 1));
    for (wrong, what) in [
        (on(MACHINE, "192.0.2.2"), format!("occupant {MACHINE}")),
        (on(OTHER, "::ffff:192.0.2.1"), "address 192.0.2.1".into()),
    ] {
        let taken = instances.create(wrong, None).await.unwrap_err().to_string();
        assert_eq!(taken, format!("{what} is taken by instance {}", first.id));
    }
    assert_eq!(instances.records.list("", 10, |_| true).await.unwrap().records, [first]);
}

#[tokio::test]
async fn a_host_name_has_one_instance_of_a_tenant_in_a_scope_until_that_is_deleted() {
    let instances = instances();
    let machines = (1..).map(|n| format!("9b2e5f66-90b3-4f0e-9a55-6d1f0c2b3a{n:02x}"));
    let mut machines = machines.into_iter();
    let mut order = |hostname: &str, scope: &str, tenant: &str| pb::Instance {
        hardware_id: machines.next().unwrap(),
        hostname: hostname.into(),
        hostname_scope: scope.into(),
        tenant: tenant.into(),
        ..pb::Instance::default()
    };
    let first = instances.create(order("web", "a", "acme"), None).await.unwrap();
    for (hostname, scope, tenant) in
        [("db", "a", "acme"), ("web", "b", "acme"), ("web", "a", "other"), ("web", "", "acme")]
    {
        instances.create(order(hostname, scope, tenant), None).await.unwrap();
    }
    // Both come at once.
    let (one, two) = (order("web", "a", "acme"), order("mail", "a", "acme"));
    let three = order("mail", "a", "acme");
    let refused = instances.create(one.clone(), None).await.unwrap_err();
    let is_taken = |error: &Error| matches!(error, Error::Records(records::Error::Taken { by, .. }) if *by == first.id);
    assert!(is_taken(&refused), "{refused}");
    let (two, three) = tokio::join!(instances.create(two, None), instances.create(three, None));
    assert_eq!(u8::from(two.is_ok()) + u8::from(three.is_ok()), 1);
    let found = instances.records.list_indexed(HOSTNAME, "web", "", 10, |_| true).await.unwrap();
    assert_eq!(found.records.len(), 4);
    instances.delete(id(&first), 0, false).await.unwrap();
    instances.create(one, None).await.unwrap();
}

#[tokio::test]
async fn the_occupant_of_a_machine_is_one_index_read() {
    let memory = Arc::new(MemoryStore::default());
    let made = Instances::new(memory.clone(), Clock::system())
        .create(on(MACHINE, "192.0.2.1"), None)
        .await
        .unwrap();
    let counted = Arc::new(Frail::new(memory, usize::MAX, false));
    let instances = Instances::new(counted.clone(), Clock::system());
    assert_eq!(occupant(&instances, MACHINE).await.unwrap(), made);
    assert_eq!(
        counted.gets.load(Ordering::Relaxed),
        2,
        "the index entry, and the record it leads to"
    );
    assert!(occupant(&instances, OTHER).await.is_err());
    assert_eq!(counted.gets.load(Ordering::Relaxed), 3, "the index entry that is not there");
    assert_eq!(counted.lists.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_repeated_request_creates_one_instance() {
    let instances = instances();
    let body = |address| CreateInstanceRequest {
        instance: Some(on(MACHINE, address)),
        request_id: "r".into(),
        validate_only: false,
    };
    let idempotent = |address| IdempotentRequest::new("r", &body(address));
    let first = instances.create(on(MACHINE, "192.0.2.1"), idempotent("192.0.2.1")).await.unwrap();
    let again = instances.create(on(MACHINE, "192.0.2.1"), idempotent("192.0.2.1")).await.unwrap();
    assert_eq!(first, again);
    let other = instances.create(on(MACHINE, "192.0.2.2"), idempotent("192.0.2.2")).await;
    assert!(matches!(other, Err(Error::Records(records::Error::Reused(id))) if id == "r"));
}

#[tokio::test]
async fn output_only_fields_of_a_request_are_ignored() {
    let instances = instances();
    let made = instances
        .create(
            pb::Instance {
                forced: true,
                released: true,
                generation: 7,
                state_reason: "x".into(),
                workflow_id: "w".into(),
                lookup_id: "l".into(),
                stack_time: Some(prost_types::Timestamp::default()),
                ..on(MACHINE, "192.0.2.1")
            },
            None,
        )
        .await
        .unwrap();
    assert!(!made.forced && !made.released && made.state_reason.is_empty());
    assert_eq!((made.generation, made.workflow_id.as_str()), (1, ""));
    assert_eq!(made.stack_time, None);
    assert!(made.lookup_id.len() == 32 && made.lookup_id.bytes().all(|b| b.is_ascii_hexdigit()));
    let active = pb::Instance { state: pb::State::Active.into(), ..on(OTHER, "192.0.2.2") };
    let refused = instances.create(active, None).await.unwrap_err().to_string();
    assert_eq!(refused, "an instance begins queued, not active");
}

#[tokio::test]
async fn an_update_replaces_the_masked_fields_and_their_claims() {
    let instances = instances();
    let made = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let update = pb::Instance {
        id: made.id.clone(),
        revision: made.revision,
        hostname: "new".into(),
        userdata: "not named".into(),
        ..on(OTHER, "192.0.2.2")
    };
    let new = instances.update(update, &["ips".into(), "hostname".into()]).await.unwrap();
    assert_eq!((new.hostname.as_str(), new.userdata.as_str()), ("new", ""));
    assert_eq!(new.hardware_id, MACHINE);
    assert_eq!(instances.records.require_by("address", "192.0.2.2").await.unwrap(), new);
    assert!(instances.records.require_by("address", "192.0.2.1").await.is_err());
    assert!(instances.records.check(false).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_stale_update_and_an_unknown_field_change_nothing() {
    let instances = instances();
    let made = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let update = |revision| pb::Instance { revision, hostname: "x".into(), ..made.clone() };
    assert!(instances.update(update(made.revision + 1), &[]).await.unwrap_err().is_stale());
    for path in ["state", "hardware_id", "forced", "lookup_id"] {
        assert!(matches!(
            instances.update(update(0), &[path.into()]).await,
            Err(Error::Invalid(_))
        ));
    }
    assert_eq!(instances.records.require(&made.id).await.unwrap(), made);
}

#[tokio::test]
async fn a_script_and_an_operating_system_exclude_each_other_in_updates_too() {
    let instances = instances();
    let script = CustomIpxe { contents: "#!ipxe".into(), ..CustomIpxe::default() };
    let debian = OperatingSystem { distro: "debian".into(), ..OperatingSystem::default() };
    let scripted = pb::Instance { os: Some(Os::CustomIpxe(script)), ..on(MACHINE, "192.0.2.1") };
    let made = instances.create(scripted, None).await.unwrap();
    let update = |os, path: &str| {
        let update = pb::Instance { os, revision: 0, ..made.clone() };
        let paths = [path.to_owned()];
        let instances = &instances;
        async move { instances.update(update, &paths).await.unwrap().os }
    };
    assert!(update(None, "operating_system").await == made.os, "the other one is named");
    let system = Some(Os::OperatingSystem(debian));
    assert!(update(system.clone(), "operating_system").await == system);
    assert!(update(None, "operating_system").await.is_none());
}

#[tokio::test]
async fn an_instance_that_is_being_deleted_cannot_change_and_is_deleted_once() {
    let instances = instances();
    let made = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let going = instances.delete(id(&made), made.revision, false).await.unwrap();
    assert_eq!(going.state(), pb::State::Deprovisioning);
    assert_eq!(instances.delete(id(&made), 0, false).await.unwrap(), going);
    let update = pb::Instance { revision: 0, hostname: "x".into(), ..made.clone() };
    let both = ["deprovision_template_id".to_owned(), "hostname".to_owned()];
    for paths in [&[][..], &both] {
        let refused = instances.update(update.clone(), paths).await.unwrap_err().to_string();
        assert_eq!(refused, format!("instance {} is being deleted", made.id));
    }
    assert!(instances.delete(id(&made), 0, true).await.unwrap().forced);
}

#[tokio::test]
async fn of_two_concurrent_updates_neither_is_lost_nor_refused() {
    let frail = Frail::new(Arc::new(MemoryStore::default()), usize::MAX, false);
    let instances = Instances::new(Arc::new(frail), Clock::system());
    let made = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let update = |hostname: &str, tag: &str| {
        let (hostname, tags) = (hostname.to_owned(), vec![tag.to_owned()]);
        pb::Instance { revision: 0, hostname, tags, ..made.clone() }
    };
    let (name, tag) = (["hostname".to_owned()], ["tags".to_owned()]);
    let both = tokio::join!(
        instances.update(update("web", ""), &name),
        instances.update(update("", "blue"), &tag),
    );
    assert!(both.0.is_ok() && both.1.is_ok());
    let stored = instances.records.require(&made.id).await.unwrap();
    assert_eq!((stored.hostname.as_str(), stored.tags), ("web", vec!["blue".to_owned()]));
}

#[tokio::test]
async fn a_report_for_another_instance_is_refused() {
    let instances = instances();
    let made = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let other = InstanceId::new();
    let call = PhoneHome::default();
    let refused = phone_home(&instances, MACHINE, Some(other), &call).await.unwrap_err();
    let text = format!("hardware {MACHINE} is not occupied by instance {other}");
    assert_eq!(refused.to_string(), text);
    assert!(phone_home(&instances, OTHER, None, &call).await.is_err(), "not occupied");
    assert_eq!(instances.records.require(&made.id).await.unwrap(), made);
}

#[tokio::test]
async fn the_first_phone_home_call_of_a_generation_is_recorded() {
    let instances = instances();
    let queued = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let call = async || phone_home(&instances, MACHINE, None, &PhoneHome::default()).await;
    call().await.unwrap();
    let begun = instances.advance(&queued, Event::Began, "", |_| {}).await.unwrap();
    assert_eq!(begun.phone_home_time, None, "nothing was installed when it called");
    call().await.unwrap();
    let called = occupant(&instances, MACHINE).await.unwrap();
    assert!(called.phone_home_time.is_some());
    call().await.unwrap();
    assert_eq!(occupant(&instances, MACHINE).await.unwrap(), called, "not even its revision");
    let failed = instances.advance(&called, Event::Failed, "", |_| {}).await.unwrap();
    let again = instances.retry(id(&failed)).await.unwrap();
    assert_eq!((again.generation, again.phone_home_time), (2, None));
}

#[tokio::test]
async fn the_first_host_keys_are_recorded_until_the_next_installation() {
    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
    let instances = instances();
    let queued = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    instances.advance(&queued, Event::Began, "", |_| {}).await.unwrap();
    let call = async |keys: &[&str]| {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let call = PhoneHome::new(String::new(), keys);
        phone_home(&instances, MACHINE, None, &call).await.unwrap();
        occupant(&instances, MACHINE).await.unwrap()
    };
    assert!(call(&[]).await.host_keys.is_empty(), "an installer has no keys");
    let called = call(&["ssh-dss AAAA", &format!("{KEY} root@web\n"), "rubbish"]).await;
    assert_eq!(called.host_keys, [format!("{KEY} root@web")]);
    assert_eq!(call(&[KEY]).await, called, "a later caller may be somebody else");
    let failed = instances.advance(&called, Event::Failed, "", |_| {}).await.unwrap();
    assert!(instances.retry(id(&failed)).await.unwrap().host_keys.is_empty());
}

#[tokio::test]
async fn a_replaced_script_has_not_run_yet() {
    let instances = instances();
    let script = |contents: &str| {
        let contents = format!("#!ipxe\necho {contents}");
        Some(Os::CustomIpxe(CustomIpxe { contents, ..CustomIpxe::default() }))
    };
    let first = pb::Instance { os: script("1"), ..on(MACHINE, "192.0.2.1") };
    let queued = instances.create(first, None).await.unwrap();
    let begun = instances.advance(&queued, Event::Began, "", |_| {}).await.unwrap();
    let ran = ScriptOutcome { generation: 1, started: true };
    let report = async |instance| {
        let record = |old: &pb::Instance, now| ran.apply(old, now);
        instances.change_occupant(MACHINE.parse().unwrap(), Some(instance), record).await
    };
    assert!(matches!(report(InstanceId::new()).await, Err(Error::NotOccupant { .. })));
    report(id(&begun)).await.unwrap();
    let ran = occupant(&instances, MACHINE).await.unwrap();
    assert!(ran.script_time.is_some());
    let update = |os| pb::Instance { os, revision: 0, ..ran.clone() };
    let changed = async |os, paths: &[&str]| {
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        instances.update(update(os), &paths).await.unwrap().script_time
    };
    assert_eq!(changed(script("2"), &["hostname"]).await, ran.script_time);
    assert_eq!(changed(script("2"), &["custom_ipxe"]).await, None);
}

#[tokio::test]
async fn a_retry_claims_a_released_machine_again_if_it_is_free() {
    let instances = instances();
    let first = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let released = instances.advance(&first, Event::Unusable, "gone", |_| {}).await.unwrap();
    assert_eq!((released.state(), released.released), (pb::State::Failed, true));
    let second = instances.create(on(MACHINE, "192.0.2.1"), None).await.unwrap();
    let taken = instances.retry(id(&first)).await.unwrap_err().to_string();
    assert!(taken.ends_with(&format!("is taken by instance {}", second.id)), "{taken}");
    let second = instances.advance(&second, Event::Unusable, "", |_| {}).await.unwrap();
    assert_eq!(instances.delete(id(&second), 0, false).await.unwrap().state(), pb::State::Deleted);
    assert_eq!(instances.retry(id(&first)).await.unwrap().state(), pb::State::Queued);
    assert_eq!(occupant(&instances, MACHINE).await.unwrap().id, first.id);
}

/// Updates `instance` with the fields of `update` that `mask` names.
async fn update(
    instances: &Instances,
    update: pb::Instance,
    mask: &[&str],
) -> Result<pb::Instance, Error> {
    let paths: Vec<_> = mask.iter().map(|path| (*path).to_owned()).collect();
    let update = instances.update(pb::Instance { revision: 0, ..update }, &paths);
    Box::pin(update).await
}

#[tokio::test]
async fn a_protected_instance_is_not_deleted_until_an_update_with_the_mask_ends_that() {
    let instances = instances();
    let made = pb::Instance { protect: true, ..on(MACHINE, "192.0.2.1") };
    let made = instances.create(made, None).await.unwrap();
    for force in [false, true] {
        let refused = instances.delete(id(&made), 0, force).await;
        assert!(matches!(refused, Err(Error::Protected(id)) if id == made.id));
    }
    assert_eq!(instances.records.require(&made.id).await.unwrap(), made, "not even its revision");
    let unprotected = pb::Instance { protect: false, ..made.clone() };
    let kept = update(&instances, unprotected.clone(), &[]).await.unwrap();
    assert!(kept.protect, "a client without the field");
    update(&instances, unprotected, &["protect"]).await.unwrap();
    let deleted = instances.delete(id(&made), 0, false).await.unwrap();
    assert_eq!(deleted.state(), pb::State::Deprovisioning);
}

#[tokio::test]
async fn a_changed_machine_of_a_protected_instance_is_not_installed_again() {
    let instances = instances();
    let made = pb::Instance { protect: true, ..on(MACHINE, "192.0.2.1") };
    let queued = instances.create(made, None).await.unwrap();
    let template =
        |template_id: &str| pb::Instance { template_id: template_id.into(), ..queued.clone() };
    let (first, second) = (InstanceId::new().to_string(), InstanceId::new().to_string());
    let queued = update(&instances, template(&first), &["template_id"]).await.unwrap();
    let begun = instances.advance(&queued, Event::Began, "", |_| {}).await.unwrap();
    let script = CustomIpxe { contents: "#!ipxe".into(), ..CustomIpxe::default() };
    let scripted = pb::Instance { os: Some(Os::CustomIpxe(script)), ..begun.clone() };
    for (change, field) in [(template(&second), "template_id"), (scripted, "custom_ipxe")] {
        let both = pb::Instance { protect: false, ..change };
        let refused = update(&instances, both, &[field, "protect"]).await;
        assert!(matches!(refused, Err(Error::Protected(_))), "{field}");
    }
    let renamed = pb::Instance { hostname: "db".into(), ..begun.clone() };
    let begun = update(&instances, renamed, &["hostname"]).await.unwrap();
    instances.retry(id(&begun)).await.expect("nothing failed, nothing is repeated");
    let failed = instances.advance(&begun, Event::Failed, "", |_| {}).await.unwrap();
    assert!(matches!(instances.retry(id(&failed)).await, Err(Error::Protected(_))));
    assert_eq!(instances.records.require(&failed.id).await.unwrap(), failed);
    update(&instances, pb::Instance { protect: false, ..failed }, &["protect"]).await.unwrap();
    assert_eq!(instances.retry(id(&queued)).await.unwrap().state(), pb::State::Queued);
}

#[tokio::test]
async fn a_protected_instance_whose_machine_was_not_changed_can_be_retried() {
    let instances = instances();
    let made = pb::Instance { protect: true, ..on(MACHINE, "192.0.2.1") };
    let made = instances.create(made, None).await.unwrap();
    let released = instances.advance(&made, Event::Unusable, "fan", |_| {}).await.unwrap();
    assert!(matches!(instances.delete(id(&made), 0, false).await, Err(Error::Protected(_))));
    assert_eq!(instances.retry(id(&released)).await.unwrap().state(), pb::State::Queued);
}

const EVENTS: [Event; 7] = [
    Event::Began,
    Event::Unusable,
    Event::Installed,
    Event::Failed,
    Event::Retry,
    Event::Delete,
    Event::Cleaned,
];

proptest! {
    /// A step is an event to one of three instances, or the wish for another on the same machine.
    #[test]
    fn a_machine_has_one_occupant_and_a_claim_for_every_instance_that_occupies(
        steps in proptest::collection::vec((0..3_usize, 0..9_usize), 0..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let instances = instances();
            for (which, what) in steps {
                let all = instances.records.list("", 10, |_| true).await.unwrap().records;
                match (all.get(which), EVENTS.get(what)) {
                    (Some(old), Some(event)) => {
                        let _illegal = instances.advance(old, *event, "", |_| {}).await;
                    }
                    _ if all.len() < 3 => {
                        let _taken = instances.create(on(MACHINE, "192.0.2.1"), None).await;
                    }
                    _ => {}
                }
                prop_assert!(instances.records.check(false).await.unwrap().is_clean());
                let all = instances.records.list("", 10, |_| true).await.unwrap().records;
                let occupies = |i: &&pb::Instance| State::try_from(*i).unwrap().occupies();
                let occupants: Vec<_> = all.iter().filter(occupies).collect();
                prop_assert!(occupants.len() <= 1);
                let claimed = occupant(&instances, MACHINE).await.ok();
                prop_assert_eq!(claimed.as_ref(), occupants.first().copied());
            }
            Ok(())
        })?;
    }
}
