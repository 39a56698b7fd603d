//! Update masks: a caller's fields replace the stored ones.
//!
//! The contract says which top-level fields an update may name: those that are neither `output_only` nor `immutable`.

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _};

use crate::json;
use crate::options::is_set;
use crate::status::Violations;

/// Returns `old` with the fields that `paths` names taken from `update`.
///
/// Without a path every updatable field is taken, except secret ones that `update` leaves empty: a caller who writes back a
/// basic view removes nothing.
pub fn merge<M: Message + Name + Default>(
    old: &M,
    update: &M,
    paths: &[String],
) -> Result<M, Violations> {
    let failed = |error: json::Error| Violations::single("update_mask", error);
    let mut new = json::dynamic(old).map_err(failed)?;
    let update = json::dynamic(update).map_err(failed)?;
    let fields: Vec<_> = update.descriptor().fields().filter(is_updatable).collect();
    let mut wrong = Violations::default();
    for path in paths.iter().filter(|path| !fields.iter().any(|field| field.name() == **path)) {
        wrong.add("update_mask", format!("{path:?} is not a field that can be updated"));
    }
    wrong.into_result(())?;
    for field in fields {
        let named = paths.iter().any(|path| path == field.name());
        let hidden = is_set(&field, "secret") && !update.has_field(&field);
        if named || paths.is_empty() && !hidden {
            replace(&mut new, &update, &field);
        }
    }
    M::decode(new.encode_to_vec().as_slice()).map_err(|error| failed(error.into()))
}

/// Returns the names of the updatable fields that differ, in the order of their numbers.
pub fn changed_fields<M: Message + Name>(old: &M, new: &M) -> Vec<String> {
    let (Ok(old), Ok(new)) = (json::dynamic(old), json::dynamic(new)) else { return Vec::new() };
    let differs = |field: &FieldDescriptor| {
        old.has_field(field) != new.has_field(field) || old.get_field(field) != new.get_field(field)
    };
    let message = old.descriptor();
    let changed = message.fields().filter(is_updatable).filter(differs);
    changed.map(|field| field.name().to_owned()).collect()
}

fn is_updatable(field: &FieldDescriptor) -> bool {
    !is_set(field, "output_only") && !is_set(field, "immutable")
}

/// Replaces `field`. Naming a case of a oneof that `update` does not have clears that case and leaves the others.
fn replace(new: &mut DynamicMessage, update: &DynamicMessage, field: &FieldDescriptor) {
    if update.has_field(field) {
        new.set_field(field, update.get_field(field).into_owned());
    } else {
        new.clear_field(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::v1::Instance;
    use crate::instance::v1::instance::{CustomIpxe, OperatingSystem, Os};

    fn old() -> Instance {
        let debian = OperatingSystem { distro: "debian".into(), ..Default::default() };
        Instance {
            id: "i".into(),
            hostname: "web".into(),
            tags: vec!["a".into()],
            userdata: "secret".into(),
            os: Some(Os::OperatingSystem(debian)),
            ..Default::default()
        }
    }

    fn merged(update: Instance, paths: &[&str]) -> Result<Instance, Violations> {
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        merge(&old(), &update, &paths)
    }

    #[test]
    fn a_mask_replaces_the_named_fields_only() {
        let update = Instance { id: "other".into(), hostname: "db".into(), ..Default::default() };
        let new = merged(update, &["hostname", "userdata"]).unwrap();
        assert_eq!(new, Instance { hostname: "db".into(), userdata: String::new(), ..old() });
    }

    #[test]
    fn without_a_mask_empty_secrets_keep_the_stored_ones() {
        let new = merged(Instance::default(), &[]).unwrap();
        let kept = Instance { id: "i".into(), userdata: "secret".into(), ..Default::default() };
        assert_eq!(new, kept);
        let given = Instance { userdata: "new".into(), ..Default::default() };
        assert_eq!(merged(given, &[]).unwrap().userdata, "new");
    }

    #[test]
    fn of_two_cases_of_a_oneof_the_new_one_stays() {
        let script = CustomIpxe { contents: "#!ipxe".into(), ..Default::default() };
        let update = Instance { os: Some(Os::CustomIpxe(script)), ..Default::default() };
        assert!(merged(update.clone(), &[]).unwrap().os == update.os);
        assert!(merged(update.clone(), &["custom_ipxe"]).unwrap().os == update.os);
        assert!(merged(Instance::default(), &["custom_ipxe"]).unwrap().os == old().os);
        assert!(merged(update, &["operating_system"]).unwrap().os.is_none());
    }

    #[test]
    fn changed_fields_are_those_that_an_update_may_name() {
        let new = merged(Instance { hostname: "db".into(), ..Default::default() }, &[]).unwrap();
        let new = Instance { revision: 7, state_reason: "x".into(), ..new };
        assert_eq!(changed_fields(&old(), &new), ["hostname", "operating_system", "tags"]);
        assert!(changed_fields(&new, &new).is_empty());
    }

    #[test]
    fn every_field_that_cannot_be_updated_is_named() {
        let wrong = merged(Instance::default(), &["id", "hostname", "x"]).unwrap_err().to_string();
        assert!(
            wrong.contains("\"id\" is not a field") && wrong.contains("\"x\" is not"),
            "{wrong}"
        );
    }
}
