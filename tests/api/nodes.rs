//! Nodes, their stacks and their calls, with agents that only pretend to run containers, and with a real one.
//!
//! - `agent`: an agent with a certificate of its machine. `rollouts`: versions of a stack on twenty of them. `door`: the ImageAPI at the
//!   gateway. `identity`: that of another boot. `real_agent`: the program `tinwright-node` with containers.

mod agent;
mod door;
mod identity;
mod real_agent;
mod rollouts;
mod site;
