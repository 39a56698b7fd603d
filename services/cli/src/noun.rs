//! What can be done with every noun's objects, written once.
//!
//! A noun says which calls are its own ([`Noun`], and [`Written`] where files make its objects). Its commands flatten
//! [`Command`] beside those that only it has.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use prost::{Message, Name};
use prost_types::FieldMask;
use tonic::transport::Channel;

use crate::connect::{Connection, Show, View};
use crate::follow::{self, Watchable};
use crate::input;
use crate::output::{self, Format, Row, say};

/// How many objects are asked for at a time: few enough that a page of the largest fits a message.
pub const PAGE: i32 = 100;

/// Objects that a server keeps, and that commands name.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and nobody spawns them")]
pub trait Noun: Watchable + Row {
    /// What a list chooses by, besides labels.
    type Choice: clap::Args + Debug;
    /// How a watch is shown, if not as events.
    type Sight: clap::Args + Debug;
    /// How a removal is done.
    type Removal: clap::Args + Debug;

    /// What messages call one of them.
    const NOUN: &'static str;
    /// What one goes by.
    const NAMES: &'static str;

    /// The one that goes by `name`.
    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self>;

    /// All that `wanted` describes.
    async fn list(channel: &Channel, wanted: Wanted<Self::Choice>) -> anyhow::Result<Vec<Self>>;

    /// Removes it.
    async fn delete(&self, channel: &Channel, removal: &Self::Removal) -> anyhow::Result<()>;

    /// The one object that was asked for, as it is printed.
    fn shown(&self, format: Format) -> anyhow::Result<String> {
        output::one(self, format)
    }
}

/// Objects that files make.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and nobody spawns them")]
pub trait Written: Noun {
    /// What the file at `path` says of each, and where in it.
    fn read(path: &Path) -> anyhow::Result<Vec<(String, Self)>> {
        messages(path, input::objects(path)?, input::message)
    }

    /// Adds it. An answer that was lost is asked for again by hand: its id or name then says that it is there.
    async fn create(self, channel: &Channel) -> anyhow::Result<Self>;

    /// Replaces what `mask` names of the one with its id; without, all but secrets that are left out.
    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self>;
}

/// What a list is to hold.
#[derive(Debug)]
pub struct Wanted<C> {
    /// Labels that each has.
    pub labels: BTreeMap<String, String>,
    /// How much of each.
    pub view: View,
    /// What else it is chosen by.
    pub choice: C,
}

