//! A version of a stack on twenty nodes: a few at a time, a stop at a failure, and the way back.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::site::{Site, containers};

/// Returns the versions of the nodes by their names.
fn versions(nodes: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("0").to_owned();
    nodes.iter().map(|node| (text(&node["name"]), text(&node["stack_version"]))).collect()
}

#[tokio::test]
async fn a_rollout_stops_at_a_node_that_fails_says_which_and_why_and_is_rolled_back() {
    let site = Site::start(20, Some(7)).await;
    site.applying.most.store(0, Ordering::SeqCst);
    // Those after the one that fails: else they could be done before it reports.
    site.machines[8..].iter().for_each(|it| it.is_slow.store(true, Ordering::SeqCst));
    let update = json!({
        "stack": {"id": site.stack, "containers": containers("/sbin/bad")}, "update_mask": "containers",
        "rollout": {"max_concurrent": 3},
    });
    site.admin.call("StackService/UpdateStack", update).await.unwrap();
    let stopped = site.rollout_end().await;
    assert_eq!(stopped["state"], "ROLLOUT_STATE_STOPPED", "{stopped}");
    assert_eq!(stopped["state_reason"], "1 failed, 0 may: n07: no such image");
    assert_eq!(
        (&stopped["counts"]["nodes"], &stopped["counts"]["failed"]),
        (&json!(20), &json!(1))
    );
    assert!(site.applying.most.load(Ordering::SeqCst) <= 3, "three at a time");
    let nodes = site.nodes().await;
    let newer = versions(&nodes).into_iter().filter(|(_, version)| version == "2").count();
    assert!((8..=10).contains(&newer), "{newer} nodes have the new version");
    let failed: Vec<_> = nodes.iter().filter(|it| it["state"] == "NODE_STATE_FAILED").collect();
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &json!("n07")));

    let back = json!({"id": site.stack, "rollout": {"max_concurrent": 5}});
    site.admin.call("StackService/RollBackStack", back).await.unwrap();
    let done = site.rollout_end().await;
    assert_eq!((&done["state"], &done["version"]), (&json!("ROLLOUT_STATE_DONE"), &json!("1")));
    assert_eq!(done["counts"]["running"], json!(newer), "only those that took it");
    site.until_all("NODE_STATE_RUNNING", 1).await;
    for machine in &site.machines[10..] {
        assert_eq!(machine.desired.lock().unwrap().len(), 1, "{}", machine.name);
    }
    let list = json!({"filter": {"noun": "stack"}, "page_size": 1000});
    let events = site.admin.call("EventService/ListEvents", list).await.unwrap();
    let alarm =
        events["events"].as_array().unwrap().iter().find(|it| it["kind"] == "EVENT_KIND_ALARM");
    assert_eq!(alarm.unwrap()["text"], "1 failed, 0 may: n07: no such image");
    site.server.end().await;
}

#[tokio::test]
async fn a_rollout_is_for_selected_nodes_and_continues_over_some_failures() {
    let site = Site::start(6, Some(2)).await;
    let labels = json!({"rack": "r0"});
    let update = json!({
        "stack": {"id": site.stack, "containers": containers("/sbin/bad")}, "update_mask": "containers",
        "rollout": {"max_failures": 1, "node_labels": labels},
    });
    site.admin.call("StackService/UpdateStack", update).await.unwrap();
    let done = site.rollout_end().await;
    assert_eq!(done["state"], "ROLLOUT_STATE_DONE", "{done}");
    assert_eq!((&done["counts"]["running"], &done["counts"]["failed"]), (&json!(2), &json!(1)));
    let expected =
        [("n00", "2"), ("n01", "1"), ("n02", "2"), ("n03", "1"), ("n04", "2"), ("n05", "1")];
    let expected = expected.map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert_eq!(versions(&site.nodes().await), expected);
    let delete = json!({"id": site.stack});
    let used = site.admin.call("StackService/DeleteStack", delete).await.unwrap_err();
    assert!(used.message().contains("is the desired stack of node"), "{used}");
    site.server.end().await;
}

#[tokio::test]
async fn a_node_whose_instance_is_deleted_is_told_to_remove_its_stack() {
    let site = Site::start(2, None).await;
    let instances = site.instances().await;
    let first = instances.iter().find(|it| it["hardware_id"] == site.machines[0].id).unwrap();
    let delete = json!({"id": first["id"], "force": true});
    site.admin.call("InstanceService/DeleteInstance", delete).await.unwrap();
    let is_told = async || {
        let desired = site.machines[0].desired.lock().unwrap();
        desired.last().is_some_and(|it| it.stack_id.is_empty() && it.assignment == 2)
    };
    crate::support::until(is_told, "the node is told").await;
    assert_eq!(site.machines[1].desired.lock().unwrap().len(), 1);
    site.server.end().await;
}

#[tokio::test]
async fn instances_are_active_when_their_stacks_run_and_stay_so_when_a_stack_changes() {
    let site = Site::start(2, None).await;
    let are_active = async || {
        let instances = site.instances().await;
        instances.iter().all(|it| it["state"] == "STATE_ACTIVE" && it["stack_time"].is_string())
    };
    crate::support::until(are_active, "the instances are active").await;
    // An update of the stack changes nothing of the instances.
    let before = site.instances().await;
    let update = json!({
        "stack": {"id": site.stack, "containers": containers("/sbin/other")}, "update_mask": "containers",
    });
    site.admin.call("StackService/UpdateStack", update).await.unwrap();
    site.until_all("NODE_STATE_RUNNING", 2).await;
    assert_eq!(site.instances().await, before);
    site.server.end().await;
}

#[tokio::test]
async fn an_instance_may_name_a_stack_that_is_created_later() {
    let site = Site::start(1, None).await;
    let hardware = json!({"name": "early", "state": "STATE_PROVISIONABLE", "interfaces": [{"mac": "02:00:00:00:01:00"}]});
    let created = site.admin.call("HardwareService/CreateHardware", json!({"hardware": hardware}));
    let id = created.await.unwrap()["hardware"]["id"].clone();
    let instance = json!({"hardware_id": id, "image_stack": {"stack_id": "later"}});
    site.admin.call("InstanceService/CreateInstance", json!({"instance": instance})).await.unwrap();
    let node = async || {
        let found = site.admin.call("NodeService/GetNode", json!({"name": "early"})).await;
        found.map(|it| it["node"].clone()).unwrap_or_default()
    };
    let reason = "there is no stack later";
    crate::support::until(async || node().await["state_reason"] == reason, "the reason").await;
    let stack = json!({"name": "later", "containers": containers("/sbin/init")});
    site.admin.call("StackService/CreateStack", json!({"stack": stack})).await.unwrap();
    crate::support::until(async || node().await["stack_version"] == "1", "the stack").await;
    assert_eq!(node().await["state"], "NODE_STATE_APPLYING");
    let used = site.admin.call("NodeService/DeleteNode", json!({"id": id})).await.unwrap_err();
    assert!(used.message().contains("has the instance"), "{used}");
    site.server.end().await;
}
