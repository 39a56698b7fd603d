//! Grants over a store in memory, with a clock of the test.

mod bench;
mod many;
mod rules;
mod tenants;
