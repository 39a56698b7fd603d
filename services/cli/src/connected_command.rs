//! Commands that connect to a server, in one enum with commands that do not.

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args as _, Command, Error, FromArgMatches, Subcommand};

use crate::connect::Connection;

/// A command of `C`. Each command of `C` has the options of a [`Connection`].
#[derive(Debug)]
pub struct ConnectedCommand<C> {
    /// The server, and the identity of the caller.
    pub connection: Connection,
    /// The command.
    pub command: C,
}

impl<C: Subcommand> FromArgMatches for ConnectedCommand<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let command = C::from_arg_matches(matches)?;
        let options = matches.subcommand().map(|(_, options)| options);
        let options = options.ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        Ok(Self { connection: Connection::from_arg_matches(options)?, command })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<C: Subcommand> Subcommand for ConnectedCommand<C> {
    fn augment_subcommands(command: Command) -> Command {
        let commands = C::augment_subcommands(Command::new("commands"));
        let commands = commands.get_subcommands().cloned().map(with_connection);
        command.subcommands(commands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        C::has_subcommand(name)
    }
}

/// Adds the options of a [`Connection`] to `command`, which keeps its description.
fn with_connection(command: Command) -> Command {
    let about = command.get_about().cloned();
    let long_about = command.get_long_about().cloned();
    Connection::augment_args(command)
        .about(Resettable::from(about))
        .long_about(Resettable::from(long_about))
}
