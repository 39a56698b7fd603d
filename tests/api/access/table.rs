//! Every call of the contract, by every caller: it is admitted as `docs/reference/access.md` says, and one that is refused changes
//! nothing.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, MethodDescriptor};
use runtime::{Caller, MachinePurpose, Role};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::calls::{self, Client, methods, path};
use super::content::{ContentReader, changed_keys};
use super::requests::{WITHOUT_CHANGE, changing};
use super::site::Site;

/// A row of the table.
pub struct Row {
    callers: Vec<String>,
    services: Vec<String>,
    pub is_open_to_tenants: bool,
}

/// Returns the rows of the page by path.
pub fn rows() -> BTreeMap<String, Row> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/access.md");
    let page = std::fs::read_to_string(page).unwrap();
    let names = |cell: &str| cell.split(", ").map(str::to_owned).collect();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `/")?.split('|').map(str::trim).collect();
        let [path, callers, services, with_tenant, _] = cells[..] else { return None };
        let is_open_to_tenants = with_tenant == "yes";
        let row = Row { callers: names(callers), services: names(services), is_open_to_tenants };
        Some((format!("/{}", path.trim_end_matches('`')), row))
    });
    rows.collect()
}

impl Row {
    /// True if the row admits `caller`, or one without a role.
    fn admits(&self, caller: Option<&Caller>) -> bool {
        let has = |name: &str| self.callers.iter().any(|it| it == name);
        let Some(caller) = caller.filter(|_| !has("everyone")) else { return has("everyone") };
        match caller.role() {
            Role::Service => match &**caller.subject() {
                "service:tinwright" => self.services.iter().any(|it| !it.is_empty()),
                one => self.services.iter().any(|it| format!("service:{it}") == one),
            },
            Role::Machine(_, MachinePurpose::Work) => has("machine (work)"),
            Role::Machine(_, purpose) => has(&format!("machine ({})", purpose.name())),
            role @ (Role::Edge | Role::Door | Role::Builder) => has(role.name()),
            role @ (Role::Viewer | Role::Operator | Role::Admin) => {
                has(role.name()) && (caller.tenant().is_none() || self.is_open_to_tenants)
            }
        }
    }
}

/// A caller, and the role of the connection that forwards its calls, if one does.
struct Column {
    caller: Option<Caller>,
    forwarded_by: Option<Role>,
}

impl Column {
    async fn client(&self, site: &Site) -> Client {
        match self.forwarded_by {
            None => Client::new(site.server.channel_of(self.caller.clone()).await),
            Some(by) => Client::new(site.server.channel(Some(by)).await)
                .forwarding(self.caller.clone().unwrap()),
        }
    }

    /// True if the connection may not forward this caller: none of its calls is admitted.
    fn is_forged(&self) -> bool {
        let role = self.caller.as_ref().map(Caller::role);
        let is_person = matches!(role, Some(Role::Viewer | Role::Operator | Role::Admin));
        self.forwarded_by.is_some_and(|by| by != Role::Door || !is_person)
    }

    fn name(&self) -> String {
        let caller = self.caller.as_ref().map_or("nobody".into(), Caller::to_string);
        self.forwarded_by.map_or(caller.clone(), |by| format!("{caller} by {by}"))
    }
}

/// Returns every role and purpose, with and without tenant, by itself and forwarded.
fn columns(site: &Site) -> Vec<Column> {
    let machine = site.id("working").parse().unwrap();
    let with_tenant = |role| Caller::from(role).with_tenant("acme".parse().unwrap()).unwrap();
    let people = [Role::Viewer, Role::Operator, Role::Admin];
    let people = people.into_iter().flat_map(|role| [role.into(), with_tenant(role)]);
    let processes = [Role::Edge, Role::Door, Role::Builder, Role::Service].map(Caller::from);
    let services = [
        "address", "hardware", "identity", "instance", "metadata", "netboot", "node", "power",
        "workflow",
    ];
    let services = services.map(|it| Caller::new(Role::Service, &format!("service:{it}")).unwrap());
    let purposes = [MachinePurpose::Work, MachinePurpose::Enrol, MachinePurpose::Node];
    let machines = purposes.map(|purpose| Role::Machine(machine, purpose).into());
    let column = |caller, forwarded_by| Column { caller, forwarded_by };
    let direct = people.clone().chain(processes.clone()).chain(services).chain(machines.clone());
    let mut columns: Vec<_> = direct.map(|caller| column(Some(caller), None)).collect();
    columns.push(column(None, None));
    let by_door = people.chain(processes).chain(machines);
    columns.extend(by_door.map(|caller| column(Some(caller), Some(Role::Door))));
    let others = [Role::Viewer, Role::Admin, Role::Service, Role::Edge, Role::worker(machine)];
    columns.extend(others.map(|by| column(Some(Role::Admin.into()), Some(by))));
    columns
}

