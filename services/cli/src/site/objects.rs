//! Objects of the API in archives: YAML as `tinwright apply` reads it, without secrets.
//!
//! Objects keep their ids, by which they name each other. BMCs have logins, which are secrets;
//! instances and workflows are orders: neither is taken along.

use runtime::Channel;
use tinwright::address::v1 as address;
use tinwright::hardware::v1 as hardware;
use tinwright::identity::v1::Tenant;
use tinwright::workflow::v1::Template;

use crate::connect::View;
use crate::output::{self, Format};
use crate::resource::{FromFiles, Query, Resource, compare};

/// Kinds of objects in archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum ObjectKind {
    /// All tenants
    Tenant,
    /// All locations
    Location,
    /// All models
    Model,
    /// All subnets
    Subnet,
    /// All ranges of subnets
    Range,
    /// All bindings of locations
    LocationBinding,
    /// All templates
    Template,
    /// All machines; of one in use the record, as one that is free
    Hardware,
}

/// Returns the document with all objects of `kind`; empty if there are none.
pub(super) async fn all(kind: ObjectKind, channel: &Channel) -> anyhow::Result<String> {
    match kind {
        ObjectKind::Tenant => document(&listed::<Tenant>(channel).await?),
        ObjectKind::Location => document(&listed::<hardware::Location>(channel).await?),
        ObjectKind::Model => document(&listed::<hardware::Model>(channel).await?),
        ObjectKind::Subnet => document(&listed::<address::Subnet>(channel).await?),
        ObjectKind::Range => {
            let ranges = listed::<address::Range>(channel).await?;
            document(&ranges.into_iter().map(created).collect::<Vec<_>>())
        }
        ObjectKind::LocationBinding => {
            document(&listed::<address::LocationBinding>(channel).await?)
        }
        ObjectKind::Template => {
            let ids = listed::<Template>(channel).await?.into_iter().map(|template| template.id);
            templates(&ids.collect::<Vec<_>>(), channel).await
        }
        ObjectKind::Hardware => {
            let machines = listed::<hardware::Hardware>(channel).await?;
            document(&machines.into_iter().map(free).collect::<Vec<_>>())
        }
    }
}

/// Returns the document with the templates of these names.
pub(super) async fn templates(names: &[String], channel: &Channel) -> anyhow::Result<String> {
    let mut templates: Vec<Template> = Vec::new();
    for name in names {
        // Only the full view has the data.
        let template = Template::find(channel, name, View::Full).await?;
        if templates.iter().all(|other| other.id != template.id) {
            templates.push(compare::portable(&template)?);
        }
    }
    document(&templates)
}

async fn listed<R: FromFiles>(channel: &Channel) -> anyhow::Result<Vec<R>> {
    let objects = R::all(channel, &Query::<R>::default()).await?;
    objects.iter().map(compare::portable).collect()
}

/// Returns `range` as it is created: the server fills in the size of leases, and refuses it.
fn created(range: address::Range) -> address::Range {
    let is_dynamic = range.kind() == address::RangeKind::Dynamic;
    let prefix_length = if is_dynamic { 0 } else { range.prefix_length };
    address::Range { prefix_length, ..range }
}

/// Returns the record of `machine` for its creation elsewhere: no instance has it there.
fn free(machine: hardware::Hardware) -> hardware::Hardware {
    hardware::Hardware { state: hardware::State::Provisionable.into(), ..machine }
}

fn document<R: Resource>(objects: &[R]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        let object = output::one(object, &Format::Yaml)?;
        text.push_str(&format!("---\n{}\n", object.trim_end()));
    }
    Ok(text)
}
