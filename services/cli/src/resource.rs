//! The commands that every resource has.
//!
//! A resource implements its calls: [`Resource`], and [`FromFiles`] if its objects are created from files. Its own commands
//! flatten [`ResourceCommand`].

use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use prost::{Message, Name};
use prost_types::FieldMask;
use tonic::Status;
use tonic::transport::Channel;

use crate::connect::View;
use crate::follow::{self, Watchable};
use crate::input;
use crate::output::{self, Format, Row, print_line, print_list};

/// Objects per page of a list: few enough that a page of the largest ones fits a message.
pub const PAGE_SIZE: i32 = 100;

/// The options of a list of this resource.
pub type Query<R> = ListQuery<<R as Resource>::Filter>;

/// A page of a list, and the token of the next page.
pub type Page<T> = anyhow::Result<(Vec<T>, String)>;

/// Objects of one kind on the server.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait Resource: Watchable + Row {
    /// Options that filter a list, besides labels.
    type Filter: clap::Args + Debug;
    /// Options of a watch.
    type WatchOptions: clap::Args + Debug;
    /// Options of a delete.
    type DeleteOptions: clap::Args + Debug;

    /// Name of the resource in messages.
    const RESOURCE: &'static str;
    /// Names by which an object can be found, for help texts.
    const NAMES: &'static str;

    /// Returns the object with the name `name`.
    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self>;

    /// Returns one page of a list.
    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self>;

    /// Deletes the object.
    async fn delete(&self, channel: &Channel, options: &Self::DeleteOptions) -> anyhow::Result<()>;

    /// Describes the object for people.
    async fn describe(&self, _: &Channel) -> anyhow::Result<String> {
        output::one(self, Format::Yaml)
    }

    /// Returns `objects` as a table.
    async fn table(_: &Channel, objects: &[Self]) -> String {
        output::table(objects)
    }
}

/// Resources whose objects are created from files.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait FromFiles: Resource {
    /// Reads the objects in the file at `path`, each with its position for errors.
    fn read(path: &Path) -> anyhow::Result<Vec<(String, Self)>> {
        messages(path, input::objects(path)?, input::message)
    }

    /// Creates the object. The call is not repeated after a lost response: its id or name would exist already.
    async fn create(self, channel: &Channel) -> anyhow::Result<Self>;

    /// Replaces the fields in `mask` of the object with the same id; without a mask, all fields but secrets that are absent.
    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self>;
}

/// Resources whose objects are created or replaced from files, by their id or name.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait Applicable: FromFiles {
    /// Returns its id, or its name if it has no id.
    fn key(&self) -> &str;

    /// Returns it with the id `id`.
    fn with_id(self, id: String) -> Self;

    /// Returns the id of the stored object with this id or name, if there is one.
    async fn stored_id(channel: &Channel, key: &str) -> anyhow::Result<Option<String>>;
}

/// Resources whose objects can be protected.
pub trait Protectable: FromFiles {
    /// Returns an update of the object with the id `id` that sets its field `protect`.
    fn protection(id: String, protect: bool) -> Self;
}

/// Options of a list.
#[derive(Debug, clap::Args)]
pub struct ListQuery<F: clap::Args> {
    /// List only objects with this label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    pub labels: Vec<(String, String)>,
    /// Options of this resource.
    #[command(flatten)]
    pub filter: F,
    /// Print these parts of each
    #[arg(long, default_value = "basic")]
    pub view: View,
}

/// The commands that every resource has.
#[derive(Debug, clap::Subcommand)]
pub enum ResourceCommand<R: Resource> {
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
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Print all objects, then every change, as one JSON object per line
    Watch {
        /// Print only this object
        #[arg(value_name = R::NAMES)]
        name: Option<String>,
        /// Options of this resource
        #[command(flatten)]
        options: R::WatchOptions,
        /// Print these parts of each
        #[arg(long, default_value = "basic")]
        view: View,
    },
    /// Delete objects
    Delete {
        /// The objects
        #[arg(value_name = R::NAMES, required = true)]
        names: Vec<String>,
        /// Options of this resource
        #[command(flatten)]
        options: R::DeleteOptions,
    },
}

/// Options of commands that read objects from files.
#[derive(Debug, clap::Args)]
pub struct FileOptions {
    /// Read one or more objects from this YAML or JSON file; - for standard input
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub output: Format,
}

/// Options of an update.
#[derive(Debug, clap::Args)]
pub struct UpdateOptions {
    /// Replace only this field, also if it is absent in the file; may be repeated [default: all fields but absent secrets]
    #[arg(long = "field", value_name = "NAME")]
    pub fields: Vec<String>,
    /// The files.
    #[command(flatten)]
    pub files: FileOptions,
}

/// No options.
#[derive(Debug, Default, clap::Args)]
pub struct NoOptions {}

