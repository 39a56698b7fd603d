//! Nouns whose objects need nothing but a name. Their requests follow from the contract, so that a new noun has them at once.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::calls::POOL;
use super::site::Site;

/// The nouns whose objects need more: [`site`](super::site), [`requests`](super::requests) and
/// [`request_ids`](super::request_ids) have their requests.
const OTHERS: [&str; 9] = [
    "Bmc",
    "Hardware",
    "Instance",
    "LocationBinding",
    "Range",
    "Stack",
    "Subnet",
    "Template",
    "Tenant",
];

/// A noun with its calls, such as `LocationService/CreateLocation`.
pub struct PlainNoun {
    /// The field of requests that has an object, such as `location`.
    pub field: &'static str,
    pub create: &'static str,
    update: &'static str,
    delete: &'static str,
}

pub static PLAIN_NOUNS: LazyLock<Vec<PlainNoun>> = LazyLock::new(|| {
    let services = POOL.services().collect::<Vec<_>>();
    services.iter().flat_map(nouns).collect()
});

fn nouns(service: &prost_reflect::ServiceDescriptor) -> Vec<PlainNoun> {
    let calls: Vec<_> = service.methods().map(|method| method.name().to_owned()).collect();
    let updated = calls.iter().filter_map(|call| call.strip_prefix("Update"));
    let plain = updated.filter(|noun| !OTHERS.contains(noun));
    plain
        .map(|noun| {
            let call = |verb: &str| {
                let name = format!("{verb}{noun}");
                assert!(calls.contains(&name), "{name}");
                &*format!("{}/{name}", service.name()).leak()
            };
            let request = POOL
                .get_message_by_name(&format!("{}.Create{noun}Request", service.package_name()))
                .unwrap();
            let field = request.fields().find(|field| field.kind().as_message().is_some()).unwrap();
            let [create, update, delete] = ["Create", "Update", "Delete"].map(call);
            PlainNoun { field: field.name().to_owned().leak(), create, update, delete }
        })
        .collect()
}

impl PlainNoun {
    /// Returns the request that creates the object `name`.
    pub fn creation(&self, name: &str) -> Value {
        json!({self.field: {"name": name}})
    }

    /// Returns requests that create an object, change that of `site`, and delete it.
    pub fn changing(&self, site: &Site) -> [(&'static str, Value); 3] {
        let id = site.id(self.field);
        let labelled = json!({"id": id, "labels": {"x": "y"}});
        [
            (self.create, self.creation("new")),
            (self.update, json!({self.field: labelled, "update_mask": "labels"})),
            (self.delete, json!({"id": id})),
        ]
    }
}
