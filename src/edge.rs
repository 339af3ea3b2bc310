//! Pingora: the hooks ask the gateway and pass its answers on.

mod attempts;
mod body;
pub mod connection;
mod ctx;
mod deadline;
mod failure;
mod heads;
pub mod proxy;
mod raw_head;
mod receive;
mod respond;
mod upstream;

pub use upstream::connector::AttemptConnector;
