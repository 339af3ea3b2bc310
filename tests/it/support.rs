//! A stage for tests: the simulated upstream, the real gateway before it, and clients.

pub(crate) mod client;
pub(crate) mod codex;
pub(crate) mod crash;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod stage;
