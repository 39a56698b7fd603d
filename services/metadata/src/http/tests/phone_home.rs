//! Phone-home calls.

use super::*;

#[tokio::test]
async fn a_phone_home_call_is_stored_before_the_response() {
    let site = site();
    site.call_home("instance_id=i-0001&hostname=node1").await.assert_body("{}");
    let calls = site.reports.calls.lock().unwrap();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((call.hardware, call.instance_id.as_str()), (node1().id, "i-0001"));
    assert_eq!(call.fields.get("hostname").map(String::as_str), Some("node1"));
}

#[tokio::test]
async fn a_phone_home_call_is_accepted_at_each_of_its_paths() {
    let site = site();
    for path in ["/phone-home", "/latest/meta-data/phone-home/", "/2009-04-04/meta-data/phone-home"]
    {
        site.send_body(NODE1, "POST", path, &[], "").await.assert_body("{}");
    }
    assert_eq!(site.reports.calls.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_phone_home_call_that_is_not_stored_is_to_be_repeated() {
    let reports = Reports { broken: true, ..Reports::default() };
    let site = site_with(vec![node1()], reports, Config::default());
    let answer = site.call_home("").await;
    answer.refused(503);
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_phone_home_call_of_another_instance_is_a_conflict() {
    let site = site();
    site.call_home("instance_id=i-9999").await.refused(409);
    site.call_home(r#"{"instance_id": "i-9999"}"#).await.refused(409);
    assert!(site.reports.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_unreadable_phone_home_call_is_malformed() {
    site().call_home("{").await.refused(400);
    site().call_home(&"x".repeat(64 * 1024 + 1)).await.refused(400);
}

#[tokio::test]
async fn an_unknown_callers_phone_home_call_succeeds_and_is_not_stored() {
    let site = site();
    site.send_body(UNKNOWN, "POST", "/phone-home", &[], "instance_id=i-1").await.assert_body("{}");
    assert!(site.reports.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_eleventh_phone_home_call_in_a_minute_is_refused() {
    let site = site();
    for _ in 0..10 {
        site.call_home("").await.assert_body("{}");
    }
    site.call_home("").await.refused(429);
    site.get("/latest/meta-data/instance-id").await.assert_body("i-0001");
}