/// True if access control refused the call `path`, and not its service.
fn is_refused(path: &str, status: &Status) -> bool {
    let text = status.message();
    let call = path.rsplit_once('.').map_or(path, |(_, call)| call);
    let is_denied = text.ends_with(call) || text.starts_with("tinwright-caller-bin");
    let is_stranger = text == "a client certificate of this site is needed";
    (status.code() == Code::PermissionDenied && is_denied)
        || (status.code() == Code::Unauthenticated && is_stranger)
        || (status.code() == Code::Unimplemented && text.starts_with("no call"))
}

/// Returns the request for `method`: of `json` if it is there, else without any field.
fn request(method: &MethodDescriptor, json: Option<&Value>) -> DynamicMessage {
    calls::request(method, json.cloned().unwrap_or_else(|| json!({})))
}

#[tokio::test]
async fn every_caller_makes_its_calls_and_no_other_and_a_refused_call_changes_nothing() {
    let site = Site::start().await;
    let (rows, mut reader) = (rows(), ContentReader::new(&site.server).await);
    let changing: BTreeMap<_, _> = changing(&site).into_iter().collect();
    let requests =
        |path: &str| changing.iter().find(|(name, _)| path.ends_with(*name)).map(|it| it.1);
    for column in columns(&site) {
        let (client, name) = (column.client(&site).await, column.name());
        let is_admitted = |method: &MethodDescriptor| {
            !column.is_forged() && rows[&path(method)].admits(column.caller.as_ref())
        };
        let (admitted, refused): (Vec<_>, Vec<_>) = methods().into_iter().partition(is_admitted);
        for method in admitted {
            let begun = client.begin(&method, request(&method, None)).await;
            let status = begun.map(drop).err().filter(|it| is_refused(&path(&method), it));
            assert!(status.is_none(), "{name}, {}: {status:?}", path(&method));
        }
        let before = reader.read().await;
        for method in refused {
            let path = path(&method);
            let begun = client.begin(&method, request(&method, requests(&path))).await;
            let status = begun.map(drop).expect_err(&format!("{name}, {path}"));
            assert!(is_refused(&path, &status), "{name}, {path}: {status}");
        }
        // Once for all calls of the caller, since a whole backup is read. The keys name the object.
        let after = reader.read().await;
        assert_eq!(changed_keys(&before, &after), [""; 0], "a call of {name}");
    }
    site.server.end().await;
}

/// Without this, a refused call might have changed nothing because its request was wrong.
#[tokio::test]
async fn the_requests_of_the_refused_calls_change_something_when_they_are_admitted() {
    let site = Site::start().await;
    let (rows, mut reader) = (rows(), ContentReader::new(&site.server).await);
    let columns = columns(&site);
    let requests = changing(&site);
    for (name, json) in &requests {
        let method = calls::method(name);
        let row = &rows[&path(&method)];
        let admitted = columns.iter().find(|it| {
            it.forwarded_by.is_none()
                && it
                    .caller
                    .as_ref()
                    .is_some_and(|it| it.tenant().is_none() && row.admits(Some(it)))
        });
        let client = admitted.unwrap().client(&site).await;
        let before = reader.read().await;
        let outcome = client.begin(&method, calls::request(&method, json.clone())).await;
        if WITHOUT_CHANGE.contains(name) {
            continue;
        }
        outcome.unwrap_or_else(|status| panic!("{name}: {status}"));
        assert_ne!(changed_keys(&before, &reader.read().await), [""; 0], "{name}");
    }
    let reads = ["Check", "Explain", "Get", "List", "Read", "Watch"];
    for method in methods() {
        let is_named = |name: &str| path(&method).ends_with(name);
        let is_covered = requests.iter().map(|(name, _)| name).chain(WITHOUT_CHANGE);
        let is_read = reads.iter().any(|verb| method.name().starts_with(verb));
        assert!(is_read || is_covered.into_iter().any(|name| is_named(name)), "{}", path(&method));
    }
    site.server.end().await;
}

#[tokio::test]
async fn the_full_view_is_for_admins_only_whoever_forwards_the_call() {
    let site = Site::start().await;
    let has_view = |method: &MethodDescriptor| method.input().get_field_by_name("view").is_some();
    let rows = rows();
    for column in columns(&site).into_iter().filter(|it| !it.is_forged()) {
        let (client, name) = (column.client(&site).await, column.name());
        let Some(caller) = &column.caller else { continue };
        let is_trusted = matches!(caller.role(), Role::Admin | Role::Service | Role::Edge);
        for method in methods().into_iter().filter(has_view) {
            if !rows[&path(&method)].admits(Some(caller)) {
                continue;
            }
            let full = request(&method, Some(&json!({"view": "VIEW_FULL"})));
            let status = client.begin(&method, full).await.map(drop).err();
            let is_refused = status.is_some_and(|it| it.code() == Code::PermissionDenied);
            assert_eq!(is_refused, !is_trusted, "{name}, {}", path(&method));
        }
    }
    site.server.end().await;
}
