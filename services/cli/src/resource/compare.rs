//! The differences between an object of a file and the stored one, by field.
//!
//! Fields that the server sets are ignored, and so are secrets that the file leaves out: a basic view is without them.

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};
use serde_json::Value as Json;
use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::group_diff_ops;
use similar::udiff::UnifiedHunkHeader;
use tinwright::options::is_set;
use tinwright::{field_mask, json};

use crate::files::{descriptor, dynamic, human};

/// Lines around a changed one in a diff.
const CONTEXT_LINES: usize = 3;

/// A change of a stored object.
#[derive(Debug)]
pub struct Change<M> {
    /// The object as it should be.
    pub object: M,
    /// The fields that differ.
    pub fields: Vec<String>,
    /// True if others than secrets differ.
    pub is_visible: bool,
}

/// Returns the change of `stored` to `desired`; without `fields`, in all fields that an update may name. Those in `preserved` do not
/// change.
pub fn change<M: Message + Name + Default>(
    stored: &M,
    desired: &M,
    fields: &Option<Vec<String>>,
    preserved: &[&str],
) -> anyhow::Result<Change<M>> {
    let (old, mut new) = (dynamic(stored)?, dynamic(desired)?);
    check_immutable(&old, &new)?;
    fill_secrets(&mut new, &old);
    for field in preserved.iter().filter_map(|name| old.descriptor().get_field_by_name(name)) {
        new.set_field(&field, old.get_field(&field).into_owned());
    }
    let new = M::decode(new.encode_to_vec().as_slice())?;
    let named = fields.clone().unwrap_or_default();
    let is_updatable = |name: &String| {
        let field = old.descriptor().get_field_by_name(name);
        field.is_some_and(|it| !is_set(&it, "output_only") && !is_set(&it, "immutable"))
    };
    let named: Vec<_> = named.into_iter().filter(is_updatable).collect();
    let object = match (fields, named.as_slice()) {
        (Some(_), []) => M::decode(stored.encode_to_vec().as_slice())?,
        (_, named) => field_mask::merge(stored, &new, named)?,
    };
    let fields = field_mask::changed_fields(stored, &object);
    let is_visible = !visible(stored, &object)?.is_empty();
    Ok(Change { object, fields, is_visible })
}

/// Returns the fields that differ without regard to secrets.
pub fn visible<M: Message + Name + Default>(old: &M, new: &M) -> anyhow::Result<Vec<String>> {
    Ok(field_mask::changed_fields(&without_secrets(old)?, &without_secrets(new)?))
}

/// Returns the lines that differ in YAML, without secrets.
pub fn diff<M: Message + Name + Default>(old: Option<&M>, new: &M) -> anyhow::Result<String> {
    let old = old.map(yaml).transpose()?.unwrap_or_default();
    Ok(changed_lines(&old, &yaml(new)?))
}

/// Returns the lines that differ in two texts, with lines around them.
fn changed_lines(old: &str, new: &str) -> String {
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    // `similar::TextDiff` would bring all algorithms along.
    let mut diff = Compact::new(Replace::new(Capture::new()), &*old, &*new);
    let Ok(()) = myers::diff(&mut diff, &*old, 0..old.len(), &*new, 0..new.len());
    let mut lines = String::new();
    for hunk in group_diff_ops(diff.into_inner().into_inner().into_ops(), CONTEXT_LINES) {
        lines.push_str(&format!("{}\n", UnifiedHunkHeader::new(&hunk)));
        for change in hunk.iter().flat_map(|part| part.iter_changes(&*old, &*new)) {
            lines.extend([&*change.tag().to_string(), change.value()]);
        }
    }
    lines
}

/// Returns `message` in YAML, without secrets and without fields that the server sets.
fn yaml<M: Message + Name + Default>(message: &M) -> anyhow::Result<String> {
    let descriptor = descriptor::<M>()?;
    let mut value = json::write(&without_secrets(message)?)?;
    if let Json::Object(fields) = &mut value {
        fields.retain(|name, _| {
            descriptor.get_field_by_name(name).is_none_or(|field| !is_set(&field, "output_only"))
        });
    }
    Ok(yaml::document(&human::value(&descriptor, value)))
}

