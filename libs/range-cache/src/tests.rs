//! Tests with a simulated disk and a simulated origin, on one thread: a seed gives the same run.

mod directory;
mod model;
mod power_failures;
mod random;
mod reads;
mod room;
mod sim_disk;
mod sim_origin;
mod site;
