//! Objects of files: created, replaced, or applied.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use prost_types::FieldMask;
use runtime::Channel;
use tinwright::requests::{
    CreateRequest as _, HasCreate, HasUpdate, ObjectResponse as _, UpdateRequest as _,
};
use tonic::Code;

use super::names::Names;
use super::{Resource, compare, optional, required};
use crate::connect::{View, call};
use crate::failure::{self, Failures};
use crate::files::{self, Object};
use crate::output::{Closed, Format, print_line};

/// Resources whose objects are created from files.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait FromFiles: Resource + HasCreate + HasUpdate {
    /// Converts an object of a file.
    fn read(object: &Object) -> anyhow::Result<Self> {
        object.message()
    }

    /// Replaces names of other objects, as people write them in files, by their ids.
    async fn resolve(&mut self, _: &Names<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns the stored object that a file describes, if there is one: by its id, else by its name.
    async fn stored(&self, channel: &Channel, view: View) -> anyhow::Result<Option<Self>> {
        let key = if self.id().is_empty() { self.file_name() } else { self.id() };
        anyhow::ensure!(!key.is_empty(), "it has neither an id nor a name");
        optional(Self::get(channel, key, view).await)
    }

    /// Returns the name by which files describe it; empty if it has none.
    fn file_name(&self) -> &str {
        self.name()
    }

    /// Returns what an update to this object leaves as it is `stored`, although a file has another value; none if that is nothing.
    fn unchanged_part(&self, _stored: &Self) -> Option<String> {
        None
    }

    /// Takes over what the server has filled in where a file may leave it out.
    fn adopt(&mut self, _stored: &Self) {}

    /// Returns it with an id, and without a revision.
    fn with_id(mut self, id: String) -> Self {
        *self.id_mut() = id;
        *self.revision_mut() = 0;
        self
    }

    /// Creates the object. The call is not repeated after a lost response: its id or name would exist already.
    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        required(call(channel, Self::Create::of(self)).await?.into_object())
    }

    /// Creates the object as [`create`](Self::create) does, without a login to a BMC.
    async fn create_without_login(self, channel: &Channel) -> anyhow::Result<Self> {
        self.create(channel).await
    }

    /// Replaces the fields in `mask` of the object with the same id; without a mask, all fields but secrets that are absent.
    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self> {
        required(call(channel, Self::Update::of(self, mask)).await?.into_object())
    }

    /// Updates the object as [`update`](Self::update) does, without a login to a BMC.
    async fn update_without_login(
        self,
        channel: &Channel,
        mask: Option<FieldMask>,
    ) -> anyhow::Result<Self> {
        self.update(channel, mask).await
    }
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

/// Options of `apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyOptions {
    /// Read objects from this YAML or JSON file, or from those of this folder; - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE|FOLDER", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Change nothing, and print what would be done. The objects are compared with the stored ones; what the server checks is not checked
    #[arg(long)]
    pub dry_run: bool,
    /// Print the lines of each object that change
    #[arg(long)]
    pub diff: bool,
    /// Create and change BMCs without a login to them
    #[arg(long)]
    pub skip_login: bool,
}

/// The objects of files after they were sent.
#[derive(Debug)]
pub struct Sent<R> {
    /// Those that the server has taken, as it stores them.
    pub objects: Vec<R>,
    /// The errors of the others.
    pub failures: Failures,
}

impl<R> Sent<R> {
    /// Fails if one of the objects was not sent.
    pub fn into_result(self) -> anyhow::Result<()> {
        self.failures.into_result()
    }
}

/// An application of files.
#[derive(Debug)]
pub struct Apply<'a> {
    /// The server.
    pub channel: &'a Channel,
    /// True if nothing is to be changed.
    pub dry_run: bool,
    /// True if changed lines are printed.
    pub diff: bool,
    /// True if BMCs are created without a login.
    pub skip_login: bool,
    /// Names of other objects.
    pub names: Names<'a>,
}

/// The result of applying one object.
#[derive(Debug)]
pub struct Applied {
    /// The word for it: created, changed or unchanged.
    pub word: &'static str,
    /// The name that it had before, if it has another one now.
    pub former_name: Option<String>,
    /// What stays as it was, although the file has another value.
    pub unchanged_part: Option<String>,
    /// The lines that changed.
    pub diff: String,
}

