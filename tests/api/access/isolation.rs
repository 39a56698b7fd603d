//! A tenant finds nothing of another tenant, by any call, filter, page token, watch, log or error, and changes nothing of it.

use prost::Message as _;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};
use tonic::{Code, Status, Streaming};

use super::calls::{self, Client, SOON, methods, path};
use super::content::{ContentReader, changed_keys};
use super::customers::{Customer, Customers};
use super::table::rows;

/// Returns the fields of `message` that hold one text, as paths; those in its messages, too.
fn text_fields(message: &MessageDescriptor) -> Vec<String> {
    let fields = message.fields().filter(|field| !field.is_list() && !field.is_map());
    let paths = fields.flat_map(|field| {
        if field.kind() == Kind::String {
            return vec![field.name().to_owned()];
        }
        let kind = field.kind();
        let inner = kind.as_message().filter(|it| it.full_name().starts_with("tinwright"));
        let inner = inner.map(text_fields).unwrap_or_default().into_iter();
        inner.map(|path| format!("{}.{path}", field.name())).collect()
    });
    paths.collect()
}

/// Returns `json` with `value` in the field `path`.
fn with_field(mut json: Value, path: &str, value: &str) -> Value {
    let pointer = path.split('.').fold(&mut json, |at, name| &mut at[name]);
    *pointer = value.into();
    json
}

/// Returns the requests of `method` with `value` in one field each, or among the labels.
fn requests_with(method: &MethodDescriptor, value: &str) -> Vec<Value> {
    let is_update = method.name().starts_with("Update");
    let fields = text_fields(&method.input());
    let fields = fields.into_iter().filter(|path| !is_update || path.ends_with(".id"));
    let mut requests: Vec<_> = fields.map(|path| with_field(json!({}), &path, value)).collect();
    if method.input().get_field_by_name("labels").is_some() {
        requests.push(json!({"labels": {"mark": value}}));
    }
    if is_update {
        requests.iter_mut().for_each(|it| it["update_mask"] = "labels".into());
    }
    requests
}

/// The outcome of a call: its responses until a watch is synced.
async fn outcome(
    client: &Client,
    method: &MethodDescriptor,
    request: &Value,
) -> Result<Vec<DynamicMessage>, Status> {
    let responses = client.begin(method, calls::request(method, request.clone())).await?;
    let until_synced = async |mut responses: Streaming<DynamicMessage>| {
        let mut read = Vec::new();
        while let Some(response) = responses.message().await? {
            let is_synced = !calls::json(&response)["synced"].is_null();
            read.push(response);
            if is_synced {
                break;
            }
        }
        Ok(read)
    };
    tokio::time::timeout(SOON, until_synced(responses)).await.expect("the response ends")
}

/// Returns the bytes of all that the caller is told.
fn told(outcome: &Result<Vec<DynamicMessage>, Status>) -> Vec<u8> {
    match outcome {
        Ok(responses) => responses.iter().flat_map(DynamicMessage::encode_to_vec).collect(),
        Err(status) => [status.message().as_bytes(), status.details()].concat(),
    }
}

/// Asserts that `outcome` has no value of `customer`, except `sent`.
fn assert_nothing_of(customer: &Customer, sent: &[&str], told: &[u8], call: &str) {
    for (value, _) in customer.values().into_iter().filter(|(value, _)| !sent.contains(value)) {
        let is_told = told.windows(value.len()).any(|part| part == value.as_bytes());
        assert!(!is_told, "{call} names {value}: {}", String::from_utf8_lossy(told));
    }
}

/// Returns the calls that a tenant may make, without health, reflection and enrollment.
fn tenant_calls() -> Vec<MethodDescriptor> {
    let rows = rows();
    let is_open = |it: &MethodDescriptor| rows[&path(it)].is_open_to_tenants;
    methods().into_iter().filter(|it| is_open(it) && it.name() != "Redeem").collect()
}

#[tokio::test]
async fn a_tenant_is_told_nothing_of_another_one_and_changes_nothing_of_it() {
    let site = Customers::start().await;
    let (acme, other) = (&site.acme, &site.other);
    let mut reader = ContentReader::new(&site.server).await;
    let before = reader.read().await;
    // Objects of their own have any text.
    let creates = ["CreateTemplate", "CreateImage"];
    for method in tenant_calls().into_iter().filter(|it| !creates.contains(&it.name())) {
        let all = outcome(&acme.admin, &method, &json!({})).await;
        assert_nothing_of(other, &[], &told(&all), &path(&method));
        for (value, unknown) in other.values() {
            let requests = requests_with(&method, value).into_iter();
            for (request, twin) in requests.zip(requests_with(&method, &unknown)) {
                let call = format!("{}({request})", path(&method));
                let found = outcome(&acme.admin, &method, &request).await;
                assert_nothing_of(other, &[value], &told(&found), &call);
                let missing = outcome(&acme.admin, &method, &twin).await;
                assert_eq!(text(&found), text(&missing).replace(&unknown, value), "{call}");
            }
        }
    }
    assert_eq!(changed_keys(&before, &reader.read().await), [""; 0]);
    site.server.end().await;
}

