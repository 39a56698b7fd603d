//! Objects of files: created, replaced, or applied.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::Context as _;
use prost_types::FieldMask;
use runtime::Channel;
use tinwright::requests::{
    CreateRequest as _, HasCreate, HasUpdate, Labels, ObjectResponse as _, UpdateRequest as _,
};
use tonic::Code;

use super::names::Names;
use super::{Resource, compare, optional, original, required};
use crate::connect::{Io, View, call};
use crate::failure::{self, Failures};
use crate::files::{self, Object};
use crate::output::{Closed, Format};

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

    /// Returns true if values besides the name show that `stored` is the object of the file, and
    /// false if they show that it is another one.
    fn is_same(&self, _stored: &Self) -> Option<bool> {
        None
    }

    /// Returns its labels, for kinds whose objects have names of Tinkerbell.
    fn labels_mut(&mut self) -> Option<&mut Labels> {
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

    /// Returns the request that creates the object.
    fn create_request(self, _options: SendOptions) -> Self::Create {
        Self::Create::of(self)
    }

    /// Returns the request that updates the object.
    fn update_request(self, mask: Option<FieldMask>, _options: SendOptions) -> Self::Update {
        Self::Update::of(self, mask)
    }

    /// Creates the object. The call is not repeated after a lost response: its id or name would exist already.
    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        required(call(channel, self.create_request(SendOptions::default())).await?.into_object())
    }

    /// Replaces the fields in `mask` of the object with the same id; without a mask, all fields but secrets that are absent.
    async fn update(self, channel: &Channel, mask: Option<FieldMask>) -> anyhow::Result<Self> {
        required(
            call(channel, self.update_request(mask, SendOptions::default())).await?.into_object(),
        )
    }

    /// Replaces the fields `paths`, which options of a command have set.
    async fn change(self, channel: &Channel, paths: Vec<String>) -> anyhow::Result<Self> {
        anyhow::ensure!(!paths.is_empty(), "nothing to change: give a setting");
        self.update(channel, Some(FieldMask { paths })).await
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
    /// How objects are changed; an option of some kinds only.
    #[arg(skip)]
    pub send: SendOptions,
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
    /// How objects are created and changed.
    #[command(flatten)]
    pub send: SendOptions,
    /// Create workflows that erase disks of machines in use without a question
    #[arg(short, long)]
    pub yes: bool,
}

/// Options of the requests that create and change objects.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct SendOptions {
    /// Create and change BMCs without a login to them
    #[arg(long)]
    pub skip_login: bool,
    /// Create and change BMCs although they list another machine than the one that they are for
    #[arg(long)]
    pub accept_other_machine: bool,
    /// Change the name, the MACs and the addresses also of machines that instances occupy
    #[arg(long)]
    pub force: bool,
}

/// The objects of files after they were sent.
#[derive(Debug)]
pub struct Sent<R> {
    /// The objects that the server has accepted, as it stores them.
    pub objects: Vec<R>,
    /// The errors of the others.
    pub failures: Failures,
}

/// An application of files.
#[derive(Debug)]
pub struct Apply<'a> {
    /// The options of the command.
    pub options: &'a ApplyOptions,
    /// Names of other objects.
    pub names: Names<'a>,
}

/// The result of applying one object.
#[derive(Debug, Default)]
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
    FileOptions { files, output }: FileOptions,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let as_read = async |_: &mut R| anyhow::Ok(());
    create_objects(files::read_all(&files), output, as_read, io).await?.failures.into_result()
}

/// Creates the `objects` of files, after `change` of each.
pub async fn create_objects<R: FromFiles>(
    objects: Vec<anyhow::Result<Object>>,
    output: Format,
    change: impl AsyncFn(&mut R) -> anyhow::Result<()>,
    io: &mut Io<'_>,
) -> anyhow::Result<Sent<R>> {
    let channel = io.channel;
    let names = Names::new(channel, HashSet::new());
    let each = async |mut object: R, _: &Object| {
        object.resolve(&names).await?;
        change(&mut object).await?;
        object.create(channel).await
    };
    send(objects, output, each, io).await
}

/// Replaces the objects in files, by their ids, else by their names.
pub async fn update<R: FromFiles>(
    UpdateOptions { fields: paths, files: FileOptions { files, output }, send: options }: UpdateOptions,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let channel = io.channel;
    let mask = (!paths.is_empty()).then_some(FieldMask { paths });
    let names = Names::new(channel, HashSet::new());
    let each = async |mut object: R, from: &Object| {
        object.resolve(&names).await?;
        if object.id().is_empty() {
            let stored = object.stored(channel, View::Basic).await?;
            let stored = stored.context("there is no such object: tinwright apply creates it")?;
            original::check(from, &stored, object.is_same(&stored))?;
            object = object.with_id(stored.id().to_owned());
        }
        let updated = call(channel, object.update_request(mask.clone(), options)).await?;
        required(updated.into_object())
    };
    send(files::read_all(&files), output, each, io).await?.failures.into_result()
}

