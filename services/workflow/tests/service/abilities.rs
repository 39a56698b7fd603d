//! Workers of older in-memory environments.

use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;

use crate::site::Site;

const MAPPED: &str = r#"
name: mapped
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: image2disk, environment: {DEST_DISK: /dev/vda, IMG_URL: /images/a.raw.zst, IMG_MAP: /images/a.map, IMG_MAP_SHA256: "00"}}
"#;
const WARNING: &str = "the in-memory environment is too old for action write, which needs map: build it again (tinwright osie build)";

#[tokio::test]
async fn an_old_worker_gets_no_action_that_it_cannot_run_and_the_workflow_says_why() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, MAPPED).await;
    let mut old = site.worker(machine);
    old.abilities = &[];
    let waiting = tokio::spawn(async move { old.instruction().await });
    let found = site.until(&made.id, |found| !found.warning.is_empty()).await;
    assert_eq!(found.warning, WARNING);
    assert_eq!(found.actions[0].state(), pb::ActionState::Pending);
    assert_eq!(site.alarms(&made.id).await, [WARNING]);
    assert!(!waiting.is_finished(), "it waits, as for any action");
    waiting.abort();
    let it = site.worker(machine).begin().await;
    assert_eq!(it.action.unwrap().name, "write");
    assert_eq!(site.get(&made.id).await.warning, "");
}
