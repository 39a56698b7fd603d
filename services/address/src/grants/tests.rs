//! Grants over a store in memory, with a clock of the test.

mod attached;
mod bench;
mod many;
mod rules;
mod tenants;
