//! Nodes, their stacks and their calls, with agents that only pretend to run containers.
//!
//! - `agent`: an agent with a certificate of its machine. `rollouts`: versions of a stack on twenty of them. `door`: the ImageAPI at the
//!   gateway.

mod agent;
mod door;
mod rollouts;
mod site;
