//! The provider side of a platform's infrastructure abstraction layer: `docs/ial.md`.
//!
//! - `site`: a server with locations, machines and credentials for it. `platform`: the platform, whose requests have every key of their types.
//! - `decode`: answers, read as strictly as the platform's types say. `leaks`: the log, searched for credentials.
//! - `refusals`: everything that has to be refused. `journey`: each call, and the life of a machine. `manual`: the commands of the manual.

mod decode;
mod journey;
mod leaks;
mod manual;
mod platform;
mod refusals;
mod site;
