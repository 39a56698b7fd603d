//! The commands that every resource has.
//!
//! A resource implements its calls: [`Resource`], and [`FromFiles`] if its objects are created from files. Its own commands
//! flatten [`ResourceCommand`].
//!
//! - `from_files`: creating, replacing and applying the objects of files. `names`: the ids of other objects that they name.
//!   `original`: the records that objects with names of Tinkerbell may change.
//! - `compare`: the differences between an object and the stored one.
//! - `delete`, `list`: these commands. `machines`: names of machines in tables.

pub mod compare;
mod delete;
pub mod from_files;
mod list;
mod machines;
mod names;
mod original;

use std::collections::HashMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::SystemTime;

use anyhow::Context as _;
use prost::{Message, Name};
use prost_types::FieldMask;
use runtime::Channel;
use serde_json::json;
use tinwright::requests::{
    self, By, GetRequest as _, HasGet, HasList, Labels, ListRequest as _, ObjectResponse as _,
};
use tinwright::{HardwareId, check};
use tonic::Status;

use crate::connect::{Io, View, call};
use crate::failure::{self, Missing};
use crate::follow::{self, Watchable};
use crate::output::{self, Format, ListOutput, Row, Table};
pub use delete::DeleteOptions;
pub use from_files::{
    ApplyOptions, FileOptions, FromFiles, SendOptions, UpdateOptions, apply, create,
    create_objects, update,
};
pub use list::{ListQuery, list};
pub(crate) use machines::{machine_names, machines};
pub use names::Names;

/// Objects per page of a list: few enough that a page of the largest ones fits a message.
const PAGE_SIZE: i32 = 100;

/// The options of a list of this resource.
pub type Query<R> = ListQuery<<R as Resource>::Filter>;

/// Objects of one kind on the server.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait Resource: Watchable + HasList + Row {
    /// Options that filter a list, besides labels.
    type Filter: clap::Args + Debug + Default + PartialEq;

    /// Names by which an object can be found, for help texts.
    const NAMES: &'static str = "NAME|ID";
    /// The objects, for help texts.
    const OBJECTS: &'static str = "The objects";
    /// The command that makes the first object, for an empty list.
    const FIRST: &'static str = "";

    /// Returns the object with exactly the name `name`. The error is [`failure::is_not_found`] if there is none.
    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self>;

    /// Returns a request with the values by which `query` selects objects, besides labels.
    async fn select(_: &Channel, _query: &Query<Self>) -> anyhow::Result<Self::List> {
        Ok(Self::List::of(0, String::new(), Labels::new()))
    }

    /// Returns all objects that `query` selects.
    async fn all(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Vec<Self>> {
        let labels = Self::List::of(0, String::new(), query.labels()).encode_to_vec();
        let filter = Self::select(channel, query).await?.encode_to_vec();
        let both = [labels, filter].concat();
        // Encoded requests can be decoded, also one after the other.
        let select = |request: &mut Self::List| drop(request.merge(both.as_slice()));
        Ok(list_all(channel, select).await?)
    }

    /// Returns the object with the name `name`, which may be the beginning of its id, or a reference: `hardware/node-1`.
    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let name = output::referenced::<Self>(name);
        match Self::get(channel, name, view).await {
            Err(missing) if failure::is_not_found(&missing) => {
                by_prefix(channel, name, view, missing).await
            }
            other => other,
        }
    }

    /// Returns the id of the object with the name `name`, which may be the beginning of its id. A whole id is returned without a call: the
    /// server may have no such objects.
    async fn find_id(channel: &Channel, name: &str) -> anyhow::Result<String> {
        // The ids of all resources have one form.
        match output::referenced::<Self>(name).parse::<HardwareId>() {
            Ok(id) => Ok(id.to_string()),
            Err(_) => Ok(Self::find(channel, name, View::Basic).await?.id().to_owned()),
        }
    }

    /// Returns the id of the object with the name `name`; empty without a name.
    async fn find_optional_id(channel: &Channel, name: Option<&str>) -> anyhow::Result<String> {
        match name {
            Some(name) => Self::find_id(channel, name).await,
            None => Ok(String::new()),
        }
    }

    /// Returns the ids of the objects with these names. Fails if one does not exist.
    async fn find_all(channel: &Channel, names: &[String]) -> anyhow::Result<Vec<String>> {
        let mut ids = Vec::new();
        for name in names {
            ids.push(Self::find(channel, name, View::Basic).await?.id().to_owned());
        }
        Ok(ids)
    }

    /// Returns its name for people: its id if it has none.
    fn title(&self) -> String {
        let name = self.name();
        if name.is_empty() { self.id().to_owned() } else { name.to_owned() }
    }

    /// Returns the name for references to the object. It leads to no other object.
    fn reference_name(&self) -> String {
        self.title()
    }

    /// Describes the object for people.
    async fn describe(&self, _: &Channel) -> anyhow::Result<String> {
        output::one(self, &Format::Yaml)
    }

    /// Returns `objects` as a table, which will be a `wide` one or not.
    async fn table(channel: &Channel, objects: &[Self], now: SystemTime, _wide: bool) -> Table {
        Table::of(objects, now).with_names(Self::names(channel, objects).await)
    }

    /// Returns names for the ids of other objects in a table of `objects`: of their machines.
    async fn names(channel: &Channel, objects: &[Self]) -> HashMap<String, String> {
        machine_names(channel, objects.iter().map(|object| object.hardware_id())).await
    }
}