/// Converts `object`, which is of this resource unless it says otherwise.
pub fn read<R: FromFiles>(object: &Object) -> anyhow::Result<R> {
    let kind = object.kind().unwrap_or(R::NAME);
    let is_other = !kind.eq_ignore_ascii_case(R::NAME);
    anyhow::ensure!(
        !is_other,
        "{}: it is of kind {kind}, not {}: tinwright apply takes all kinds",
        object.position,
        R::NAME
    );
    R::read(object)
}

/// Creates the objects in files. An object that cannot be read means that nothing is sent; after other errors it goes on.
pub async fn create<R: FromFiles>(
    options: FileOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    create_from_files::<R>(options, channel, out).await?.into_result()
}

/// Does the same, and returns the created objects beside the errors.
pub async fn create_from_files<R: FromFiles>(
    options: FileOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<Sent<R>> {
    create_with(options, async |_: &mut R| Ok(()), channel, out).await
}

/// Creates the objects in files after `change` of each.
pub(crate) async fn create_with<R: FromFiles>(
    FileOptions { files, output }: FileOptions,
    change: impl AsyncFn(&mut R) -> anyhow::Result<()>,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<Sent<R>> {
    create_objects(files::read_all(&files), output, change, channel, out).await
}

/// Creates `objects`, those that were read of files, after `change` of each.
pub(crate) async fn create_objects<R: FromFiles>(
    objects: Vec<anyhow::Result<Object>>,
    output: Format,
    change: impl AsyncFn(&mut R) -> anyhow::Result<()>,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<Sent<R>> {
    let names = Names::new(channel, HashSet::new());
    let each = async |mut object: R| {
        object.resolve(&names).await?;
        change(&mut object).await?;
        object.create(channel).await
    };
    send(objects, output, each, channel, out).await
}

/// Replaces the objects in files, by their ids, else by their names.
pub async fn update<R: FromFiles>(
    UpdateOptions { fields: paths, files: FileOptions { files, output } }: UpdateOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mask = (!paths.is_empty()).then_some(FieldMask { paths });
    let names = Names::new(channel, HashSet::new());
    let each = async |mut object: R| {
        object.resolve(&names).await?;
        if object.id().is_empty() {
            let stored = object.stored(channel, View::Basic).await?;
            let stored = stored.context("there is no such object: tinwright apply creates it")?;
            object = object.with_id(stored.id().to_owned());
        }
        object.update(channel, mask.clone()).await
    };
    send(files::read_all(&files), output, each, channel, out).await?.into_result()
}

/// Converts all of `objects`, then sends each, prints those that were sent, and returns them. Fails if one cannot be converted.
async fn send<R: FromFiles>(
    objects: Vec<anyhow::Result<Object>>,
    output: Format,
    send: impl AsyncFn(R) -> anyhow::Result<R>,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<Sent<R>> {
    let (mut converted, mut failures) = (Vec::new(), Failures::new(objects.len()));
    for object in objects {
        match object.and_then(|object| Ok((read::<R>(&object)?, object))) {
            Ok(object) => converted.push(object),
            Err(error) => failures.push(error),
        }
    }
    if !failures.is_empty() {
        return Err(anyhow::Error::from(failures).context("nothing was sent"));
    }
    let mut sent = Vec::new();
    for (object, from) in converted {
        print_notes(&from, &from.label(R::NAME), out)?;
        match send(object).await.context(from.position) {
            Ok(object) => sent.push(object),
            Err(error) => failures.push(error),
        }
    }
    if !sent.is_empty() {
        super::print(&sent, output, channel, out).await?;
    }
    Ok(Sent { objects: sent, failures })
}

/// Creates the objects in files, or replaces the stored ones that they describe.
pub async fn apply<R: FromFiles>(
    options: ApplyOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let ApplyOptions { files, dry_run, diff, skip_login } = options;
    let names = Names::new(channel, HashSet::new());
    let apply = Apply { channel, dry_run, diff, skip_login, names };
    let each = async |read: R, object: &Object, out: &mut dyn Write| {
        let label = object.label(R::NAME);
        let applied = apply_one(read, object, &apply).await;
        applied.with_context(|| format!("{}: {label}", object.position))?.print(&label, &apply, out)
    };
    for_each(&files, each, out).await
}

/// Calls `each` with every object in `files`. An object that fails does not prevent the others.
pub(crate) async fn for_each<R: FromFiles>(
    files: &[PathBuf],
    mut each: impl AsyncFnMut(R, &Object, &mut dyn Write) -> anyhow::Result<()>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let objects = files::read_all(files);
    let mut failures = Failures::new(objects.len());
    for object in objects {
        let done = async {
            let object = object?;
            print_notes(&object, &object.label(R::NAME), out)?;
            each(read(&object)?, &object, &mut *out).await
        };
        match done.await {
            // Nobody reads the output any more.
            Err(error) if error.is::<Closed>() => return Err(error),
            Err(error) => failures.push(error),
            Ok(()) => {}
        }
    }
    failures.into_result()
}

/// Prints the notes about `object`, such as fields that have no place here.
pub fn print_notes(object: &Object, label: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    for note in &object.notes {
        print_line(out, &format!("{label}: {note}"))?;
    }
    Ok(())
}

/// The field that protects an object from its deletion.
const PROTECT: &str = "protect";

/// Creates `object`, or changes the stored one that it describes, if it differs.
pub async fn apply_one<R: FromFiles>(
    mut object: R,
    from: &Object,
    apply: &Apply<'_>,
) -> anyhow::Result<Applied> {
    let channel = apply.channel;
    object.resolve(&apply.names).await?;
    let Some(stored) = with_visible_secrets(&object, channel).await? else {
        let diff = compare::diff(None, &object)?;
        match (apply.dry_run, apply.skip_login) {
            (true, _) => {}
            (false, true) => drop(object.create_without_login(channel).await?),
            (false, false) => drop(object.create(channel).await?),
        }
        return Ok(Applied { word: "created", former_name: None, unchanged_part: None, diff });
    };
    object.adopt(&stored);
    let unchanged_part = object.unchanged_part(&stored);
    // A protection ends only by a file that says so.
    let has_protection = from.value.get(PROTECT).is_some();
    let preserved: &[&str] = if has_protection { &[] } else { &[PROTECT] };
    let change = compare::change(&stored, &object, &from.fields, preserved)?;
    let (mut word, diff) = ("changed", compare::diff(Some(&stored), &change.object)?);
    let mut new_name = change.object.file_name().to_owned();
    if change.fields.is_empty() {
        word = "unchanged";
    } else if !apply.dry_run {
        let object = change.object.with_id(stored.id().to_owned());
        let mask = FieldMask { paths: change.fields };
        let updated = match apply.skip_login {
            true => object.update_without_login(channel, Some(mask)).await?,
            false => object.update(channel, Some(mask)).await?,
        };
        updated.file_name().clone_into(&mut new_name);
        // A value that the server writes in another form, such as a name in capitals, is not a change.
        if change.is_visible && compare::visible(&stored, &updated)?.is_empty() {
            word = "unchanged";
        }
    }
    let is_renamed =
        !stored.file_name().is_empty() && !stored.file_name().eq_ignore_ascii_case(&new_name);
    let is_renamed = is_renamed && word == "changed";
    let former_name = is_renamed.then(|| stored.file_name().to_owned());
    Ok(Applied { word, former_name, unchanged_part, diff })
}

/// Returns the stored object that `object` describes, with its secrets if the caller may read them.
async fn with_visible_secrets<R: FromFiles>(
    object: &R,
    channel: &Channel,
) -> anyhow::Result<Option<R>> {
    match object.stored(channel, View::Full).await {
        Err(error) if failure::code(&error) == Some(Code::PermissionDenied) => {
            object.stored(channel, View::Basic).await
        }
        other => other,
    }
}

impl Applied {
    /// Prints it for the object `label`.
    pub fn print(&self, label: &str, apply: &Apply<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let dry_run = if apply.dry_run { " (dry run)" } else { "" };
        let former = self.former_name.as_deref().map(|name| format!(" (its name was {name})"));
        print_line(out, &format!("{label} {}{}{dry_run}", self.word, former.unwrap_or_default()))?;
        if let Some(unchanged) = &self.unchanged_part {
            print_line(out, &format!("{label}: {unchanged}"))?;
        }
        if apply.diff && self.word != "unchanged" && !self.diff.is_empty() {
            print_line(out, &self.diff)?;
        }
        Ok(())
    }
}
