//! Jobs that try to leave their sandbox, as root's jobs and as an ordinary user's.
//!
//! The tests start programs as other users, so that they need root.

#![expect(clippy::unwrap_used, reason = "a test that cannot arrange its scene fails")]

mod contained;
mod ends;
mod layers;
mod limits;
mod machine;
mod scene;
