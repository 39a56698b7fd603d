//! `apply`: creates or changes objects of all kinds from files, in the order of their references.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use anyhow::Context as _;
use prost::Name;
use serde_json::Value;
use tinwright::address::v1 as address;
use tinwright::hardware::v1 as hardware;
use tinwright::identity::v1 as identity;
use tinwright::instance::v1::Instance;
use tinwright::node::v1::Stack;
use tinwright::power::v1::Bmc;
use tinwright::workflow::v1::Template;

use crate::connect::Io;
use crate::failure::Failures;
use crate::files::{self, Object, form};
use crate::resource::Names;
use crate::resource::from_files::{self, Applied, Apply, ApplyOptions, FromFiles};
use crate::workflow;

type Applying<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Applied>> + 'a>>;

/// A kind of objects that files may have.
struct Kind {
    name: &'static str,
    /// Returns true if an object may have this key.
    has_key: fn(&str) -> bool,
    apply: for<'a> fn(&'a Object, &'a Apply<'a>) -> Applying<'a>,
}

/// All kinds, each after the kinds that its objects name.
static KINDS: [Kind; 12] = [
    kind::<identity::Tenant>(),
    kind::<hardware::Location>(),
    kind::<hardware::Model>(),
    kind::<address::Subnet>(),
    kind::<address::Range>(),
    kind::<address::LocationBinding>(),
    kind::<Template>(),
    kind::<hardware::Hardware>(),
    kind::<Bmc>(),
    kind::<Stack>(),
    kind::<Instance>(),
    Kind {
        name: "Workflow",
        // Only with its kind: a workflow may erase disks.
        has_key: |_| false,
        apply: |object, apply| Box::pin(workflow::apply(object, apply)),
    },
];

const fn kind<R: FromFiles + 'static>() -> Kind {
    Kind {
        name: R::NAME,
        has_key: |key| files::descriptor::<R>().is_ok_and(|message| form::is_field(&message, key)),
        apply: |object, apply| {
            Box::pin(async move {
                let read = from_files::read::<R>(object)?;
                let applied = from_files::apply_one(read, object, apply).await;
                let label = object.label(R::NAME);
                applied.with_context(|| format!("{}: {label}", object.position))
            })
        },
    }
}

/// Returns the names of all kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// Applies all objects in files. After an error it goes on with the next object.
pub async fn run(options: ApplyOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    apply(files::read_all(&options.files), &options, io).await
}

/// Applies the objects that were `read`. After an error it goes on with the next object.
pub(crate) async fn apply(
    read: Vec<anyhow::Result<Object>>,
    options: &ApplyOptions,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let (mut failures, mut objects) = (Failures::new(read.len()), Vec::new());
    for object in read {
        match object.and_then(|object| Ok((place(&object)?, object))) {
            Ok(object) => objects.push(object),
            Err(error) => failures.push(error),
        }
    }
    objects.sort_by_key(|(place, _)| *place);
    let expected = if options.dry_run { expected(&objects) } else { HashSet::new() };
    let apply = Apply { options, names: Names::new(io.channel, expected) };
    for (place, object) in &objects {
        let kind = &KINDS[*place];
        let label = object.label(kind.name);
        from_files::print_notes(object, &label, io)?;
        match (kind.apply)(object, &apply).await {
            Ok(applied) => applied.print(&label, &apply, io)?,
            Err(error) => failures.push(error),
        }
    }
    failures.into_result()
}

/// Returns kind and name of objects that a dry run does not create.
fn expected(objects: &[(usize, Object)]) -> HashSet<(String, String)> {
    let named = objects
        .iter()
        .filter_map(|(place, object)| Some((KINDS[*place].name.to_owned(), name(object)?)));
    named.collect()
}

fn name(object: &Object) -> Option<String> {
    let template = object.text.as_deref().and_then(files::template_name);
    object.key("name").map(str::to_owned).or(template)
}

/// Returns the place of the kind of `object`: the one that it names, else the only one that has all its keys.
fn place(object: &Object) -> anyhow::Result<usize> {
    let names = kinds;
    if let Some(kind) = object.kind() {
        let known = names().position(|name| name.eq_ignore_ascii_case(kind));
        return known.with_context(|| {
            let hint = form::did_you_mean(kind, names());
            let names = names().collect::<Vec<_>>().join(", ");
            format!("{}: kind {kind:?} is none of {names}{hint}", object.position)
        });
    }
    if object.value.get("tasks").is_some() || object.value.is_null() {
        return names().position(|name| name == Template::NAME).context("no kind Template");
    }
    let Value::Object(fields) = &object.value else {
        anyhow::bail!("{}: it is not an object: keys with values", object.position);
    };
    // A range of addresses has a field of this name, too.
    anyhow::ensure!(!fields.contains_key("kind"), "{}: its kind is not a text", object.position);
    let fits = |kind: &Kind| fields.keys().all(|key| (kind.has_key)(key));
    let fitting: Vec<_> = (0..KINDS.len()).filter(|place| fits(&KINDS[*place])).collect();
    match fitting.as_slice() {
        [only] => Ok(*only),
        _ => {
            let names = names().collect::<Vec<_>>().join(", ");
            anyhow::bail!("{}: it has no kind: add `kind:` and one of {names}", object.position)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(text: &str) -> Result<&'static str, String> {
        let objects = files::parse("a.yaml", text).unwrap();
        place(&objects[0]).map(|place| KINDS[place].name).map_err(|error| error.to_string())
    }

    #[test]
    fn the_kind_is_the_one_that_is_named_or_the_only_one_with_the_keys() {
        for (text, kind) in [
            ("kind: hardware\nname: a", "Hardware"),
            ("name: a\ninterfaces: []", "Hardware"),
            ("name: a\nzones: []", "Location"),
            ("hardware: a\ntemplate: b", "Instance"),
            ("version: \"0.1\"\nname: a\ntasks: []", "Template"),
            ("tasks:\n{{ range .X }}\n{{ end }}", "Template"),
            ("name: a\ncidr: 192.0.2.0/24", "Subnet"),
        ] {
            assert_eq!(kind_of(text), Ok(kind), "{text}");
        }
    }

    #[test]
    fn an_unknown_kind_is_named_with_the_nearest_and_a_missing_one_is_asked_for() {
        let wrong = kind_of("kind: Hardwear").unwrap_err();
        assert!(
            wrong.starts_with("a.yaml:1: kind \"Hardwear\" is none of Tenant, Location"),
            "{wrong}"
        );
        assert!(wrong.ends_with(": did you mean Hardware?"), "{wrong}");
        let none = kind_of("name: a").unwrap_err();
        assert!(none.starts_with("a.yaml:1: it has no kind: add `kind:` and one of"), "{none}");
        let wrong = kind_of("kind: [Hardware]\nname: a").unwrap_err();
        assert_eq!(wrong, "a.yaml:1: its kind is not a text");
        assert!(kind_of("- text").unwrap_err().ends_with("it is not an object: keys with values"));
    }
}
