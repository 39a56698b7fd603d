//! BMCs in a store: created, found, changed and deleted, their passwords encrypted.

use super::*;
use crate::test_store::redfish;
use runtime::secret::SiteKey;
use runtime::site_keys::SiteKeys;
use store::memory::MemoryStore;
use tinwright::{HardwareId, machine_uuid};

/// The UUID of a machine.
const OWN: &str = "4c4c4544-0042-3010-8052-b4c04f4d3232";

fn bmcs() -> (Arc<MemoryStore>, Bmcs) {
    let store = Arc::new(MemoryStore::default());
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    (store.clone(), Bmcs::new(store, seal, PlaintextHttp::Refused, Clock::system()))
}

/// A BMC at an address of its own.
fn bmc(hardware: HardwareId) -> pb::Bmc {
    pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(redfish(&format!("https://{hardware}.example.org"))),
        username: "admin".into(),
        password: "hunter2".into(),
        ..pb::Bmc::default()
    }
}

async fn password(bmcs: &Bmcs, bmc: &pb::Bmc) -> String {
    match bmcs.target(bmc).await.unwrap() {
        BmcAddress::Redfish(target) => target.password.expose().clone(),
        BmcAddress::Ipmi(target) => target.password.expose().clone(),
    }
}

#[tokio::test]
async fn a_password_is_stored_encrypted_and_never_returned() {
    let (store, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    assert_eq!(made.password, "");
    let all = store.list("", "", 100).await.unwrap().pairs;
    assert_eq!(all.len(), 5, "record, three index entries, password");
    assert!(!all.iter().any(|(_, at)| at.value.windows(7).any(|part| part == b"hunter2")));
    assert_eq!(password(&bmcs, &made).await, "hunter2");
}

#[tokio::test]
async fn passwords_are_encrypted_with_the_new_key_and_the_former_one_is_not_needed_any_more() {
    let (old, new) = (SiteKey::new([7; 32]), SiteKey::new([8; 32]));
    let keys = SiteKeys::from(&old);
    let store = Arc::new(MemoryStore::default());
    let seal = Seal::new(&keys, "bmc").unwrap();
    let bmcs = Bmcs::new(store, seal, PlaintextHttp::Refused, Clock::system());
    let mut made = Vec::new();
    for _ in 0..RESEALED_AT_ONCE + 1 {
        made.push(bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap());
    }
    assert_eq!(bmcs.reseal().await.unwrap(), 0);
    keys.set(new.clone(), vec![old]);
    let later = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    assert_eq!(bmcs.reseal().await.unwrap(), made.len());
    keys.set(new, vec![]);
    for bmc in made.iter().chain([&later]) {
        assert_eq!(password(&bmcs, bmc).await, "hunter2");
    }
}

#[tokio::test]
async fn a_machine_has_one_bmc() {
    let (_, bmcs) = bmcs();
    let hardware = HardwareId::new();
    let made = bmcs.create(bmc(hardware), Login::Skip, None).await.unwrap();
    assert_eq!(bmcs.get_by_hardware(&hardware.to_string()).await.unwrap(), made);
    // Nothing listens at the address of the second one.
    let unreachable = pb::Bmc { protocol: Some(redfish("https://127.0.0.1:1")), ..bmc(hardware) };
    for (second, login) in [(bmc(hardware), Login::Skip), (unreachable, Login::Try)] {
        let refused = bmcs.create(second, login, None).await.unwrap_err().to_string();
        assert_eq!(refused, format!("hardware {hardware} is taken by BMC {}", made.id));
    }
}

#[tokio::test]
async fn an_omitted_password_stays() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    let update = pb::Bmc { username: "root".into(), ..made.clone() };
    let renamed = bmcs.update(update, &[], Login::Skip).await.unwrap();
    assert_eq!((renamed.username.as_str(), renamed.password.as_str()), ("root", ""));
    assert_eq!(password(&bmcs, &renamed).await, "hunter2");
    let update = pb::Bmc { password: "other".into(), ..renamed.clone() };
    let changed = bmcs.update(update, &["password".into()], Login::Skip).await.unwrap();
    assert_ne!(changed.revision, renamed.revision);
    assert_eq!(password(&bmcs, &changed).await, "other");
}

#[tokio::test]
async fn a_new_url_requires_the_password_again() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    let moved = pb::Bmc { protocol: Some(redfish("https://192.0.2.66")), ..made.clone() };
    let refused = bmcs.update(moved.clone(), &["redfish".into()], Login::Skip).await.unwrap_err();
    assert!(refused.to_string().starts_with("password: is required"), "{refused}");
    assert!(bmcs.update(moved.clone(), &[], Login::Skip).await.is_err());
    let given = pb::Bmc { password: "new".into(), ..moved };
    let moved = bmcs.update(given, &[], Login::Skip).await.unwrap();
    assert_eq!(password(&bmcs, &moved).await, "new");
}

#[tokio::test]
async fn a_stale_update_and_an_unknown_field_change_nothing() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    let stale = pb::Bmc { revision: made.revision + 1, ..made.clone() };
    let stale = bmcs.update(stale, &[], Login::Skip).await;
    assert!(matches!(stale, Err(Error::Records(records::Error::Changed { .. }))));
    let other = bmcs.update(made.clone(), &["hardware_id".into()], Login::Skip).await;
    assert!(matches!(other, Err(Error::Invalid(_))));
    assert_eq!(bmcs.get(made.id.parse().unwrap()).await.unwrap(), made);
}

