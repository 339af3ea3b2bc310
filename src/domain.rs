//! What the gateway is about: accounts, credentials, health, selection. Pure: no runtime, no files,
//! no network, no clock.

pub mod account;
pub mod affinity;
pub mod credential;
pub mod health;
pub mod identity;
pub mod outcome;
pub mod reconcile;
pub mod refusal;
pub mod select;
