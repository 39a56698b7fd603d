//! The configuration of a location, as the platform stores it: a view of the LocationBinding in force. It holds no secret, and what
//! comes back is compared with ours, never used.

use serde_json::{Value, json};
use tinwright::address::v1::{
    GetLocationBindingRequest, LocationBinding, get_location_binding_request,
};
use tonic::Code as Grpc;

use super::fault::{Code, Fault};
use super::requests::{FORMAT, SentConfiguration};
use super::session::Session;
use super::status;

/// Returns the version of a binding: other bindings have other versions, too.
pub fn version(binding: &LocationBinding) -> String {
    format!("{}.{}", binding.id, binding.version)
}

/// Returns the configuration of `location`, by name, for callers of `tenant`.
pub fn document(binding: &LocationBinding, location: &str, tenant: &str) -> Value {
    // Written by operators of the site, who gave it as an object.
    let settings: Value =
        serde_json::from_str(&binding.configuration).unwrap_or_else(|_| json!({}));
    json!({
        "format": FORMAT,
        "tenant": tenant,
        "location": location,
        "binding": binding.id,
        "version": version(binding),
        "configuration": settings,
    })
}

/// Refuses a configuration that was made for another tenant or location, or that shows the binding
/// of another tenant. One that shows a deleted binding is stale, which is no error. The location
/// itself has to be checked before, because an unknown one is the more precise fault.
pub(super) async fn check(
    session: &Session,
    sent: Option<&SentConfiguration>,
    location: &str,
) -> Result<(), Fault> {
    let Some(sent) = sent else { return Ok(()) };
    check_owner(sent, location, &session.tenant())?;
    match &sent.binding {
        Some(id) => check_binding(session, id).await,
        None => Ok(()),
    }
}

fn check_owner(sent: &SentConfiguration, location: &str, tenant: &str) -> Result<(), Fault> {
    let is_other = |sent: &Option<String>, own: &str| sent.as_deref().is_some_and(|it| it != own);
    if is_other(&sent.tenant, tenant) {
        let title = "location_configuration/tenant: belongs to another tenant";
        return Err(unusable("tenant", title));
    }
    if is_other(&sent.location, location) {
        let title = "location_configuration/location: belongs to another location";
        return Err(unusable("location", title));
    }
    Ok(())
}

async fn check_binding(session: &Session, id: &str) -> Result<(), Fault> {
    // Read as the gateway itself: for the client there is no binding of another tenant, and so it would look like a deleted one.
    let by = Some(get_location_binding_request::By::Id(id.to_owned()));
    let found = match session.backend().call(GetLocationBindingRequest { by }).await {
        Ok(found) => found.location_binding.unwrap_or_default(),
        Err(error) if matches!(error.code(), Grpc::NotFound | Grpc::InvalidArgument) => {
            return Ok(());
        }
        Err(error) => {
            return Err(status::fault(&error, &Fault::new(Code::Unknown, "unexpected failure")));
        }
    };
    if found.tenant.is_empty() || found.tenant == session.tenant() {
        return Ok(());
    }
    Err(unusable("binding", "location_configuration/binding: belongs to another tenant"))
}

fn unusable(key: &str, title: &'static str) -> Fault {
    Fault::new(Code::InvalidArgument, title).at(format!("/request/location_configuration/{key}"))
}

/// True if the platform has another configuration than the one in force.
pub fn is_stale(sent: Option<&SentConfiguration>, binding: Option<&LocationBinding>) -> bool {
    let sent = sent.and_then(|sent| sent.version.as_deref());
    binding.is_some_and(|binding| sent != Some(&version(binding)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> LocationBinding {
        let configuration = r#"{"vlan": 214}"#.to_owned();
        LocationBinding { id: "b".into(), version: 3, configuration, ..LocationBinding::default() }
    }

    fn sent(tenant: &str, location: &str, version: &str) -> SentConfiguration {
        let some = |text: &str| Some(text.to_owned());
        let [tenant, location, version] = [some(tenant), some(location), some(version)];
        SentConfiguration { format: Some(1), tenant, location, binding: None, version }
    }

    #[test]
    fn the_document_shows_the_binding() {
        let document = document(&binding(), "kir1", "acme");
        assert_eq!(document["configuration"], json!({"vlan": 214}));
        assert_eq!((&document["version"], &document["format"]), (&json!("b.3"), &json!(1)));
    }

    #[test]
    fn one_of_others_is_refused_and_an_old_one_is_not() {
        let check = |sent| {
            let checked = check_owner(&sent, "kir1", "acme");
            checked.map_err(|fault| (fault.source.unwrap(), fault.title))
        };
        assert_eq!(check(sent("acme", "kir1", "b.1")), Ok(()));
        let refused =
            |key: &str, title| Err((format!("/request/location_configuration/{key}"), title));
        let of_tenant = "location_configuration/tenant: belongs to another tenant";
        assert_eq!(check(sent("other", "kir1", "b.1")), refused("tenant", of_tenant));
        assert_eq!(check(sent("other", "kir2", "b.1")), refused("tenant", of_tenant));
        let of_location = "location_configuration/location: belongs to another location";
        assert_eq!(check(sent("acme", "kir2", "b.1")), refused("location", of_location));
        assert!(is_stale(Some(&sent("acme", "kir1", "b.1")), Some(&binding())));
        assert!(is_stale(None, Some(&binding())));
        assert!(!is_stale(Some(&sent("acme", "kir1", "b.3")), Some(&binding())));
        assert!(!is_stale(None, None));
    }
}