#[tokio::test]
async fn a_deleted_bmc_leaves_nothing_behind() {
    let (store, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    bmcs.delete(made.id.parse().unwrap(), made.revision).await.unwrap();
    assert!(store.list("", "", 1).await.unwrap().pairs.is_empty());
    let again = bmcs.delete(made.id.parse().unwrap(), 0).await;
    assert!(matches!(again, Err(Error::Records(records::Error::Missing { .. }))));
}

#[tokio::test]
async fn the_first_certificate_stays_and_a_new_address_forgets_it() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    let certificate = |bmc: &pb::Bmc| match &bmc.protocol {
        Some(Protocol::Redfish(redfish)) => redfish.certificate_sha256.clone(),
        other => panic!("{other:?}"),
    };
    let learnt = |octet| Learnt { certificate: Some([octet; 32]), ..Learnt::default() };
    let pinned = bmcs.pin(made.clone(), &learnt(0xab)).await.unwrap();
    assert_eq!(certificate(&pinned), "ab".repeat(32));
    assert_eq!(bmcs.get(made.id.parse().unwrap()).await.unwrap(), pinned);
    let again = bmcs.pin(pinned.clone(), &learnt(0xcd)).await.unwrap();
    assert_eq!(again, pinned);
    let mut moved = pb::Bmc { password: "new".into(), ..pinned };
    if let Some(Protocol::Redfish(redfish)) = &mut moved.protocol {
        redfish.url = "https://192.0.2.66".into();
    }
    assert_eq!(certificate(&bmcs.update(moved, &[], Login::Skip).await.unwrap()), "");
}

#[tokio::test]
async fn a_bmc_belongs_to_one_machine_however_its_address_is_written() {
    let (_, bmcs) = bmcs();
    let at = |url: &str, system: &str| {
        let redfish =
            pb::bmc::Redfish { url: url.into(), system_id: system.into(), ..Default::default() };
        pb::Bmc { protocol: Some(Protocol::Redfish(redfish)), ..bmc(HardwareId::new()) }
    };
    let create = async |bmc: pb::Bmc| bmcs.create(bmc, Login::Skip, None).await;
    let first = create(at("https://bmc.example.org", "1")).await.unwrap();
    for (url, system) in [
        ("https://BMC.example.org:443", "1"),
        ("https://bmc.example.org", "/redfish/v1/Systems/1"),
        ("https://bmc.example.org", ""),
    ] {
        let refused = create(at(url, system)).await.unwrap_err().to_string();
        assert!(refused.contains(&first.hardware_id) && refused.contains(&first.id), "{refused}");
    }
    let second = create(at("https://bmc.example.org", "2")).await.unwrap();
    let moved = pb::Bmc { protocol: first.protocol.clone(), password: "p".into(), ..second };
    assert!(bmcs.update(moved, &[], Login::Skip).await.is_err());
    let same = pb::Bmc { username: "root".into(), ..first };
    bmcs.update(same, &["username".into()], Login::Skip).await.unwrap();
}

#[tokio::test]
async fn a_login_that_finds_another_uuid_fails_with_a_warning_until_one_finds_the_right_uuid() {
    const SWAPPED: &str = "44454c4c-4200-1030-8052-b4c04f4d3232";
    const OTHER: &str = "5c4c4544-0042-3010-8052-b4c04f4d3232";
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), Login::Skip, None).await.unwrap();
    let id = made.id.parse().unwrap();
    let log_in = async |uuid: &str| {
        let stored = bmcs.get(id).await.unwrap();
        bmcs.check_login(stored, uuid, async || Vec::new()).await
    };
    for unknown in ["", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(log_in(unknown).await.unwrap(), made);
    }
    assert_eq!(log_in(OWN).await.unwrap().system_uuid, OWN);
    let refused = log_in(OTHER).await.unwrap_err();
    assert!(matches!(refused, Error::OtherMachine(_)), "{refused}");
    let warned = bmcs.get(id).await.unwrap();
    assert_eq!(warned.warning, format!("the BMC lists UUID {OTHER}, not {OWN}"));
    assert_eq!(log_in(OTHER).await.unwrap_err().to_string(), refused.to_string());
    assert_eq!(bmcs.get(id).await.unwrap(), warned, "the same warning is written once");
    let swapped = log_in(SWAPPED).await.unwrap();
    assert_eq!((swapped.warning.as_str(), swapped.system_uuid.as_str()), ("", OWN));
}

#[tokio::test]
async fn a_stored_placeholder_counts_as_no_uuid() {
    let (_, bmcs) = bmcs();
    let system_uuid = machine_uuid::PLACEHOLDERS[0].to_owned();
    let stored = pb::Bmc { system_uuid, ..bmc(HardwareId::new()) };
    let stored = bmcs.create(stored, Login::Skip, None).await.unwrap();
    assert_eq!(stored.system_uuid, machine_uuid::PLACEHOLDERS[0]);
    let found = bmcs.check_login(stored, OWN, async || Vec::new()).await.unwrap();
    assert_eq!((found.system_uuid.as_str(), found.warning.as_str()), (OWN, ""));
}
