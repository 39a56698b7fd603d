//! `delete`: all objects are found before the first is deleted, and errors are reported for each.

use std::fmt::Debug;

use runtime::Channel;
use tinwright::requests::{DeleteRequest as _, HasDelete};

use super::{NoOptions, Resource};
use crate::confirm;
use crate::connect::{Io, View, call};
use crate::failure::{self, Failures};

/// The options of a deletion, and what it does.
#[expect(async_fn_in_trait, reason = "commands run on one thread, and are not spawned")]
pub trait DeleteOptions<R: Resource>: clap::Args + Debug {
    /// True if the deletion of `objects` loses data of a machine in use: without a terminal it needs `--yes`.
    fn loses_data(&self, _objects: &[R]) -> bool {
        false
    }

    /// Returns the question before the deletion of `objects`.
    async fn question(&self, objects: &[R], _: &Channel) -> String {
        let titles: Vec<_> = objects.iter().map(R::title).collect();
        format!("Delete {} {}?", R::SINGULAR, titles.join(", "))
    }

    /// Deletes `object`.
    async fn delete(&self, object: &R, channel: &Channel) -> anyhow::Result<()>;

    /// Returns what the deletion of `object` does, for people.
    fn deletion(&self, object: &R) -> String {
        format!("{} {} deleted", R::SINGULAR, object.title())
    }
}

impl<R: Resource + HasDelete> DeleteOptions<R> for NoOptions {
    async fn delete(&self, object: &R, channel: &Channel) -> anyhow::Result<()> {
        call(channel, R::Delete::of(object.id().to_owned())).await?;
        Ok(())
    }
}

/// Deletes the objects with these names.
pub(super) async fn delete<R: Resource, D: DeleteOptions<R>>(
    names: &[String],
    yes: bool,
    options: &D,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let (mut objects, mut failures) = (Vec::<R>::new(), Failures::new(names.len()));
    for name in names {
        match R::find(io.channel, name, View::Basic).await {
            Ok(object) if objects.iter().any(|it| it.id() == object.id()) => {}
            Ok(object) => objects.push(object),
            Err(error) => failures.push(error),
        }
    }
    // A wrong name among several may mean that the others are wrong, too.
    failures.into_result()?;
    if options.loses_data(&objects) || confirm::is_possible() {
        confirm::require(&options.question(&objects, io.channel).await, yes)?;
    }
    let mut failures = Failures::new(objects.len());
    for object in objects {
        match options.delete(&object, io.channel).await {
            Ok(()) => io.print(&options.deletion(&object))?,
            Err(error) => {
                let title = format!("{} {}", R::SINGULAR, object.title());
                failures.push(with_title(error, title));
            }
        }
    }
    failures.into_result()
}

/// Names the object in `error`, unless its text begins with that.
fn with_title(error: anyhow::Error, title: String) -> anyhow::Error {
    let text = failure::line(&error);
    let is_named = text.strip_prefix(&title).is_some_and(|rest| rest.starts_with([' ', ':']));
    if is_named { error } else { error.context(title) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_object_once() {
        for (text, line) in [
            ("subnet lab has range web", "subnet lab has range web"),
            ("subnet lab2 has range web", "subnet lab: subnet lab2 has range web"),
            ("the store is out of reach", "subnet lab: the store is out of reach"),
        ] {
            let error = tonic::Status::failed_precondition(text).into();
            assert_eq!(failure::line(&with_title(error, "subnet lab".into())), line);
        }
    }
}
