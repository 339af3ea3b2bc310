//! The upstream side of the edge: one attempt as a session that can be looked into.

pub(crate) mod connector;
pub(crate) mod control;
mod peek;
pub(crate) mod session;
mod upload;
