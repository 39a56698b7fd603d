//! The provider side of a platform's infrastructure abstraction layer: `docs/ial.md`.
//!
//! - `site`: a server with locations, machines and credentials for it. `platform`: the platform, whose requests have every key of their types.
//! - `decode`: answers, read as strictly as the platform's types say. `leaks`: the log, searched for credentials.
//! - `refusals`: everything that has to be refused. `journey`: each call, and the life of a machine. `manual`: the commands of the manual.
//! - `pool`: all addresses of a location. `gate`: the boot gate. `soak`: a year of listings.
//!
//! The properties that a platform may rely on, and their tests:
//!
//! | | check | test |
//! |---|---|---|
//! | 1 | each call with a good request has the answer of the contract | `journey`; `manual` |
//! | 2 | the four routes of a status answer alike, octet by octet | `journey`: `status`; `tests/fuzz`, target `ial` |
//! | 3 | listings without body, with one of announced length, and with a chunked one | `journey`: `listings` |
//! | 4 | each refusal has its status, its code, no data, and its source | `refusals` (R1 to R21, R23); netboot's `http_clients/platform` (R22) |
//! | 5 | every answer can be read into the platform's types | `decode`, which reads every answer of these tests |
//! | 6 | one order, sent several times at once to two replicas, is one machine | all-in-one's `processes/platform_storm` |
//! | 7 | the same while replicas and gateway are killed | all-in-one's `processes/platform_storm` |
//! | 8 | the boot gate, from the order of a machine to its return | netboot's `http_clients/platform/gate`; `gate`; `tests/rack`, `ial` |
//! | 9 | all addresses are granted and released, and none is granted twice | `pool`; `journey`: `addresses`; all-in-one's `processes/grant_storm` |
//! | 10 | no credential is in a log or in an error | `leaks`, at the end of each of these tests; `platform`, for each answer |
//! | 11 | listings stay the same, and store nothing | `soak` |
//! | 12 | no request breaks the decoder, and every answer has an envelope | `tests/fuzz`, target `ial` |

mod decode;
mod gate;
mod journey;
pub mod leaks;
mod manual;
pub mod platform;
mod pool;
mod refusals;
pub mod site;
mod soak;
