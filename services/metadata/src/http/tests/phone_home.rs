//! The call home: stored before it is thanked for.

use super::*;

#[tokio::test]
async fn a_call_home_is_stored_before_it_is_thanked_for() {
    let site = site();
    site.call_home("instance_id=i-0001&hostname=node1").await.says("{}");
    let calls = site.told.calls.lock().unwrap();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((call.hardware, call.instance_id.as_str()), (node1().id, "i-0001"));
    assert_eq!(call.fields.get("hostname").map(String::as_str), Some("node1"));
}

#[tokio::test]
async fn a_call_home_is_taken_at_each_of_its_addresses() {
    let site = site();
    for path in ["/phone-home", "/latest/meta-data/phone-home/", "/2009-04-04/meta-data/phone-home"]
    {
        site.send_body(NODE1, "POST", path, &[], "").await.says("{}");
    }
    assert_eq!(site.told.calls.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_call_home_that_is_not_stored_is_to_be_repeated() {
    let told = Told { broken: true, ..Told::default() };
    let site = site_with(vec![node1()], told, Config::default());
    let answer = site.call_home("").await;
    answer.refused(503);
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_call_home_as_another_instance_is_a_conflict() {
    let site = site();
    site.call_home("instance_id=i-9999").await.refused(409);
    site.call_home(r#"{"instance_id": "i-9999"}"#).await.refused(409);
    assert!(site.told.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_home_that_makes_no_sense_is_malformed() {
    site().call_home("{").await.refused(400);
    site().call_home(&"x".repeat(64 * 1024 + 1)).await.refused(400);
}

#[tokio::test]
async fn a_strangers_call_home_is_thanked_for_and_not_stored() {
    let site = site();
    site.send_body(STRANGER, "POST", "/phone-home", &[], "instance_id=i-1").await.says("{}");
    assert!(site.told.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_eleventh_call_home_in_a_minute_is_too_many() {
    let site = site();
    for _ in 0..10 {
        site.call_home("").await.says("{}");
    }
    site.call_home("").await.refused(429);
    site.get("/latest/meta-data/instance-id").await.says("i-0001");
}