/// Returns `message` as another site may have it: without secrets, and without what the server sets.
pub fn portable<M: Message + Name + Default>(message: &M) -> anyhow::Result<M> {
    let mut message = dynamic(message)?;
    clear(&mut message, &["secret", "output_only"]);
    Ok(M::decode(message.encode_to_vec().as_slice())?)
}

fn without_secrets<M: Message + Name + Default>(message: &M) -> anyhow::Result<M> {
    let mut message = dynamic(message)?;
    clear_secrets(&mut message);
    Ok(M::decode(message.encode_to_vec().as_slice())?)
}

/// An update ignores these fields, so a file with another value would never be fulfilled.
#[expect(clippy::wildcard_enum_match_arm, reason = "immutable fields are words and numbers")]
fn check_immutable(old: &DynamicMessage, new: &DynamicMessage) -> anyhow::Result<()> {
    let descriptor = old.descriptor();
    for field in descriptor.fields().filter(|field| is_set(field, "immutable")) {
        let is_same = !new.has_field(&field) || old.get_field(&field) == new.get_field(&field);
        let text = |message: &DynamicMessage| match message.get_field(&field).as_ref() {
            Value::String(text) => text.clone(),
            Value::Bool(value) => value.to_string(),
            Value::I64(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        anyhow::ensure!(
            is_same,
            "{} cannot be changed from {:?} to {:?}: delete the object first",
            field.name(),
            text(old),
            text(new)
        );
    }
    Ok(())
}

fn clear_secrets(message: &mut DynamicMessage) {
    clear(message, &["secret"]);
}

/// Clears the fields with one of these options, also inside of other messages.
fn clear(message: &mut DynamicMessage, options: &[&str]) {
    let fields: Vec<_> = message.descriptor().fields().collect();
    for field in fields {
        if options.iter().any(|option| is_set(&field, option)) {
            message.clear_field(&field);
        } else if message.has_field(&field) {
            let value = message.get_field_mut(&field);
            if let Value::Message(inner) = value {
                clear(inner, options);
            } else if let Value::List(elements) = value {
                let inner = elements.iter_mut().filter_map(Value::as_message_mut);
                inner.for_each(|inner| clear(inner, options));
            }
        }
    }
}

/// Puts the secrets of `old` into the messages inside of `new` that are without them, and are the same otherwise. Those of the object
/// itself stay as they are: an update leaves them alone.
fn fill_secrets(new: &mut DynamicMessage, old: &DynamicMessage) {
    let fields: Vec<_> = new.descriptor().fields().filter(|field| !field.is_map()).collect();
    for field in &fields {
        if !new.has_field(field) || !old.has_field(field) {
            continue;
        }
        match (new.get_field_mut(field), old.get_field(field).as_ref()) {
            (Value::Message(new), Value::Message(old)) => fill_message(new, old),
            (Value::List(new), Value::List(old)) => {
                for new in new.iter_mut() {
                    let old = old.iter().find(|old| first_field(old) == first_field(new));
                    if let (Value::Message(new), Some(Value::Message(old))) = (new, old) {
                        fill_message(new, old);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the first field of a message, by which elements of a list are told apart: the MAC of an interface.
fn first_field(value: &Value) -> Option<Value> {
    let message = value.as_message()?;
    let field = message.descriptor().get_field(1)?;
    Some(message.get_field(&field).into_owned())
}

fn fill_message(new: &mut DynamicMessage, old: &DynamicMessage) {
    let mut visible = old.clone();
    clear_secrets(&mut visible);
    if *new == visible {
        *new = old.clone();
    } else {
        fill_secrets(new, old);
    }
}

#[cfg(test)]
mod tests {
    use similar::TextDiff;

    use super::*;
    use tinwright::hardware::v1::{Hardware, Interface, Ipxe, Netboot};
    use tinwright::instance::v1::Instance;

    fn scripted(contents: &str, mac: &str) -> Hardware {
        let ipxe = Some(Ipxe { contents: contents.into(), ..Ipxe::default() });
        let netboot = Some(Netboot { ipxe, ..Netboot::default() });
        let interfaces = vec![Interface { mac: mac.into(), netboot, ..Interface::default() }];
        Hardware {
            id: "h".into(),
            name: "a".into(),
            interfaces,
            revision: 7,
            ..Hardware::default()
        }
    }

    #[test]
    fn secrets_and_fields_of_the_server_that_a_file_leaves_out_are_no_change() {
        let stored = Hardware { extra: b"{}".into(), ..scripted("secret", "m1") };
        let file = Hardware { revision: 3, ..scripted("", "m1") };
        assert!(change(&stored, &file, &None, &[]).unwrap().fields.is_empty());
        // A change elsewhere keeps them.
        let renamed = change(&stored, &Hardware { name: "b".into(), ..file }, &None, &[]).unwrap();
        assert_eq!(
            (renamed.fields.as_slice(), renamed.is_visible),
            (&["name".to_owned()][..], true)
        );
        assert_eq!(renamed.object, Hardware { name: "b".into(), ..stored.clone() });
        // Another interface in its place does not inherit them.
        let moved = change(&stored, &scripted("", "m2"), &None, &[]).unwrap();
        assert_eq!(
            (moved.fields, moved.object.interfaces),
            (vec!["interfaces".into()], scripted("", "m2").interfaces)
        );
    }

    #[test]
    fn another_secret_is_a_change_that_is_not_visible() {
        let (stored, file) = (scripted("old", "m1"), scripted("new", "m1"));
        let changed = change(&stored, &file, &None, &[]).unwrap();
        assert_eq!(
            (changed.fields.as_slice(), changed.is_visible),
            (&["interfaces".to_owned()][..], false)
        );
        assert_eq!(diff(Some(&stored), &file).unwrap(), "");
    }

    #[test]
    fn fields_that_cannot_be_updated_may_be_absent_but_not_different() {
        let stored = Instance { id: "i".into(), hardware_id: "h1".into(), ..Instance::default() };
        let file = |machine: &str| Instance { hardware_id: machine.into(), ..Instance::default() };
        assert!(change(&stored, &file(""), &None, &[]).unwrap().fields.is_empty());
        let error = change(&stored, &file("h2"), &None, &[]).unwrap_err().to_string();
        assert_eq!(
            error,
            "hardware_id cannot be changed from \"h1\" to \"h2\": delete the object first"
        );
        let reserved = Instance { reserve_only: true, ..file("") };
        let error = change(&stored, &reserved, &None, &[]).unwrap_err().to_string();
        assert!(
            error.contains("reserve_only cannot be changed from \"false\" to \"true\""),
            "{error}"
        );
    }

    #[test]
    fn a_partial_file_changes_the_fields_that_it_has() {
        let stored = Hardware { facility: "f".into(), plan: "p".into(), ..scripted("", "m1") };
        let file = Hardware { plan: "q".into(), ..Hardware::default() };
        let fields = Some(vec!["plan".to_owned(), "state".to_owned()]);
        let changed = change(&stored, &file, &fields, &[]).unwrap();
        assert_eq!(changed.object, Hardware { plan: "q".into(), ..stored });
        assert_eq!(changed.fields, ["plan"]);
    }

    #[test]
    fn a_diff_has_the_changed_lines() {
        let old = Hardware { plan: "p".into(), revision: 1, ..Hardware::default() };
        let new = Hardware { plan: "q".into(), revision: 2, ..Hardware::default() };
        let text = diff(Some(&old), &new).unwrap();
        assert!(text.ends_with("-plan: p\n+plan: q\n") && !text.contains("revision"), "{text}");
    }

    #[test]
    fn changed_lines_are_those_of_a_unified_diff() {
        let text = |changed: &[usize]| -> String {
            let line =
                |n| if changed.contains(&n) { format!("new {n}\n") } else { format!("{n}\n") };
            (0..40).map(line).collect()
        };
        let removed = text(&[]).replace("17\n18\n", "");
        for (old, new) in [
            ("", "a: 1\n"),
            ("a: 1\n", "a: 2\n"),
            ("a: 1\n", "a: 1\n"),
            (&text(&[]), &text(&[3, 5, 30, 39])),
            (&text(&[20]), &removed),
        ] {
            let diff = TextDiff::from_lines(old, new);
            let expected = diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
            assert_eq!(changed_lines(old, new), expected);
        }
        assert_eq!(changed_lines("a\nb\n", "a\nc\n"), "@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }
}
