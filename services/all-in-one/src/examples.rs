//! Two examples for each command, which its help shows at its end. They are in one file, so that one test parses them all.

use clap::Command;

/// One command line a line. A line that begins with `#` is for the reader of the file.
const EXAMPLES: &str = include_str!("examples.txt");

/// Adds the examples to the help of `program` and of all its commands.
pub(crate) fn with_examples(program: Command) -> Command {
    let name = program.get_name().to_owned();
    add(program, &name)
}

/// Adds the examples to `command` and to its commands; `path` is its name with those of the commands that it is in.
fn add(command: Command, path: &str) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(|inner| {
            let path = format!("{path} {}", inner.get_name());
            add(inner, &path)
        });
    }
    let lines: Vec<_> = of(path).map(|line| format!("  {line}")).collect();
    match lines.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n{}", lines.join("\n"))),
    }
}

/// Returns the examples of the command with this path.
pub(crate) fn of(path: &str) -> impl Iterator<Item = &'static str> {
    let lines = EXAMPLES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter(move |line| {
        line.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    /// Returns the paths of all commands that can be run, below the one with this path.
    fn paths(command: &Command, path: &str) -> Vec<String> {
        if !command.has_subcommands() {
            return vec![path.to_owned()];
        }
        let inner = command.get_subcommands();
        inner.flat_map(|inner| paths(inner, &format!("{path} {}", inner.get_name()))).collect()
    }

    /// Splits a line into words as a shell does, without what follows a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" | ").next().unwrap().split(" > ").next().unwrap();
        let quoted = line.split('\'').enumerate();
        quoted
            .flat_map(|(position, part)| match position % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    #[test]
    fn each_command_has_two_examples_and_its_help_shows_them() {
        let program = Arguments::command();
        let paths = paths(&program, "tinwright");
        assert!(paths.len() > 100);
        let few: Vec<_> = paths.iter().filter(|path| of(path).count() < 2).collect();
        assert!(few.is_empty(), "{few:#?}");
        let mut program = with_examples(program);
        for path in &paths {
            let mut command = &mut program;
            for name in path.split(' ').skip(1) {
                command = command.find_subcommand_mut(name).unwrap();
            }
            let help = command.render_help().to_string();
            assert!(help.contains("\nExamples:\n  tinwright "), "{path}: {help}");
        }
    }

    #[test]
    fn each_example_is_of_a_command_and_can_be_parsed() {
        let paths = paths(&Arguments::command(), "tinwright");
        for line in EXAMPLES.lines().filter(|line| !line.starts_with('#')) {
            assert!(paths.iter().any(|path| of(path).any(|it| it == line)), "{line}");
            let parsed = Arguments::command().try_get_matches_from(words(line));
            parsed.map_err(|error| panic!("{line}: {error}")).unwrap();
        }
    }
}
