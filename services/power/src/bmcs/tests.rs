//! BMCs in a store: created, found, changed and deleted, their passwords encrypted.

use super::*;
use runtime::secret::SiteKey;
use runtime::site_keys::SiteKeys;
use store::memory::MemoryStore;
use tinwright::HardwareId;

fn bmcs() -> (Arc<MemoryStore>, Bmcs) {
    let store = Arc::new(MemoryStore::default());
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    (store.clone(), Bmcs::new(store, seal, PlaintextHttp::Refused, Clock::system()))
}

fn bmc(hardware: HardwareId) -> pb::Bmc {
    pb::Bmc {
        hardware_id: hardware.to_string(),
        redfish_url: "https://192.0.2.1".into(),
        username: "admin".into(),
        password: "hunter2".into(),
        ..pb::Bmc::default()
    }
}

async fn password(bmcs: &Bmcs, bmc: &pb::Bmc) -> String {
    bmcs.target(bmc).await.unwrap().password.expose().clone()
}

#[tokio::test]
async fn a_password_is_stored_encrypted_and_never_returned() {
    let (store, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), None).await.unwrap();
    assert_eq!(made.password, "");
    let all = store.list("", "", 100).await.unwrap().pairs;
    assert_eq!(all.len(), 3, "record, index, password");
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
        made.push(bmcs.create(bmc(HardwareId::new()), None).await.unwrap());
    }
    assert_eq!(bmcs.reseal().await.unwrap(), 0);
    keys.set(new.clone(), vec![old]);
    let later = bmcs.create(bmc(HardwareId::new()), None).await.unwrap();
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
    let made = bmcs.create(bmc(hardware), None).await.unwrap();
    assert_eq!(bmcs.get_by_hardware(&hardware.to_string()).await.unwrap(), made);
    let second = bmcs.create(bmc(hardware), None).await.unwrap_err().to_string();
    assert_eq!(second, format!("hardware {hardware} is taken by BMC {}", made.id));
}

#[tokio::test]
async fn an_omitted_password_stays() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), None).await.unwrap();
    let update = pb::Bmc { username: "root".into(), ..made.clone() };
    let renamed = bmcs.update(update, &[]).await.unwrap();
    assert_eq!((renamed.username.as_str(), renamed.password.as_str()), ("root", ""));
    assert_eq!(password(&bmcs, &renamed).await, "hunter2");
    let update = pb::Bmc { password: "other".into(), ..renamed.clone() };
    let changed = bmcs.update(update, &["password".into()]).await.unwrap();
    assert_ne!(changed.revision, renamed.revision);
    assert_eq!(password(&bmcs, &changed).await, "other");
}

#[tokio::test]
async fn a_new_url_requires_the_password_again() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), None).await.unwrap();
    let moved = pb::Bmc { redfish_url: "https://192.0.2.66".into(), ..made.clone() };
    let refused = bmcs.update(moved.clone(), &["redfish_url".into()]).await.unwrap_err();
    assert!(refused.to_string().starts_with("password: is required"), "{refused}");
    assert!(bmcs.update(moved.clone(), &[]).await.is_err());
    let given = pb::Bmc { password: "new".into(), ..moved };
    let moved = bmcs.update(given, &[]).await.unwrap();
    assert_eq!(password(&bmcs, &moved).await, "new");
}

#[tokio::test]
async fn a_stale_update_and_an_unknown_field_change_nothing() {
    let (_, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), None).await.unwrap();
    let stale = pb::Bmc { revision: made.revision + 1, ..made.clone() };
    let stale = bmcs.update(stale, &[]).await;
    assert!(matches!(stale, Err(Error::Records(records::Error::Changed { .. }))));
    let other = bmcs.update(made.clone(), &["hardware_id".into()]).await;
    assert!(matches!(other, Err(Error::Invalid(_))));
    assert_eq!(bmcs.get(made.id.parse().unwrap()).await.unwrap(), made);
}

#[tokio::test]
async fn a_deleted_bmc_leaves_nothing_behind() {
    let (store, bmcs) = bmcs();
    let made = bmcs.create(bmc(HardwareId::new()), None).await.unwrap();
    bmcs.delete(made.id.parse().unwrap(), made.revision).await.unwrap();
    assert!(store.list("", "", 1).await.unwrap().pairs.is_empty());
    let again = bmcs.delete(made.id.parse().unwrap(), 0).await;
    assert!(matches!(again, Err(Error::Records(records::Error::Missing { .. }))));
}
