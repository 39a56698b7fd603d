//! The columns of tables, by the paths of the fields that they show: `STATE:rollout.state`.
//!
//! | a field that is | is shown as |
//! |---|---|
//! | an enum | the word for its value: `soft-off` |
//! | a time | the time since then; of `due_time` and `expire_time` the time until then |
//! | true or false | yes or no |
//! | a list | its elements between commas, or with `interfaces.0.mac` its first one |

use std::time::SystemTime;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value};

use super::{Row, age, time_until};
use crate::files::{dynamic, human};

/// Returns the headers of `columns`.
pub(crate) fn headers(columns: &str) -> impl Iterator<Item = &str> {
    columns.split(',').map(|column| column.split_once(':').map_or(column, |(header, _)| header))
}

/// Returns the values of `object` in its columns.
pub(super) fn row<R: Row>(object: &R, now: SystemTime) -> Vec<String> {
    // The contract has every message.
    let Ok(message) = dynamic(object) else {
        return headers(R::COLUMNS).map(|_| String::new()).collect();
    };
    let cell = |column: &str| match column.split_once(':') {
        Some((_, path)) => text(&message, path, now),
        None => object.cell(column),
    };
    R::COLUMNS.split(',').map(cell).collect()
}

/// Returns the text of the field at `path` of `message`.
fn text(message: &DynamicMessage, path: &str, now: SystemTime) -> String {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(field) = message.descriptor().get_field_by_name(name) else { return String::new() };
    let one = |value: &Value, rest: &str| match value.as_message() {
        Some(inner) if !rest.is_empty() => text(inner, rest, now),
        Some(time) if message.has_field(&field) => {
            let time = time.transcode_to().ok();
            if ["due_time", "expire_time"].contains(&name) {
                time_until(time, now)
            } else {
                age(time, now)
            }
        }
        Some(_) | None => plain(&field, value),
    };
    let value = message.get_field(&field);
    match (value.as_ref(), rest.strip_prefix("0.")) {
        (Value::List(all), Some(rest)) => all.first().map_or_else(String::new, |it| one(it, rest)),
        (Value::List(all), None) => {
            all.iter().map(|it| one(it, rest)).collect::<Vec<_>>().join(",")
        }
        (value, _) => one(value, rest),
    }
}

fn plain(field: &FieldDescriptor, value: &Value) -> String {
    match (value, field.kind()) {
        (Value::EnumNumber(number), Kind::Enum(values)) => {
            let value = values.get_value(*number).unwrap_or_else(|| values.default_value());
            human::word(&values, value.name())
        }
        (Value::Bool(value), _) => if *value { "yes" } else { "no" }.into(),
        (Value::String(text), _) => text.clone(),
        (Value::I32(number), _) => number.to_string(),
        (Value::I64(number), _) => number.to_string(),
        (Value::U32(number), _) => number.to_string(),
        (Value::U64(number), _) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Timestamp;
    use tinwright::hardware::v1::{Geography, Hardware, Interface, Location, Zone};
    use tinwright::node::v1::{Rollout, RolloutCounts, RolloutState, Stack};

    fn value(object: &impl prost::Name, path: &str) -> String {
        text(&dynamic(object).unwrap(), path, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_path_leads_through_messages_and_lists() {
        let zone = |name: &str| Zone { name: name.into(), ..Zone::default() };
        let geography = Geography { city: "Kiruna".into(), ..Geography::default() };
        let geography = Some(geography);
        let zones = vec![zone("a"), zone("b")];
        let location = Location { zones, geography, ..Location::default() };
        assert_eq!(value(&location, "zones.name"), "a,b");
        assert_eq!(value(&location, "geography.city"), "Kiruna");
        assert_eq!(value(&Location::default(), "geography.city"), "");
        let mac = |mac: &str| Interface { mac: mac.into(), ..Interface::default() };
        let interfaces = vec![mac("m1"), mac("m2")];
        let machine = Hardware { interfaces, ..Hardware::default() };
        assert_eq!(value(&machine, "interfaces.0.mac"), "m1");
        assert_eq!(value(&machine, "interfaces.0.dhcp.address.address"), "");
        assert_eq!(value(&Hardware::default(), "interfaces.0.mac"), "");
    }

    #[test]
    fn a_value_is_shown_by_its_type() {
        let counts = Some(RolloutCounts { nodes: 3, ..RolloutCounts::default() });
        let rollout = Rollout { state: RolloutState::Done.into(), counts, ..Rollout::default() };
        let create_time = Some(Timestamp { seconds: -7200, nanos: 0 });
        let stack = Stack { rollout: Some(rollout), create_time, ..Stack::default() };
        let shown = ["rollout.state", "rollout.counts.nodes", "create_time", "update_time"];
        assert_eq!(shown.map(|path| value(&stack, path)), ["done", "3", "2h", ""]);
        assert_eq!(value(&Stack::default(), "rollout.counts.nodes"), "0");
        let unknown = Hardware { state: 99, ..Hardware::default() };
        assert_eq!(value(&unknown, "state"), "unspecified");
        assert_eq!(value(&unknown, "protect"), "no");
    }
}