/// Returns the field `name` as a field mask spells it in JSON.
fn json_name(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Returns the code and the text of an error. The text for an invalid value may have a part of it only, and is left out.
fn text(outcome: &Result<Vec<DynamicMessage>, Status>) -> String {
    match outcome {
        Ok(_) => "found".into(),
        Err(status) if status.code() == Code::InvalidArgument => "invalid".into(),
        Err(status) => format!("{:?} {}", status.code(), status.message()),
    }
}

#[tokio::test]
async fn references_of_a_tenants_objects_to_another_tenants_objects_lead_nowhere() {
    let site = Customers::start().await;
    let (acme, other) = (&site.acme, &site.other);
    let content = async || {
        let mut found = Vec::new();
        for (call, id) in [
            ("HardwareService/GetHardware", &other.machine),
            ("InstanceService/GetInstance", &other.instance),
            ("TemplateService/GetTemplate", &other.template),
            ("WorkflowService/GetWorkflow", &other.workflow),
            ("ImageService/GetImage", &other.image),
        ] {
            found.push(site.site_admin.call(call, json!({"id": id})).await.unwrap());
        }
        found
    };
    let before = content().await;
    let mut sent = Vec::new();
    for (value, _) in other.values() {
        sent.push(value);
        for (method, id) in [
            ("InstanceService/UpdateInstance", &acme.instance),
            ("TemplateService/UpdateTemplate", &acme.template),
            ("ImageService/UpdateImage", &acme.image),
            ("ImageService/CreateImage", &String::new()),
            ("TemplateService/CreateTemplate", &String::new()),
        ] {
            let method = calls::method(method);
            for field in text_fields(&method.input()).into_iter().filter(|it| !it.ends_with(".id"))
            {
                let Some((object, name)) = field.split_once('.') else { continue };
                let mut request = with_field(json!({object: {"id": id}}), &field, value);
                if method.name().starts_with("Update") {
                    request["update_mask"] = json_name(name.split('.').next().unwrap()).into();
                }
                let outcome = outcome(&acme.admin, &method, &request).await;
                let call = format!("{}({request})", path(&method));
                assert_nothing_of(other, &sent, &told(&outcome), &call);
            }
        }
    }
    // A template of another tenant is as good as none.
    let instance = json!({"id": acme.instance, "template_id": other.template});
    let update = json!({"instance": instance, "update_mask": "templateId"});
    let _accepted_or_not = acme.admin.call("InstanceService/UpdateInstance", update).await;
    let retry = acme.admin.call("InstanceService/RetryInstance", json!({"id": acme.instance}));
    if retry.await.is_ok() {
        let get = json!({"id": acme.instance});
        let has_failed = async || {
            let found = acme.admin.call("InstanceService/GetInstance", get.clone()).await.unwrap();
            found["instance"]["state"] == "STATE_FAILED"
        };
        crate::support::until(has_failed, "the template of another tenant is not found").await;
    }
    for method in tenant_calls().iter().filter(|it| it.name().starts_with("List")) {
        let listed = outcome(&acme.admin, method, &json!({})).await;
        assert_nothing_of(other, &sent, &told(&listed), &path(method));
    }
    assert_eq!(content().await, before);
    site.server.end().await;
}

/// Returns the next event of the watch `name`, which has nothing of `other`.
async fn next(stream: &mut Streaming<DynamicMessage>, other: &Customer, name: &str) -> Value {
    let event = tokio::time::timeout(SOON, stream.message()).await.expect("an event");
    let event = event.unwrap().unwrap();
    assert_nothing_of(other, &[], &event.encode_to_vec(), name);
    calls::json(&event)
}

#[tokio::test]
async fn a_watch_of_a_tenant_sends_no_change_of_another_one() {
    let site = Customers::start().await;
    let (acme, other) = (&site.acme, &site.other);
    let watches = ["InstanceService/WatchInstances", "TemplateService/WatchTemplates"];
    let watches =
        [&watches[..], &["WorkflowService/WatchWorkflows", "EventService/WatchEvents"]].concat();
    let mut streams = Vec::new();
    for name in &watches {
        let method = calls::method(name);
        let request = calls::request(&method, json!({}));
        let mut stream = acme.admin.begin(&method, request).await.unwrap();
        while next(&mut stream, other, name).await["synced"].is_null() {}
        streams.push((stream, name));
    }
    for customer in [other, acme] {
        let mark = format!("{}-later", customer.mark);
        let instance = json!({"id": customer.instance, "hostname": mark});
        let update = json!({"instance": instance, "update_mask": "hostname"});
        site.site_admin.call("InstanceService/UpdateInstance", update).await.unwrap();
        let template = json!({"id": customer.template, "name": mark});
        let update = json!({"template": template, "update_mask": "name"});
        customer.admin.call("TemplateService/UpdateTemplate", update).await.unwrap();
        let delete = json!({"id": customer.workflow});
        site.site_admin.call("WorkflowService/DeleteWorkflow", delete).await.unwrap();
    }
    for (mut stream, name) in streams {
        loop {
            let event = next(&mut stream, other, name).await;
            let is_own_change = match *name {
                "WorkflowService/WatchWorkflows" => event["deleted_id"] == acme.workflow.as_str(),
                "EventService/WatchEvents" => event.to_string().contains("UpdateTemplate"),
                _ => event.to_string().contains("-later"),
            };
            if is_own_change {
                break;
            }
        }
    }
    site.server.end().await;
}

#[tokio::test]
async fn a_page_token_of_another_tenants_listing_shows_no_objects_of_it() {
    let site = Customers::start().await;
    let has_pages = |it: &&MethodDescriptor| it.input().get_field_by_name("page_token").is_some();
    for method in tenant_calls().iter().filter(has_pages) {
        let first = json!({"page_size": 1});
        for from in [&site.site_admin, &site.other.admin] {
            let page = outcome(from, method, &first).await.unwrap();
            let token = calls::json(&page[0])["next_page_token"].clone();
            let Some(token) = token.as_str() else { continue };
            let next = json!({"page_size": 1000, "page_token": token});
            let found = outcome(&site.acme.admin, method, &next).await;
            assert_nothing_of(&site.other, &[], &told(&found), &path(method));
            let code = found.err().map(|status| status.code());
            assert!(matches!(code, None | Some(Code::InvalidArgument)), "{code:?}");
        }
    }
    site.server.end().await;
}
