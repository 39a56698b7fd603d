//! Update masks: putting a caller's fields in the place of those that are stored.

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage as _};

use crate::json;
use crate::status::Violations;

/// Which top-level fields of a message a caller may replace, by their proto names.
#[derive(Clone, Copy, Debug)]
pub struct UpdatableFields {
    /// All of them.
    pub mutable: &'static [&'static str],
    /// Those of them that basic views leave empty.
    pub hidden: &'static [&'static str],
}

impl UpdatableFields {
    /// `old` with the fields that `paths` names from `update`. Without a path it is every mutable one, but for hidden ones
    /// that `update` leaves empty: who writes back what a basic view showed takes nothing away.
    pub fn merge<M: Message + Name + Default>(
        &self,
        old: &M,
        update: &M,
        paths: &[String],
    ) -> Result<M, Violations> {
        let mut wrong = Violations::default();
        for path in paths.iter().filter(|path| !self.mutable.contains(&path.as_str())) {
            wrong.add("update_mask", format!("{path:?} is no field that can be updated"));
        }
        wrong.into_result(())?;
        let failed = |error: json::Error| Violations::single("update_mask", error);
        let mut new = json::dynamic(old).map_err(failed)?;
        let update = json::dynamic(update).map_err(failed)?;
        for name in self.mutable {
            let named = paths.iter().any(|path| path == name);
            let kept = self.hidden.contains(name) && !update.has_field_by_name(name);
            if named || paths.is_empty() && !kept {
                replace(&mut new, &update, name);
            }
        }
        M::decode(new.encode_to_vec().as_slice()).map_err(|error| failed(error.into()))
    }
}

/// Of fields that exclude each other, naming one that `update` does not have takes that one away, and leaves the others.
fn replace(new: &mut DynamicMessage, update: &DynamicMessage, name: &str) {
    let Some(field) = update.descriptor().get_field_by_name(name) else { return };
    if update.has_field(&field) {
        new.set_field(&field, update.get_field(&field).into_owned());
    } else {
        new.clear_field(&field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::v1::Instance;
    use crate::instance::v1::instance::{CustomIpxe, OperatingSystem, Os};

    const FIELDS: UpdatableFields = UpdatableFields {
        mutable: &["hostname", "tags", "userdata", "custom_ipxe", "operating_system"],
        hidden: &["userdata"],
    };

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
        FIELDS.merge(&old(), &update, &paths)
    }

    #[test]
    fn what_is_named_is_replaced_and_nothing_else() {
        let update = Instance { id: "other".into(), hostname: "db".into(), ..Default::default() };
        let new = merged(update, &["hostname", "userdata"]).unwrap();
        assert_eq!(new, Instance { hostname: "db".into(), userdata: String::new(), ..old() });
    }

    #[test]
    fn without_a_mask_hidden_fields_stay_where_none_are_given() {
        let new = merged(Instance::default(), &[]).unwrap();
        let kept = Instance { id: "i".into(), userdata: "secret".into(), ..Default::default() };
        assert_eq!(new, kept);
        let given = Instance { userdata: "new".into(), ..Default::default() };
        assert_eq!(merged(given, &[]).unwrap().userdata, "new");
    }

    #[test]
    fn of_two_that_exclude_each_other_the_one_given_stays() {
        let script = CustomIpxe { contents: "#!ipxe".into(), ..Default::default() };
        let update = Instance { os: Some(Os::CustomIpxe(script)), ..Default::default() };
        assert!(merged(update.clone(), &[]).unwrap().os == update.os);
        assert!(merged(update.clone(), &["custom_ipxe"]).unwrap().os == update.os);
        assert!(merged(Instance::default(), &["custom_ipxe"]).unwrap().os == old().os);
        assert!(merged(update, &["operating_system"]).unwrap().os.is_none());
    }

    #[test]
    fn every_field_that_cannot_be_updated_is_named() {
        let wrong = merged(Instance::default(), &["id", "hostname", "x"]).unwrap_err().to_string();
        assert!(wrong.contains("\"id\" is no field") && wrong.contains("\"x\" is no"), "{wrong}");
    }
}