/// What can be done with every noun's objects.
#[derive(Debug, clap::Subcommand)]
pub enum Command<N: Noun> {
    /// Show one
    Get {
        /// Which
        #[arg(value_name = N::NAMES)]
        name: String,
        /// How much of it
        #[arg(long, default_value = "basic")]
        view: View,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// List all, or some
    List {
        /// Only those with this label; may be repeated
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
        labels: Vec<(String, String)>,
        /// What else they are chosen by
        #[command(flatten)]
        choice: N::Choice,
        /// How much of each
        #[arg(long, default_value = "basic")]
        view: View,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// Print all there is, then every change: one JSON object a line
    Watch {
        /// Only this one
        #[arg(value_name = N::NAMES)]
        name: Option<String>,
        /// How else it is shown
        #[command(flatten)]
        sight: N::Sight,
        /// How much of each
        #[arg(long, default_value = "basic")]
        view: View,
        /// Where to ask
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove one or several
    Delete {
        /// Which
        #[arg(value_name = N::NAMES, required = true)]
        names: Vec<String>,
        /// How
        #[command(flatten)]
        removal: N::Removal,
        /// Where to ask
        #[command(flatten)]
        connection: Connection,
    },
}

/// Objects from files.
#[derive(Debug, clap::Args)]
pub struct Files {
    /// YAML or JSON file with one or more of them; - for standard input
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Where to ask, and how to print
    #[command(flatten)]
    pub show: Show,
}

/// What is replaced by what files say.
#[derive(Debug, clap::Args)]
pub struct Update {
    /// Replace only this, also by nothing; may be repeated [default: everything but secrets that are left out]
    #[arg(long = "field", value_name = "NAME")]
    fields: Vec<String>,
    /// What they say
    #[command(flatten)]
    files: Files,
}

/// Nothing but what every noun has.
#[derive(Debug, clap::Args)]
pub struct Plain {}

/// Carries out `command`.
pub async fn run<N: Noun>(command: Command<N>, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Get { name, view, show } => {
            let found = N::find(&show.connection.open().await?, &name, view).await?;
            say(out, &found.shown(show.output)?)
        }
        Command::List { labels, choice, view, show } => {
            let wanted = Wanted { labels: labels.into_iter().collect(), view, choice };
            let found = N::list(&show.connection.open().await?, wanted).await?;
            say(out, &output::list(&found, show.output)?)
        }
        Command::Watch { name, sight: _, view, connection } => {
            let channel = connection.open().await?;
            let id = match name {
                Some(name) => N::find(&channel, &name, View::Basic).await?.id().to_owned(),
                None => String::new(),
            };
            follow::events::<N>(&channel, id, view, out).await
        }
        Command::Delete { names, removal, connection } => {
            let channel = connection.open().await?;
            for name in names {
                let found = N::find(&channel, &name, View::Basic).await?;
                found.delete(&channel, &removal).await?;
                say(out, &format!("{} {} deleted", N::NOUN, found.id()))?;
            }
            Ok(())
        }
    }
}

/// Adds what `files` say.
pub async fn create<N: Written>(files: Files, out: &mut dyn Write) -> anyhow::Result<()> {
    let (objects, channel) = (read::<N>(&files.files)?, files.show.connection.open().await?);
    let mut made = Vec::new();
    for (origin, object) in objects {
        made.push(object.create(&channel).await.context(origin)?);
    }
    say(out, &output::list(&made, files.show.output)?)
}

/// Replaces by what `files` say; each object must have its id.
pub async fn update<N: Written>(update: Update, out: &mut dyn Write) -> anyhow::Result<()> {
    let Update { fields: paths, files } = update;
    let (objects, channel) = (read::<N>(&files.files)?, files.show.connection.open().await?);
    let mask = (!paths.is_empty()).then_some(FieldMask { paths });
    let mut made = Vec::new();
    for (origin, object) in objects {
        made.push(object.update(&channel, mask.clone()).await.context(origin)?);
    }
    say(out, &output::list(&made, files.show.output)?)
}

/// Every object of every file, all read before the first is sent: a slip in the last one changes nothing.
fn read<N: Written>(files: &[PathBuf]) -> anyhow::Result<Vec<(String, N)>> {
    let mut objects = Vec::new();
    for file in files {
        objects.extend(N::read(file)?);
    }
    Ok(objects)
}

/// Each of `objects`, found in the file at `path`, made a message by `convert`; and where it stands.
pub fn messages<M>(
    path: &Path,
    objects: Vec<serde_json::Value>,
    convert: impl Fn(serde_json::Value) -> anyhow::Result<M>,
) -> anyhow::Result<Vec<(String, M)>> {
    let message = |(n, object)| {
        let origin = format!("{}, object {}", path.display(), n + 1);
        let message = convert(object).with_context(|| origin.clone())?;
        Ok((origin, message))
    };
    objects.into_iter().enumerate().map(message).collect()
}

/// Every page's members: `page` answers with those after a token, and the next token.
pub async fn pages<T>(
    mut page: impl AsyncFnMut(String) -> anyhow::Result<(Vec<T>, String)>,
) -> anyhow::Result<Vec<T>> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let (members, next) = page(token).await?;
        all.extend(members);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
}

/// The object of an answer, which a server always sends.
pub fn answered<M: Message + Name>(object: Option<M>) -> anyhow::Result<M> {
    object.with_context(|| format!("the server answered without a {}", M::NAME.to_lowercase()))
}