/// Converts all of `objects`, then sends each. Prints and returns the sent ones. Sends nothing if one
/// cannot be converted.
async fn send<R: FromFiles>(
    objects: Vec<anyhow::Result<Object>>,
    output: Format,
    send: impl AsyncFn(R, &Object) -> anyhow::Result<R>,
    io: &mut Io<'_>,
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
        print_notes(&from, &from.label(R::NAME), io)?;
        let answer = send(object, &from).await;
        match answer.context(from.position) {
            Ok(object) => sent.push(object),
            Err(error) => failures.push(error),
        }
    }
    if !sent.is_empty() {
        super::print(&sent, output, io).await?;
    }
    Ok(Sent { objects: sent, failures })
}

/// Creates the objects in files, or replaces the stored ones that they describe.
pub async fn apply<R: FromFiles>(options: ApplyOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    let apply = Apply { options: &options, names: Names::new(io.channel, HashSet::new()) };
    let each = async |read: R, object: &Object, io: &mut Io<'_>| {
        let label = object.label(R::NAME);
        let applied = apply_one(read, object, &apply).await;
        applied.with_context(|| format!("{}: {label}", object.position))?.print(&label, &apply, io)
    };
    for_each(&options.files, each, io).await
}

/// Calls `each` with every object in `files`. An object that fails does not prevent the others.
pub(crate) async fn for_each<R: FromFiles>(
    files: &[PathBuf],
    mut each: impl AsyncFnMut(R, &Object, &mut Io<'_>) -> anyhow::Result<()>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let objects = files::read_all(files);
    let mut failures = Failures::new(objects.len());
    for object in objects {
        let done = async {
            let object = object?;
            print_notes(&object, &object.label(R::NAME), io)?;
            each(read(&object)?, &object, io).await
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
pub fn print_notes(object: &Object, label: &str, io: &mut Io<'_>) -> anyhow::Result<()> {
    for note in &object.notes {
        io.print(&format!("{label}: {note}"))?;
    }
    Ok(())
}

/// The field that protects an object from its deletion.
const PROTECT: &str = "protect";

/// Creates `object`, or changes the stored one that it describes, if it differs.
pub async fn apply_one<R: FromFiles>(
    mut object: R,
    from: &Object,
    Apply { options, names }: &Apply<'_>,
) -> anyhow::Result<Applied> {
    let channel = names.channel;
    object.resolve(names).await?;
    let Some(stored) = checked(&object, from, names).await? else {
        let diff = compare::diff(None, &object)?;
        if !options.dry_run {
            call(channel, object.create_request(options.send)).await?;
        }
        return Ok(Applied { word: "created", diff, ..Applied::default() });
    };
    object.adopt(&stored);
    original::keep_labels(from, object.labels_mut(), stored.labels());
    let unchanged_part = object.unchanged_part(&stored);
    // A protection ends only by a file that says so.
    let has_protection = from.value.get(PROTECT).is_some();
    let preserved: &[&str] = if has_protection { &[] } else { &[PROTECT] };
    let change = compare::change(&stored, &object, &from.fields, preserved)?;
    let (mut word, diff) = ("changed", compare::diff(Some(&stored), &change.object)?);
    let mut new_name = change.object.file_name().to_owned();
    if change.fields.is_empty() {
        word = "unchanged";
    } else if !options.dry_run {
        let object = change.object.with_id(stored.id().to_owned());
        let mask = FieldMask { paths: change.fields };
        let updated = call(channel, object.update_request(Some(mask), options.send)).await?;
        let updated = required(updated.into_object())?;
        updated.file_name().clone_into(&mut new_name);
        // A value that the server writes in another form, such as a name in capitals, is not a change.
        if change.is_visible && compare::visible(&stored, &updated)?.is_empty() {
            word = "unchanged";
        }
    }
    let former_name = former_name(&stored, &new_name).filter(|_| word == "changed");
    Ok(Applied { word, former_name, unchanged_part, diff })
}

/// Returns the name of `stored`, unless it has none or it is the new one.
fn former_name<R: FromFiles>(stored: &R, new_name: &str) -> Option<String> {
    let name = stored.file_name();
    let is_former = !name.is_empty() && !name.eq_ignore_ascii_case(new_name);
    is_former.then(|| name.to_owned())
}

/// Returns the stored object that `object` describes. Fails if it is another one with the same
/// name: then objects that name it fail, too.
async fn checked<R: FromFiles>(
    object: &R,
    from: &Object,
    names: &Names<'_>,
) -> anyhow::Result<Option<R>> {
    let Some(stored) = with_visible_secrets(object, names.channel).await? else {
        return Ok(None);
    };
    let checked = original::check(from, &stored, object.is_same(&stored));
    if checked.is_err() {
        names.refuse::<R>(object.file_name());
    }
    checked.map(|()| Some(stored))
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
    pub fn print(&self, label: &str, apply: &Apply<'_>, io: &mut Io<'_>) -> anyhow::Result<()> {
        let dry_run = if apply.options.dry_run { " (dry run)" } else { "" };
        let former = self.former_name.as_deref().map(|name| format!(" (its name was {name})"));
        io.print(&format!("{label} {}{}{dry_run}", self.word, former.unwrap_or_default()))?;
        if let Some(unchanged) = &self.unchanged_part {
            io.print(&format!("{label}: {unchanged}"))?;
        }
        if apply.options.diff && self.word != "unchanged" && !self.diff.is_empty() {
            io.print(&self.diff)?;
        }
        Ok(())
    }
}