/// Runs `command`.
pub async fn run<R: Resource>(
    command: ResourceCommand<R>,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        ResourceCommand::Get { name, view, output } => {
            let object = R::find(channel, &name, view).await?;
            print_line(
                out,
                &match output {
                    Format::Table => object.describe(channel).await?,
                    Format::Json | Format::Yaml => output::one(&object, output)?,
                },
            )
        }
        ResourceCommand::List { query, output } => {
            let objects = pages(async |token| R::page(channel, &query, token).await).await?;
            match output {
                Format::Table => print_line(out, &R::table(channel, &objects).await),
                Format::Json | Format::Yaml => print_list(out, &objects, output),
            }
        }
        ResourceCommand::Watch { name, options: _, view } => {
            let id = match name {
                Some(name) => R::find(channel, &name, View::Basic).await?.id().to_owned(),
                None => String::new(),
            };
            follow::events::<R>(channel, id, view, out).await
        }
        ResourceCommand::Delete { names, options } => {
            for name in names {
                let object = R::find(channel, &name, View::Basic).await?;
                object.delete(channel, &options).await?;
                print_line(out, &format!("{} {} deleted", R::RESOURCE, object.id()))?;
            }
            Ok(())
        }
    }
}

/// Creates the objects in files.
pub async fn create<R: FromFiles>(
    FileOptions { files, output }: FileOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut created = Vec::new();
    for (position, object) in read::<R>(&files)? {
        created.push(object.create(channel).await.context(position)?);
    }
    print_list(out, &created, output)
}

/// Replaces the objects in files, by their ids.
pub async fn update<R: FromFiles>(
    UpdateOptions { fields: paths, files: FileOptions { files, output } }: UpdateOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mask = (!paths.is_empty()).then_some(FieldMask { paths });
    let mut updated = Vec::new();
    for (position, object) in read::<R>(&files)? {
        updated.push(object.update(channel, mask.clone()).await.context(position)?);
    }
    print_list(out, &updated, output)
}

/// Creates the objects in files, or replaces those that have their id or name.
pub async fn apply<R: Applicable>(
    FileOptions { files, output }: FileOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut applied = Vec::new();
    for (position, object) in read::<R>(&files)? {
        applied.push(apply_one(object, channel).await.context(position)?);
    }
    print_list(out, &applied, output)
}

async fn apply_one<R: Applicable>(object: R, channel: &Channel) -> anyhow::Result<R> {
    match R::stored_id(channel, object.key()).await? {
        Some(id) => object.with_id(id).update(channel, None).await,
        None => object.create(channel).await,
    }
}

/// Returns the object whose id begins with `prefix`, or `missing` if there is none.
pub async fn by_prefix<R: Resource<Filter: Default>>(
    channel: &Channel,
    prefix: &str,
    missing: Status,
) -> anyhow::Result<R> {
    let is_part_of_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if !prefix.bytes().all(is_part_of_id) {
        return Err(missing.into());
    }
    let all = ListQuery { labels: Vec::new(), filter: R::Filter::default(), view: View::Basic };
    let prefix = prefix.to_ascii_lowercase();
    let mut found = pages(async |token| R::page(channel, &all, token).await).await?;
    found.retain(|object| object.id().starts_with(&prefix));
    let count = found.len();
    match found.pop() {
        Some(object) if count == 1 => Ok(object),
        Some(_) => anyhow::bail!("{count} ids begin with {prefix}: give more of it"),
        None => Err(missing.into()),
    }
}

/// Protects the objects with these names, or removes their protection. All are found before the first is changed.
pub async fn protect<R: Protectable>(
    names: &[String],
    protect: bool,
    output: Format,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut ids = Vec::new();
    for name in names {
        ids.push(R::find(channel, name, View::Basic).await?.id().to_owned());
    }
    let mut updated = Vec::new();
    for id in ids {
        let mask = FieldMask { paths: vec!["protect".to_owned()] };
        updated.push(R::protection(id, protect).update(channel, Some(mask)).await?);
    }
    print_list(out, &updated, output)
}

/// Reads all files before anything is sent: an error in the last one changes nothing.
pub(crate) fn read<R: FromFiles>(files: &[PathBuf]) -> anyhow::Result<Vec<(String, R)>> {
    let objects: anyhow::Result<Vec<_>> = files.iter().map(|file| R::read(file)).collect();
    Ok(objects?.into_iter().flatten().collect())
}

/// Converts `objects` from the file at `path`, each with its position for errors.
pub fn messages<M>(
    path: &Path,
    objects: Vec<serde_json::Value>,
    convert: impl Fn(serde_json::Value) -> anyhow::Result<M>,
) -> anyhow::Result<Vec<(String, M)>> {
    let message = |(n, object)| {
        let position = format!("{}, object {}", path.display(), n + 1);
        let message = convert(object).with_context(|| position.clone())?;
        Ok((position, message))
    };
    objects.into_iter().enumerate().map(message).collect()
}

/// Returns the objects of all pages. `page` gets the token of a page.
pub async fn pages<T>(mut page: impl AsyncFnMut(String) -> Page<T>) -> anyhow::Result<Vec<T>> {
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
