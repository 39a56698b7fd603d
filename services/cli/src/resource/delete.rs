//! `delete`: all objects are found before the first is deleted, and errors are reported for each.

use std::io::{BufRead, IsTerminal as _, Write};

use anyhow::Context as _;
use tonic::transport::Channel;

use super::Resource;
use crate::connect::View;
use crate::failure::Failures;
use crate::output::print_line;

/// Deletes the objects with these names.
pub(super) async fn delete<R: Resource>(
    names: &[String],
    yes: bool,
    options: &R::DeleteOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (mut objects, mut failures) = (Vec::<R>::new(), Failures::new(names.len()));
    for name in names {
        match R::find(channel, name, View::Basic).await {
            Ok(object) if objects.iter().any(|it| it.id() == object.id()) => {}
            Ok(object) => objects.push(object),
            Err(error) => failures.push(error),
        }
    }
    // A wrong name among several may mean that the others are wrong, too.
    failures.into_result()?;
    if !yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        let titles: Vec<_> = objects.iter().map(R::title).collect();
        let question = format!("delete {} {}?", R::RESOURCE, titles.join(", "));
        anyhow::ensure!(confirm(&question, &mut std::io::stdin().lock())?, "nothing was deleted");
    }
    let mut failures = Failures::new(objects.len());
    for object in objects {
        let title = format!("{} {}", R::RESOURCE, object.title());
        match object.delete(channel, options).await.context(title) {
            Ok(()) => print_line(out, &object.deletion(options))?,
            Err(error) => failures.push(error),
        }
    }
    failures.into_result()
}

/// Asks `question` on standard error, and returns true if the answer is yes.
fn confirm(question: &str, answers: &mut dyn BufRead) -> anyhow::Result<bool> {
    let mut error = std::io::stderr();
    write!(error, "tinwright: {question} [y/N] ").and_then(|()| error.flush())?;
    let mut answer = String::new();
    answers.read_line(&mut answer).context("reading the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_confirms() {
        for (answer, is_yes) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("n\n", false)]
        {
            assert_eq!(confirm("delete a?", &mut answer.as_bytes()).unwrap(), is_yes, "{answer:?}");
        }
    }
}
