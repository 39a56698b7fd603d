//! Objects of each noun in each of their usual states, made by calls.

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::authority::request_certificate;
use runtime::{Caller, Role};
use serde_json::{Value, json};

use super::client::{Client, method, path};
use super::recording::base64;
use super::replay::id;
use crate::process::Process;

const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A site in the making.
pub(crate) struct Site<'a> {
    pub(crate) client: &'a Client<'a>,
    pub(crate) process: &'a Process,
    pub(crate) admin: Caller,
    ids: BTreeMap<String, String>,
}

impl<'a> Site<'a> {
    pub(crate) fn new(client: &'a Client<'a>, process: &'a Process) -> Self {
        Self { client, process, admin: Role::Admin.into(), ids: BTreeMap::new() }
    }

    /// Makes all objects that need no network of machines.
    pub(crate) async fn populate(&mut self) {
        self.tenants().await;
        self.identities().await;
        self.places().await;
        self.models().await;
        self.machines().await;
        self.reports().await;
        self.subnets().await;
        self.ranges().await;
        self.bindings().await;
        self.templates().await;
        self.bmcs().await;
        self.workflows().await;
        self.works().await;
        self.instances().await;
        self.installations().await;
        self.deleted_instance().await;
        self.grants().await;
        self.stacks().await;
        self.power_jobs().await;
    }

    /// Returns the id of the object `name`.
    pub(crate) fn id(&self, name: &str) -> String {
        self.ids.get(name).unwrap_or_else(|| panic!("no object {name}")).clone()
    }

    /// Notes the id of the object `name`.
    pub(crate) fn name(&mut self, name: &str, id: &str) {
        self.ids.insert(name.to_owned(), id.to_owned());
    }

    /// Makes a call as an admin.
    pub(crate) async fn call(&self, name: &str, json: Value) -> Value {
        let admin = self.admin.clone();
        self.call_as(&admin, name, json).await
    }

    pub(crate) async fn call_as(&self, caller: &Caller, name: &str, json: Value) -> Value {
        let called = self.client.call(caller, name, json.clone()).await;
        called.unwrap_or_else(|error| panic!("{name}: {json}: {error}"))
    }

    /// Creates an object by a call as an admin. Notes its id as that of `name`.
    pub(crate) async fn create(&mut self, name: &str, call: &str, json: Value) -> Value {
        let created = self.call(call, json).await;
        self.name(name, &id(&created).unwrap_or_else(|| panic!("{created}")));
        created
    }

    /// Makes a call until its response is `expected`. Records the last one only.
    pub(crate) async fn until(
        &self,
        call: &str,
        request: Value,
        expected: impl Fn(&Value) -> bool,
    ) -> Value {
        let before = self.client.calls.borrow().len();
        let mut last = Value::Null;
        let reached = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                self.client.calls.borrow_mut().truncate(before);
                last = self.call(call, request.clone()).await;
                if expected(&last) {
                    return;
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        });
        assert!(reached.await.is_ok(), "{call}: {last}");
        last
    }

    /// Changes the fields `mask` of an object by a call as an admin.
    pub(crate) async fn update(&self, service: &str, noun: &str, object: Value, mask: &str) {
        let call = method(&self.client.pool, &format!("{service}/Update{noun}"));
        let field = call.input().get_field(1).unwrap();
        let mut request = json!({field.name(): object, "update_mask": mask});
        if call.input().get_field_by_name("skip_login").is_some() {
            request["skip_login"] = true.into();
        }
        self.call(&path(&call), request).await;
    }

    /// Creates an object, and deletes it.
    pub(crate) async fn create_and_delete(&mut self, service: &str, noun: &str, request: Value) {
        let call = |verb: &str| format!("{service}/{verb}{noun}");
        self.create("gone", &call("Create"), request).await;
        self.call(&call("Delete"), json!({"id": self.id("gone")})).await;
    }

    async fn tenants(&mut self) {
        let tenant = json!({"name": "acme", "description": "d", "labels": {"tier": "gold"}});
        let tenant = json!({"tenant": tenant, "request_id": "tenant-1"});
        self.create("acme", "TenantService/CreateTenant", tenant).await;
        let described = json!({"id": self.id("acme"), "description": "described"});
        self.update("TenantService", "Tenant", described, "description").await;
        let gone = json!({"tenant": {"name": "gone"}});
        self.create_and_delete("TenantService", "Tenant", gone).await;
    }

    async fn identities(&mut self) {
        let create = "IdentityService/CreateCredential";
        let key = json!({"role": "ROLE_VIEWER", "description": "dashboard"});
        self.create("key", create, json!({"credential": key, "request_id": "credential-1"})).await;
        let fields = json!({"user": "anna", "password": "correct horse battery"});
        let login =
            json!({"role": "ROLE_OPERATOR", "tenant": "acme", "hubs": ["h"], "locations": ["l"]});
        let login = json!({"credential": login, "fields": fields});
        self.create("login", create, login).await;
        let door = Role::Door.into();
        self.call_as(&door, "IdentityService/Authenticate", json!({"fields": fields})).await;
        let gone = json!({"credential": {"role": "ROLE_ADMIN"}});
        self.create_and_delete("IdentityService", "Credential", gone).await;
        let anna = json!({"role": "ROLE_VIEWER", "subject": "person:anna", "lifetime": "86400s"});
        self.certificate(anna).await;
        let issued = self.certificate(json!({"role": "ROLE_OPERATOR", "tenant": "acme"})).await;
        let serial = json!({"serial": issued["certificate"]["serial"]});
        self.call("IdentityService/RevokeCertificate", serial).await;
    }

    /// Issues a certificate.
    async fn certificate(&self, mut request: Value) -> Value {
        request["certificate_request"] = base64(&request_certificate().unwrap().0);
        self.call("IdentityService/IssueCertificate", request).await
    }
}