/// The commands that every resource has, with the options of its deletions and its watches.
#[derive(Debug, clap::Subcommand)]
pub enum ResourceCommand<R, D = NoOptions, W = NoOptions>
where
    R: Resource,
    D: DeleteOptions<R>,
    W: clap::Args + Debug,
{
    /// Get one object
    Get {
        /// The object
        #[arg(value_name = R::NAMES)]
        name: String,
        /// Print these parts of it
        #[arg(long, default_value = "basic")]
        view: View,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// List objects
    List {
        /// Options of the list
        #[command(flatten)]
        query: ListQuery<R::Filter>,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Print all objects, then every change, as one JSON object per line
    Watch {
        /// Print only this object
        #[arg(value_name = R::NAMES)]
        name: Option<String>,
        /// Options of this resource
        #[command(flatten)]
        options: W,
        /// Print these parts of each
        #[arg(long, default_value = "basic")]
        view: View,
    },
    /// Delete objects
    Delete {
        /// The objects
        #[arg(value_name = R::NAMES, required = true)]
        names: Vec<String>,
        /// Delete without a question; needed without a terminal where data is lost
        #[arg(short, long)]
        yes: bool,
        /// Options of this resource
        #[command(flatten)]
        options: D,
    },
}

/// No options.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub struct NoOptions {}

/// An object that a command finds or changes, and then prints.
#[derive(Debug, clap::Args)]
pub struct Target<R: Resource> {
    #[arg(value_name = R::NAMES, help = format!("The {}", R::SINGULAR))]
    pub(crate) name: String,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Format,
    #[arg(skip)]
    _resource: PhantomData<R>,
}

/// Objects that a command changes and then prints.
#[derive(Debug, clap::Args)]
pub struct Targets<R: Resource> {
    #[arg(value_name = R::NAMES, required = true, help = R::OBJECTS)]
    pub(crate) names: Vec<String>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Format,
    #[arg(skip)]
    _resource: PhantomData<R>,
}

/// Runs `command`.
pub async fn run<R: Resource>(
    command: ResourceCommand<R, impl DeleteOptions<R>, impl clap::Args + Debug>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    match command {
        ResourceCommand::Get { name, view, output } => get::<R>(&name, view, &output, io).await,
        ResourceCommand::List { query, output } => list::<R>(&query, output, io).await,
        ResourceCommand::Watch { name, options: _, view } => {
            let id = match name {
                Some(name) => R::find(io.channel, &name, View::Basic).await?.id().to_owned(),
                None => String::new(),
            };
            follow::events::<R>(id, view, io).await
        }
        ResourceCommand::Delete { names, yes, options } => {
            delete::delete::<R, _>(&names, yes, &options, io).await
        }
    }
}

/// Prints the object with the name `name`.
pub async fn get<R: Resource>(
    name: &str,
    view: View,
    output: &Format,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let object = R::find(io.channel, name, view).await?;
    let text = match output {
        Format::Table | Format::Wide => object.describe(io.channel).await?,
        Format::Name => output::reference::<R>(&object.reference_name()),
        Format::Json | Format::Yaml | Format::JsonPath(_) => output::one(&object, output)?,
    };
    io.print(&text)
}

/// Returns the object with the id or the name `name`.
pub async fn by_name<R: Resource + HasGet>(
    channel: &Channel,
    name: &str,
    view: View,
) -> anyhow::Result<R> {
    // The ids of all resources have one form.
    let by = match name.parse::<HardwareId>() {
        Ok(id) => By::Id(id.to_string()),
        Err(_) => By::Name(name.to_owned()),
    };
    required(call(channel, R::Get::of(by, view.into())).await?.into_object())
}

/// Returns the object with the id or the name `name`, for a resource whose names are DNS labels.
pub async fn by_label<R: Resource + HasGet>(
    channel: &Channel,
    name: &str,
    view: View,
) -> anyhow::Result<R> {
    let is_id = name.parse::<HardwareId>().is_ok();
    let name = match check::label(name) {
        Ok(label) if !is_id => label,
        Err(_) if !is_id => return Err(no_name(name, R::SINGULAR)),
        Ok(_) | Err(_) => name.to_owned(),
    };
    by_name(channel, &name, view).await
}

/// Returns the object whose id begins with `prefix`, or the error `missing` if there is none.
async fn by_prefix<R: Resource>(
    channel: &Channel,
    prefix: &str,
    view: View,
    missing: anyhow::Error,
) -> anyhow::Result<R> {
    const ID_LENGTH: usize = 36;
    let is_part_of_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if prefix.len() >= ID_LENGTH || prefix.is_empty() || !prefix.bytes().all(is_part_of_id) {
        return Err(missing);
    }
    let prefix = prefix.to_ascii_lowercase();
    // A caller that may not list gets the first error.
    let Ok(mut found) = R::all(channel, &Query::<R>::default()).await else { return Err(missing) };
    found.retain(|object| object.id().starts_with(&prefix));
    let count = found.len();
    match found.pop() {
        Some(object) if count == 1 && view == View::Basic => Ok(object),
        Some(object) if count == 1 => R::get(channel, object.id(), view).await,
        Some(_) => anyhow::bail!("{count} ids begin with {prefix}: give more of it"),
        None => Err(missing),
    }
}

/// Protects the objects, or removes their protection.
pub async fn protect<R: FromFiles + Clone>(
    targets: Targets<R>,
    protect: bool,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let Targets { names, output, .. } = targets;
    let new: R = tinwright::json::read(json!({ "protect": protect }))?;
    set_fields(&names, &new, &["protect"], output, io).await
}

/// Gives the objects with these names the `fields` of `new`, and prints them. All are found before the first is changed.
pub async fn set_fields<R: FromFiles + Clone>(
    names: &[String],
    new: &R,
    fields: &[&str],
    output: Format,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let mut updated = Vec::new();
    for id in R::find_all(io.channel, names).await? {
        let mask = FieldMask { paths: fields.iter().map(ToString::to_string).collect() };
        updated.push(new.clone().with_id(id).update(io.channel, Some(mask)).await?);
    }
    print(&updated, output, io).await
}

/// Prints objects that a command has changed, as a list does.
pub async fn print<R: Resource>(
    objects: &[R],
    output: Format,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    list::print(objects, &list::empty::<R>(), &output.into(), io).await
}

/// Returns `found`, or nothing if it is the error that there is no such object.
pub fn optional<T>(found: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match found {
        Ok(object) => Ok(Some(object)),
        Err(error) if failure::is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the names of all objects by their ids; none if they cannot be listed.
pub(crate) async fn all_names<R: Resource>(channel: &Channel) -> HashMap<String, String> {
    let objects = R::all(channel, &Query::<R>::default()).await.unwrap_or_default();
    objects.iter().map(|object| (object.id().to_owned(), object.title())).collect()
}

/// Returns the error that `name` is not of the form that names of `resource` have: so there is none with it.
pub fn no_name(name: &str, resource: &str) -> anyhow::Error {
    Missing(format!("{name:?} is neither the name nor the id of a {resource}")).into()
}

/// Returns the objects of all pages of a list. `select` completes the request for a page.
pub async fn list_all<T: HasList>(
    channel: &Channel,
    select: impl Fn(&mut T::List),
) -> Result<Vec<T>, Status> {
    pages(async |token| {
        let mut request = T::List::of(PAGE_SIZE, token, Labels::new());
        select(&mut request);
        let page: requests::Page<T> = call(channel, request).await?.into();
        Ok((page.objects, page.next_page_token))
    })
    .await
}

/// Returns the objects of all pages. `page` gets the token of a page, and returns that of the next one.
pub async fn pages<T>(
    mut page: impl AsyncFnMut(String) -> Result<(Vec<T>, String), Status>,
) -> Result<Vec<T>, Status> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let (objects, next) = page(token).await?;
        all.extend(objects);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
}

/// Returns the object of a response; every server sends one.
pub fn required<M: Message + Name>(object: Option<M>) -> anyhow::Result<M> {
    object.with_context(|| format!("the response has no {}", M::NAME.to_lowercase()))
}
