//! Reports of machines: phone-home calls, events of installers, and started scripts.

use std::sync::atomic::Ordering;

use super::site::{MAC, MACHINE, OTHER, Site};
use netboot::bootscripts::custom::ScriptReport;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1::{Hardware, Ipxe};
use tinwright::instance::v1::ReportPhoneHomeRequest;

#[tokio::test]
async fn a_phone_home_call_is_stored_before_the_response() {
    let site = Site::start().await;
    let form =
        ["--data-urlencode", "instance_id=i-1", "--data-urlencode", "pub_key_rsa=ssh-rsa A+="];
    let json = ["-d", r#"{"type": "provisioning.104.01", "instance_id": "i-1"}"#];
    for options in [&form[..], &json] {
        assert_eq!(site.curl(MACHINE, options, "/phone-home").await.status, 200);
    }
    assert_eq!(site.curl(MACHINE, &["-X", "PUT"], "/phone-home").await.status, 200);
    let call = |instance: &str, kind: &str, keys: &[&str]| ReportPhoneHomeRequest {
        hardware_id: site.id.to_string(),
        instance_id: instance.into(),
        host_keys: keys.iter().map(|key| (*key).into()).collect(),
        kind: kind.into(),
    };
    let installer = call("i-1", "provisioning.104.01", &[]);
    let calls = [call("i-1", "", &["ssh-rsa A+="]), installer, call("", "", &[])];
    assert_eq!(*site.phone_home.calls.lock().await, calls);
}

#[tokio::test]
async fn a_phone_home_call_that_is_not_stored_gets_503() {
    let site = Site::start().await;
    site.phone_home.broken.store(true, Ordering::Relaxed);
    let later = site.curl(MACHINE, &["-d", ""], "/phone-home").await;
    assert_eq!((later.status, later.header("retry-after")), (503, "5".into()));
    assert_eq!(site.curl(MACHINE, &["-d", "{"], "/phone-home").await.status, 400);
}

#[tokio::test]
async fn an_unknown_client_gets_200_and_nothing_is_stored() {
    let site = Site::start().await;
    for path in ["/phone-home", "/events"] {
        assert_eq!(site.curl(OTHER, &["-d", "instance_id=i-1"], path).await.status, 200, "{path}");
    }
    for path in ["/problem", "/hardware-components"] {
        assert_eq!(site.curl(OTHER, &["-d", "{}"], path).await.status, 404, "{path}");
    }
    assert!(site.phone_home.calls.lock().await.is_empty());
}

#[tokio::test]
async fn events_of_installers_are_accepted_from_machines_with_a_workflow() {
    let site = Site::start().await;
    for (path, body, status) in [
        ("/events", r#"{"code": 1, "state": "ok", "message": "x"}"#, 200),
        ("/events", "", 400),
        ("/problem", r#"{"problem": "no-disk"}"#, 200),
        ("/hardware-components", r#"{"components": []}"#, 200),
        ("/hardware-components", "{", 400),
    ] {
        let answer = site.curl(MACHINE, &["-d", body], path).await;
        assert_eq!(answer.status, status, "{path} {body}");
    }
    assert_eq!(site.curl(MACHINE, &[], "/phone-home/key").await.status, 404);
}

#[tokio::test]
async fn the_start_of_a_one_shot_script_is_reported() {
    let site = Site::start().await;
    let known = site.boots.index.by_mac(MAC).unwrap();
    let mut record: Hardware = (*known.hardware).clone();
    let once = Ipxe { contents: "#!ipxe\necho once".into(), ..Ipxe::default() };
    record.interfaces[0].netboot.as_mut().unwrap().boot_once = Some(once);
    site.fleet.hardware(FeedEvent::Put(record));
    let script = site.curl(MACHINE, &[], "/auto.ipxe").await.text();
    let note = script.split_whitespace().find(|word| word.ends_with("/once.started")).unwrap();
    assert_eq!(site.curl_url(MACHINE, &[], note).await.status, 200);
    let report = site.reports.lock().await.recv().await.unwrap();
    let ScriptReport::OneShot { hardware, script } = report else { panic!("{report:?}") };
    assert_eq!((hardware, script.mac), (site.id, MAC));
    let text = note.replace(".started", ".ipxe");
    assert_eq!(site.curl_url(MACHINE, &[], &text).await.text(), "#!ipxe\necho once");
    assert!(site.curl(MACHINE, &[], "/auto.ipxe").await.text().contains("worker_id="));
}
